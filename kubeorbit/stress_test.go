//go:build stress

package kubeorbit

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
)

// heap returns what is in memory, less the events for which the API server in memory keeps room in each watch that has ended.
func (c *cluster) heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) - int(c.watches.Load())*int(watch.DefaultChanSize)*int(unsafe.Sizeof(watch.Event{}))
}

// Twelve hours of a rolling cluster: at rest nothing is wrong. Beside the past, which the ledger's limits bound, nothing that is
// kept in memory grows.
func TestStressTwelveHours(t *testing.T) {
	early := 0
	rolling(t, 12*time.Hour, 1, func(t *testing.T, c *cluster, elapsed time.Duration) {
		switch now := c.heap(); {
		case early == 0 && elapsed > 2*time.Hour:
			early = now
		case elapsed > 11*time.Hour:
			t.Logf("after %v: %d KiB, with %d ended watches; after two hours: %d KiB", elapsed, now>>10, c.watches.Load(), early>>10)
			require.Less(t, now, early*3/2)
		}
	})
}
