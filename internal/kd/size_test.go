package kd

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// What a search reads of a box or a point begins at a cache line.
func TestWholeCacheLines(t *testing.T) {
	const line = 64
	for _, at := range []uintptr{unsafe.Sizeof(Box{}), unsafe.Offsetof(Box{}.Least), unsafe.Offsetof(Box{}.Most), unsafe.Sizeof(Point{})} {
		require.Zero(t, at%line)
	}
}
