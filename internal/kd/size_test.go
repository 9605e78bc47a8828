package kd

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// What a search reads first, the coordinates from the second to the ninth, fills a cache line.
func TestWholeCacheLines(t *testing.T) {
	const line, word = 64, 8
	for _, at := range []uintptr{unsafe.Sizeof(Box{}), unsafe.Offsetof(Box{}.Least) + word, unsafe.Offsetof(Box{}.Most) + word, unsafe.Sizeof(Point{})} {
		require.Zero(t, at%line)
	}
}
