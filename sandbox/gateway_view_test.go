package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sandbox"
)

// watched is a gateway of which every question to the planes is counted.
func (f *fleet) watched() (*sandbox.Gateway, *wire, *radio) {
	l, r := &wire{Ledger: f.ledger}, &radio{Telemetry: f.board}
	return &sandbox.Gateway{Ledger: l, Board: f.board, Telemetry: r}, l, r
}

// At 1,000 creates a second, ten at a time, each plane is asked for the same answer once in 30 s, to the nanosecond.
func TestGatewayAsksOncePerCache(t *testing.T) {
	scale.Long(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		for i := range 4 {
			f.host(fmt.Sprint("h", i), 16_384, i, float64(i))
		}
		g, l, r := f.watched()
		started := time.Now()
		var burst sync.WaitGroup
		for n := 0; time.Since(started) < 61*time.Second; n++ {
			if n%1000 == 0 { // heartbeats go on
				for i := range 4 {
					f.report(fmt.Sprint("h", i), 16_384-n, i, float64(i))
				}
			}
			for k := range 10 {
				burst.Go(func() { f.create(g, fmt.Sprint(n, "-", k)) })
			}
			burst.Wait()
			views := int64(time.Since(started)/(30*time.Second)) + 1
			require.Equal(t, []int64{views, views}, []int64{l.snapshots.Load(), r.reports.Load()}, "after %v", time.Since(started))
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, []int64{3, 3, 2}, []int64{l.snapshots.Load(), r.reports.Load(), l.changes.Load()})
		require.Equal(t, int64(61_000), l.proposals.Load())
		require.Equal(t, sandbox.GatewayStats{Created: 61_000, Warm: g.Stats().Warm, Cold: g.Stats().Cold, Refreshes: 3}, g.Stats())
	})
}

// What is planned on a view is in memory until the next one, so a view is replaced after 65,536 creates, however new it is.
func TestGatewayReplacesAViewThatIsFull(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	f := newFleet(t)
	f.host("h", 1<<20, 0, 0)
	g, l, r := f.watched()
	g.Cache, f.board.PerSecond = time.Hour, -1
	for n := range 3 << 16 {
		if n%1000 == 0 {
			f.report("h", 1<<20, n, 0)
		}
		id := fmt.Sprint(n)
		f.create(g, id)
		require.NoError(t, g.Delete(t.Context(), orbit.CapsuleID(id)))
		views := int64(n>>16) + 1
		require.Equal(t, []int64{views, views}, []int64{l.snapshots.Load(), r.reports.Load()}, "after %d creates", n+1)
	}
}

// Sixteen creates lose to another gateway at once, with receipts newer than the view. One refresh serves them all; none
// of them fails, and none is placed on a node that is full by now.
func TestGatewayRefreshesOnceForAllLosers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("best", 16, 16, 0)
		f.host("next", 99, 0, 0)
		g, l, r := f.watched()
		gate := make(chan struct{})
		l.hook(func(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
			<-gate
			return f.ledger.Propose(ctx, p)
		})
		var creates sync.WaitGroup
		for i := range 16 {
			creates.Go(func() { require.Equal(t, orbit.NodeID("next"), f.create(g, fmt.Sprint("c", i)).Node) })
		}
		synctest.Wait()
		commit(t, f.ledger, orbit.PutNode{Node: orbit.Node{ID: "best", Capacity: orbit.Resources{orbit.Slots: 16}, State: orbit.Cordoned}})
		close(gate)
		creates.Wait()
		require.Equal(t, []int64{2, 2, 32}, []int64{l.snapshots.Load(), r.reports.Load(), l.proposals.Load()})
		require.Equal(t, uint64(16), g.Stats().Conflicts)
		f.create(g, "one more")
		require.Equal(t, int64(2), l.snapshots.Load(), "what is not newer than the view does not call for another")
	})
}

