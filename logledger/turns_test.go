package logledger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// crowd is some ledgers on one log, each with callers that commit one proposal after the other.
type crowd struct {
	stores  *logtest.Store
	handles []*logtest.Handle
	ledgers []*logledger.Ledger
	// commits and worst are the number of commits of each ledger, and the longest that one has taken.
	mu      sync.Mutex
	commits []int
	worst   time.Duration
}

// newCrowd opens a ledger for each round trip to the store.
func newCrowd(t *testing.T, trips ...time.Duration) *crowd {
	c := &crowd{stores: &logtest.Store{}, commits: make([]int, len(trips))}
	for _, trip := range trips {
		h := c.stores.Open(logtest.Faults{Latency: trip / 2})
		c.handles = append(c.handles, h)
		c.ledgers = append(c.ledgers, open(t, h, logledger.Options{OnError: func(error) {}}))
	}
	return c
}

// run lets the callers of some ledgers commit for a time.
func (c *crowd) run(ctx context.Context, callers int, d time.Duration, of ...int) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	for _, k := range of {
		for n := range callers {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					start := time.Now()
					place := orbit.Mark{Key: fmt.Sprint(k, "-", n, "-", i%4), Value: "x"}
					if _, err := c.ledgers[k].Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{place}}); err == nil {
						c.note(k, time.Since(start))
					}
				}
			})
		}
	}
	wg.Wait()
}

// note counts a commit.
func (c *crowd) note(k int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits[k]++
	c.worst = max(c.worst, took)
}

// fairness returns the commits of the slowest ledger, divided by those of the fastest.
func (c *crowd) fairness() float64 {
	least, most := c.commits[0], c.commits[0]
	for _, n := range c.commits {
		least, most = min(least, n), max(most, n)
	}
	return float64(least) / float64(most)
}

const ms = time.Millisecond

// TestTurns: ledgers that are equally far from the log commit equally much, whatever their load; one that is further away
// commits what its way allows; and hardly any append is lost.
func TestTurns(t *testing.T) {
	for _, callers := range []int{1, 16} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, ms, ms, ms, ms)
			c.run(t.Context(), callers, 2*time.Second, 0, 1, 2, 3)
			require.Greater(t, c.fairness(), 0.75, "%v", c.commits)
			require.Less(t, c.worst, 20*ms)
			total := 0
			for k, l := range c.ledgers {
				total += c.commits[k]
				require.Less(t, l.Stats().Lost, int64(5))
			}
			require.Greater(t, total, 2*850*callers, "commits in 2 s")
		})
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, ms, ms, ms, 10*ms)
			c.run(t.Context(), callers, 2*time.Second, 0, 1, 2, 3)
			require.Greater(t, c.commits[3], 2*30*callers, "of the one that is far away: one in 30 ms a caller; %v", c.commits)
			far := c.commits[3]
			c.commits[3] = c.commits[0]
			require.Greater(t, c.fairness(), 0.75, "of the others: %v", c.commits)
			require.Greater(t, c.commits[0], 4*far, "the others do not wait for it")
		})
	}
}

// TestAlone: a ledger that nobody else uses commits in one round trip, also after others have used it.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, ms, ms)
		c.run(t.Context(), 1, time.Second, 0)
		require.InDelta(t, 1000, c.commits[0], 10)
		c.run(t.Context(), 4, time.Second, 0, 1)
		c.commits[1] = 0
		c.run(t.Context(), 1, time.Second, 1)
		require.Greater(t, c.commits[1], 850)
		require.Less(t, c.ledgers[0].Stats().Lost+c.ledgers[1].Stats().Lost, int64(10))
	})
}

// TestTurnOfTheDead: a ledger that stops in its turn holds nobody up for long.
func TestTurnOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, ms, ms, ms)
		for k := range c.handles {
			c.run(t.Context(), 4, 200*ms, 0, 1, 2)
			c.handles[k].Pause()
			c.worst = 0
			c.run(t.Context(), 4, 400*ms, (k+1)%3, (k+2)%3)
			require.Less(t, c.worst, 60*ms)
			c.handles[k].Resume()
		}
	})
}
