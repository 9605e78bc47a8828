package claim_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// Compare orders pools by surplus, then by claims in flight, then by the time of the last dispatch.
func TestCompare(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	best := []claim.Snapshot{
		{IdleReady: 5, QueueLen: 3, InflightCAS: 3},
		{IdleReady: 4},
		{IdleReady: 9, QueueLen: 8, InflightCAS: 2, LastDispatchAt: at(1)}, // surplus 3
		{IdleReady: 3, InflightCAS: 2, LastDispatchAt: at(2)},
		{IdleReady: 1, QueueLen: 3},
		{QueueLen: 7},
	}
	for i, a := range best {
		for j, b := range best {
			got := claim.Compare(a, b)
			assert.Equal(t, i < j, got < 0, "%d %d", i, j)
			assert.Equal(t, i == j, got == 0, "%d %d", i, j)
		}
	}
	assert.Equal(t, -7, best[5].Surplus())
	assert.Equal(t, 2, claim.Snapshot{IdleReady: 2, InflightCAS: 3}.Surplus(), "claims that are undone count in flight but not as requests")
}

// Compare is a strict weak order for all counters.
func TestCompareIsAnOrder(t *testing.T) {
	n := rapid.IntRange(0, 3)
	gen := rapid.Custom(func(t *rapid.T) claim.Snapshot {
		return claim.Snapshot{
			IdleReady: n.Draw(t, "idle"), QueueLen: n.Draw(t, "queue"), InflightCAS: n.Draw(t, "inflight"),
			LastDispatchAt: time.Unix(int64(n.Draw(t, "at")), 0),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := gen.Draw(t, "a"), gen.Draw(t, "b"), gen.Draw(t, "c")
		if claim.Compare(a, b) != -claim.Compare(b, a) {
			t.Fatal("not antisymmetric")
		}
		if claim.Compare(a, b) <= 0 && claim.Compare(b, c) <= 0 && claim.Compare(a, c) > 0 {
			t.Fatal("not transitive")
		}
	})
}

// Requests go to the pool with the largest surplus, ready slots first, then the shortest queue. If the best pool is
// full or shut down they go to another one.
func TestPools(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var pools claim.Pools
		for _, n := range []int{2, 5, 0} {
			pools = append(pools, newRig(t, &claim.Pool{Queue: 8, Source: store(&sim.StaleStore{Latency: ms}, names(n)...)}).run().Pool)
		}
		require.Same(t, pools[1], pools.Best())
		assert.Equal(t, []*claim.Pool{pools[1], pools[0], pools[2]}, pools.Ranked())
		c := make(chan claim.Result, 100)
		var went []int
		for range 10 {
			p := pools.Enqueue(&claim.Request{Result: c})
			went = append(went, slices.Index(pools, p))
			synctest.Wait()
		}
		assert.Equal(t, []int{1, 1, 1, 0, 1, 0, 1}, went[:7], "seven slots")
		slices.Sort(went[7:])
		assert.Equal(t, []int{0, 1, 2}, went[7:], "and one waits in each")
		for range 14 {
			require.NotNil(t, pools.Enqueue(&claim.Request{Result: c}))
		}
		pools[2].Shutdown()
		for range 100 {
			pools.Enqueue(&claim.Request{Result: c})
		}
		assert.Equal(t, 8, pools[0].Snapshot().QueueLen)
		assert.Equal(t, 8, pools[1].Snapshot().QueueLen)
		require.Nil(t, claim.Pools(nil).Best())
		require.Nil(t, claim.Pools(nil).Enqueue(&claim.Request{Result: c}))
	})
}