// No create is refused on a view from before it came, however fresh the cache; and those that are refused share views,
// which come 10 ms apart.
func TestGatewayRefusesOnAFreshViewOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1, 0, 0)
		g, l, _ := f.watched()
		f.create(g, "c0")
		f.host("b", 1, 0, 0)
		require.Equal(t, orbit.NodeID("b"), f.create(g, "c1").Node)
		require.Equal(t, int64(2), l.snapshots.Load())

		time.Sleep(time.Second)
		before, began := l.snapshots.Load(), time.Now()
		var refused sync.WaitGroup
		for range 10 {
			for i := range 100 {
				refused.Go(func() {
					_, err := g.Create(context.Background(), orbit.CapsuleID(fmt.Sprint("x", i)), bootSpec(code))
					require.ErrorIs(t, err, sandbox.ErrNoSlot)
				})
			}
			time.Sleep(time.Millisecond)
		}
		refused.Wait()
		require.LessOrEqual(t, l.snapshots.Load()-before, int64(3), "for 1,000 that are refused within 10 ms")
		require.LessOrEqual(t, time.Since(began), 30*time.Millisecond)
		require.NoError(t, g.Delete(context.Background(), "c0"))
		f.report("a", 1, 0, 0)
		require.Equal(t, orbit.NodeID("a"), f.create(g, "c2").Node)
	})
}

// What has been chosen and not answered stays taken when the view is refreshed, so that the gateway does not bet twice on
// one slot. What the new view shows of it is not taken twice: the last slot can still be had.
func TestGatewayKeepsWhatIsInFlight(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied=", applied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.host("a", 2, 2, 0)
				f.host("b", 1, 0, 0)
				g, l, _ := f.watched()
				gate := make(chan struct{})
				l.hook(func(ctx context.Context, p orbit.Proposal) (rev orbit.Revision, err error) {
					if applied {
						rev, err = f.ledger.Propose(ctx, p)
					}
					<-gate
					if !applied {
						rev, err = f.ledger.Propose(ctx, p)
					}
					return rev, err
				})
				var flying sync.WaitGroup
				flying.Go(func() { require.Equal(t, "a", string(f.create(g, "flying").Node)) })
				synctest.Wait()
				l.hook(nil)
				time.Sleep(31 * time.Second) // the view is refreshed, and the node has not heard of it yet
				f.report("a", 2, 2, 0)
				f.report("b", 1, 0, 0)
				require.Equal(t, orbit.NodeID("a"), f.create(g, "second").Node)
				require.Equal(t, orbit.NodeID("b"), f.create(g, "third").Node)
				_, err := g.Create(context.Background(), "fourth", bootSpec(code))
				require.ErrorIs(t, err, sandbox.ErrNoSlot)
				close(gate)
				flying.Wait()
				require.Zero(t, g.Stats().Conflicts)
				require.Equal(t, 3, f.live())
			})
		})
	}
}

// Telemetry that fails leaves the view to serve on. It is asked again every second, and what it says is taken up then;
// meanwhile what was promised stays promised, though the ledger's part of the view goes on.
func TestGatewayServesOnWithoutTelemetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 99, 3, 0)
		f.host("b", 50, 1, 0)
		g, l, r := f.watched()
		require.Equal(t, "a", string(f.create(g, "c0").Node))
		r.broken.Store(true)
		time.Sleep(30 * time.Second)
		require.Equal(t, "a", string(f.create(g, "c1").Node))
		require.Equal(t, "a", string(f.create(g, "c2").Node))
		require.Equal(t, "b", string(f.create(g, "c3").Node), "two views on, all of a's three are still promised")
		require.Equal(t, []int64{2, 2}, []int64{l.snapshots.Load(), r.reports.Load()})
		time.Sleep(time.Second - 1)
		require.False(t, f.create(g, "c4").Promised)
		require.Equal(t, int64(2), r.reports.Load())
		r.broken.Store(false)
		f.report("b", 50, 7, 0)
		time.Sleep(1)
		require.Equal(t, "b", string(f.create(g, "c5").Node))
		require.Equal(t, int64(3), r.reports.Load())
		time.Sleep(29 * time.Second)
		f.create(g, "c6")
		require.Equal(t, int64(3), r.reports.Load(), "the cache lasts as ever")
		require.Equal(t, uint64(1), g.Stats().Partitions)
	})
}

