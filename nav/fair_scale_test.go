package nav_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/nav"
)

// cohorts are trees of queues with a backlog of three sizes of work, in the shapes of the generator with which Kueue measures
// itself: 70% small (1 core for 0.2 s, priority 50), 20% medium (5 cores for 0.5 s, 100), and 10% large (20 cores for 1 s, 200). Each
// queue has 20 cores and may borrow 100.
type cohorts struct{ trees, queues, work int }

var cohortSizes = []struct {
	name     string
	cores    int64
	lasts    time.Duration
	priority int32
	percent  int
}{{"small", 1, 200 * time.Millisecond, 50, 70}, {"medium", 5, 500 * time.Millisecond, 100, 20}, {"large", 20, time.Second, 200, 10}}

// allowed returns how long the work takes at least by the quotas.
func (c cohorts) allowed() (sum time.Duration) {
	for _, s := range cohortSizes {
		sum += time.Duration(c.work*s.percent/100) * time.Duration(s.cores) * s.lasts
	}
	return sum / 20
}

// submit makes nodes, queues and work, and returns how long each capsule runs.
func (c cohorts) submit(t require.TestingT, l orbit.Ledger) map[orbit.CapsuleID]time.Duration {
	lasts := map[orbit.CapsuleID]time.Duration{}
	for n := range (c.trees*c.queues*20 + 79) / 80 {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%04d", n)), Capacity: orbit.Resources{orbit.CPU: 100_000}}})
	}
	for tree := range c.trees {
		root := orbit.QueueID(fmt.Sprint("cohort-", tree))
		commit(t, l, queueOf(root, "", 0, 0))
		for q := range c.queues {
			put := queueOf(orbit.QueueID(fmt.Sprint(root, "/", q)), root, 20, 0)
			put.Queue.Borrow = map[string]int64{"cpu": 100_000}
			commit(t, l, put)
			for _, s := range cohortSizes {
				spec := inQueue(put.Queue.ID, s.cores, s.priority)
				spec.Class = orbit.Batch
				var ids []orbit.CapsuleID
				for i := range c.work * s.percent / 100 {
					ids = append(ids, orbit.CapsuleID(fmt.Sprint(put.Queue.ID, "/", s.name, "-", i)))
					lasts[ids[i]] = s.lasts
				}
				commit(t, l, orbit.Submit{IDs: ids, Spec: spec})
			}
		}
	}
	return lasts
}

type cohortEnd struct {
	at time.Time
	of orbit.CapsuleID
}

func (e cohortEnd) Before(o cohortEnd) bool { return e.at.Before(o.at) }

// drain runs the engine in virtual time until all work has run, ends each capsule when its time is over, and returns how long all
// took and how many passes there were.
func (c cohorts) drain(t *testing.T) (took time.Duration, passes int) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		lasts := c.submit(t, l)
		s, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		e := &orbit.Engine{Name: "fair", Ledger: l, Navigator: &nav.Fair{Navigator: &nav.Batch{}}, MaxPlan: 2000, OnRound: func(r orbit.Round) {
			passes++
			require.Zero(t, r.Infeasible)
			require.Empty(t, r.Errors)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		start := time.Now()
		go func() { done <- e.Run(ctx) }()
		var ends heap.Heap[cohortEnd]
		for seen, left := s.Revision(), len(lasts); left > 0; {
			wait := time.Hour
			if len(ends) > 0 {
				wait = time.Until(ends[0].at)
			}
			waiting, stop := context.WithTimeout(ctx, wait)
			_, _ = l.Wait(waiting, seen)
			stop()
			changes, err := l.Changes(ctx, seen)
			require.NoError(t, err)
			for _, change := range changes {
				if place, ok := change.Do.(orbit.Place); ok {
					ends.Push(cohortEnd{time.Now().Add(lasts[place.Capsule]), place.Capsule})
				}
				seen = change.Revision
			}
			var over []orbit.Commitment
			for len(ends) > 0 && !ends[0].at.After(time.Now()) {
				over = append(over, orbit.Release{Capsule: ends.Pop().of, Final: true})
			}
			if left -= len(over); len(over) > 0 {
				commit(t, l, over...)
			}
		}
		took = time.Since(start)
		cancel()
		require.NoError(t, <-done)
	})
	return took, passes
}

// TestFairDrainsCohorts checks that all work of a backlog is admitted, in at most 5% more time than the quotas allow it.
func TestFairDrainsCohorts(t *testing.T) {
	c := cohorts{2, 4, 100}
	took, passes := c.drain(t)
	t.Logf("%v in %v, allowed %v, in %d passes", c, took, c.allowed(), passes)
	require.LessOrEqual(t, took, c.allowed()*105/100)
}

// BenchmarkFairCohorts drains backlogs as large as those with which Kueue measures itself, and reports the decisions in a second. The
// numbers that Kueue publishes include an API server.
func BenchmarkFairCohorts(b *testing.B) {
	for _, c := range []cohorts{{5, 6, 500}, {10, 100, 50}} {
		b.Run(fmt.Sprintf("trees=%d/queues=%d/work=%d", c.trees, c.trees*c.queues, c.trees*c.queues*c.work), func(b *testing.B) {
			var l orbit.MemoryLedger
			lasts := c.submit(b, &l)
			e := &orbit.Engine{Name: "fair", Ledger: &l, Navigator: &nav.Fair{Navigator: &nav.Batch{}}, MaxPlan: 2000}
			b.ResetTimer()
			decisions, allowed := 0, c.allowed()
			var took time.Duration
			for range b.N {
				took = drainByHand(b, &l, e, lasts)
				decisions += len(lasts)
			}
			b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
			b.ReportMetric(float64(took)/float64(allowed), "makespan/allowed")
			runtime.KeepAlive(e)
		})
	}
}

// drainByHand drains a backlog by passes: when a pass commits nothing, the clock goes to the next end.
func drainByHand(b *testing.B, l orbit.Ledger, e *orbit.Engine, lasts map[orbit.CapsuleID]time.Duration) time.Duration {
	var ends heap.Heap[cohortEnd]
	start := time.Unix(0, 0)
	now, s, left := start, orbit.Revision(0), len(lasts)
	for left > 0 {
		for {
			round := e.Pass(context.Background())
			require.Zero(b, round.Infeasible)
			if round.Committed == 0 {
				break
			}
		}
		changes, err := l.Changes(context.Background(), s)
		require.NoError(b, err)
		for _, change := range changes {
			if place, ok := change.Do.(orbit.Place); ok {
				ends.Push(cohortEnd{now.Add(lasts[place.Capsule]), place.Capsule})
			}
			s = change.Revision
		}
		require.NotEmpty(b, ends, "%d left", left)
		var over []orbit.Commitment
		for now = ends[0].at; len(ends) > 0 && !ends[0].at.After(now); {
			over = append(over, orbit.Release{Capsule: ends.Pop().of, Final: true})
		}
		left -= len(over)
		commit(b, l, over...)
	}
	return now.Sub(start)
}
