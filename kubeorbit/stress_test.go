//go:build stress

package kubeorbit

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Twelve hours of a rolling cluster: at rest nothing is wrong. Beside the past, which the ledger's limits bound, nothing that is
// kept in memory grows.
func TestStressTwelveHours(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	rolling(t, 12*time.Hour, 1, func(elapsed time.Duration) {
		switch now := heap(); {
		case early == 0 && elapsed > 2*time.Hour:
			early = now
		case elapsed > 11*time.Hour:
			t.Logf("after %v: %d MiB; after two hours: %d MiB", elapsed, now>>20, early>>20)
			require.Less(t, now, early*3/2)
		}
	})
}