// lagging is a ledger whose snapshots are those of a mirror that has some way to go.
type lagging struct {
	orbit.Ledger
	mu    sync.Mutex
	shown *orbit.State
	lag   int
}

func (l *lagging) Snapshot(ctx context.Context) (*orbit.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lag--; l.lag < 0 || l.shown == nil {
		s, err := l.Ledger.Snapshot(ctx)
		l.shown = s
		return s, err
	}
	return l.shown, nil
}

// A view that a receipt calls for is waited for, where snapshots lag behind.
func TestGatewayWaitsForAViewAsNewAsTheReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1, 1, 0)
		f.host("b", 9, 0, 0)
		l := &lagging{Ledger: f.ledger}
		g := &sandbox.Gateway{Ledger: l, Board: f.board}
		f.create(g, "c0")
		require.NoError(t, f.gateway().Delete(context.Background(), "c0"))
		f.report("a", 1, 1, 0)
		time.Sleep(30 * time.Second)
		f.report("a", 1, 1, 0)
		f.report("b", 9, 0, 0)
		_, err := g.Create(context.Background(), "x", bootSpec("none")) // a fresh view, in which a is free
		require.ErrorIs(t, err, sandbox.ErrNoTemplate)
		commit(t, f.ledger, orbit.Submit{IDs: []orbit.CapsuleID{"theirs"}, Spec: bootSpec(code)}, orbit.Place{Capsule: "theirs", Node: "a"})
		l.lag = 5
		began := time.Now()
		require.Equal(t, orbit.NodeID("b"), f.create(g, "c1").Node)
		require.GreaterOrEqual(t, time.Since(began), 5*time.Millisecond, "it does not ask without a pause")
		require.Equal(t, uint64(1), g.Stats().Conflicts)
		require.Negative(t, l.lag)
	})
}

// What has been committed stays taken for as long as the view does not show it, also in a new view.
func TestGatewayRemembersWhatAViewDoesNotShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1, 9, 0)
		f.host("b", 9, 0, 0)
		l := &lagging{Ledger: f.ledger}
		g := &sandbox.Gateway{Ledger: l, Board: f.board}
		require.Equal(t, orbit.NodeID("a"), f.create(g, "c0").Node)
		time.Sleep(30 * time.Second)
		f.report("a", 9, 9, 0) // it says so, and the ledger's mirror does not know better
		f.report("b", 9, 0, 0)
		l.lag = 1
		require.Equal(t, orbit.NodeID("b"), f.create(g, "c1").Node)
		require.Zero(t, g.Stats().Conflicts)
		require.Zero(t, l.lag)
	})
}

// A ledger that cannot show its state fails the creates that wait for it, all with its error; a context that ends fails
// its own create only.
func TestGatewayViewErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 99, 1, 0)
		g, l, _ := f.watched()
		down := fmt.Errorf("%w: no route", orbit.ErrUnavailable)
		l.snapshot = func(ctx context.Context) error { return errors.Join(sleepIn(ctx, time.Second), down) }
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				_, err := g.Create(context.Background(), orbit.CapsuleID(fmt.Sprint("c", i)), bootSpec(code))
				require.ErrorIs(t, err, orbit.ErrUnavailable)
			})
		}
		all.Wait()
		require.Equal(t, int64(1), l.snapshots.Load())

		l.snapshot = func(ctx context.Context) error { return sleepIn(ctx, time.Second) }
		short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		all.Go(func() {
			_, err := g.Create(short, "short", bootSpec(code))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		all.Go(func() { f.create(g, "long") })
		all.Go(func() {
			_, err := g.Create(short, "waits", bootSpec(code))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		all.Wait()
		require.Equal(t, 1, f.live())
	})
}

// A cache that is shorter than a refresh takes does not keep a create waiting for ever: a view from after it came will do.
func TestGatewayCacheShorterThanARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 99, 1, 0)
		g, l, _ := f.watched()
		g.Cache = time.Nanosecond
		l.snapshot = func(ctx context.Context) error { return sleepIn(ctx, time.Second) }
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() { f.create(g, fmt.Sprint("c", i)) })
		}
		all.Wait()
		require.LessOrEqual(t, l.snapshots.Load(), int64(2))
	})
}

func sleepIn(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
