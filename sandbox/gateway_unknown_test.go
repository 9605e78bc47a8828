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
	"github.com/orbitsched/orbit/sandbox"
)

// lostUntil drops all proposals before an instant and returns no answer to them. It calls after for the first proposal
// that arrives.
func lostUntil(l orbit.Ledger, end time.Time, after func() error) func(context.Context, orbit.Proposal) (orbit.Revision, error) {
	return func(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
		if time.Now().Before(end) {
			return 0, fmt.Errorf("%w: the connection was lost", orbit.ErrUnknown)
		}
		if err := after(); err != nil {
			return 0, err
		}
		return l.Propose(ctx, p)
	}
}

// A create whose proposal never arrived does not touch the capsule that another caller has submitted under the same id
// meanwhile.
func TestGatewayUnknownAndAnotherCallersCapsule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 9, 1, 0)
		f.host("b", 9, 0, 0)
		g, l, _ := f.watched()
		submitted := false
		l.hook(lostUntil(f.ledger, time.Now().Add(time.Second), func() error {
			if !submitted {
				submitted = true
				commit(t, f.ledger, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: bootSpec(code)}, orbit.Place{Capsule: "c", Node: "b"})
			}
			return nil
		}))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := g.Create(ctx, "c", bootSpec(code))
		require.ErrorIs(t, err, orbit.ErrUnknown)
		require.NotErrorIs(t, err, sandbox.ErrLeftBehind)
		require.True(t, submitted)
		require.Equal(t, orbit.NodeID("b"), snapshot(t, f.ledger).Capsule("c").Node, "theirs runs on")
	})
}

// A ledger that is unavailable while a create whose outcome is unknown is undone is asked again until it answers.
func TestGatewayUnknownThenUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 9, 1, 0)
		g, l, _ := f.watched()
		away := 5
		l.hook(lostUntil(f.ledger, time.Now().Add(time.Second), func() error {
			if away--; away >= 0 {
				return fmt.Errorf("%w: no route", orbit.ErrUnavailable)
			}
			return nil
		}))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := g.Create(ctx, "c", bootSpec(code))
		require.ErrorIs(t, err, orbit.ErrUnknown)
		require.NotErrorIs(t, err, sandbox.ErrLeftBehind)
		require.Negative(t, away)
		require.Zero(t, f.live())
	})
}

// What a create took whose outcome turned out to be nothing is given back at once, in the books and on the board: the
// next create has it without a newer view.
func TestGatewayUnknownGivesBack(t *testing.T) {
	for _, applies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.host("a", 2, 1, 0)
			g, l, _ := f.watched()
			hook, _ := forgetful(f.ledger, applies, 20)
			l.hook(hook)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := g.Create(ctx, "c", bootSpec(code))
			require.ErrorIs(t, err, orbit.ErrUnknown)
			r, _ := f.board.Latest("a")
			require.Equal(t, []int{2, 1}, []int{r.FreeSlots, r.Warm[code]})
			l.hook(nil)
			require.True(t, f.create(g, "d").Promised, "the warm slot")
			require.False(t, f.create(g, "e").Promised)
			require.Equal(t, int64(1), l.snapshots.Load())
		})
	}
}

// The retry of a create is not refused on a view from before its first node failed, be that newer than the create.
func TestGatewayRetryAsksForAViewOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 9, 1, 0)
		g, l, _ := f.watched()
		f.create(g, "first")
		g.Start = func(_ context.Context, c sandbox.Created) (bool, error) {
			if c.Node == "b" {
				return true, nil
			}
			time.Sleep(time.Second)
			_, err := g.Create(context.Background(), "other", bootSpec("none")) // has the view refreshed
			require.ErrorIs(t, err, sandbox.ErrNoTemplate)
			f.host("b", 9, 1, 0)
			return false, errors.New("503")
		}
		made := f.create(g, "c")
		require.Equal(t, orbit.NodeID("b"), made.Node)
		require.True(t, made.Retried)
		require.Equal(t, int64(3), l.snapshots.Load())
	})
}

// Telemetry that has failed is not asked less often than a cache that is shorter says.
func TestGatewayDeafWithAShortCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 99, 3, 0)
		g, _, r := f.watched()
		g.Cache = 100 * time.Millisecond
		r.broken.Store(true)
		for i := range 5 {
			f.create(g, fmt.Sprint("c", i))
			require.Equal(t, int64(i+1), r.reports.Load())
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// Who asks while a create that has failed on its node looks for another one is told of himself: no slot is free. That the
// node has failed is said to the other one alone.
func TestGatewayRefusalsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1, 1, 0)
		g, l, _ := f.watched()
		l.snapshot = func(ctx context.Context) error { return sleepIn(ctx, time.Second) } // all wait for one view
		var others sync.WaitGroup
		g.Start = func(context.Context, sandbox.Created) (bool, error) {
			time.Sleep(time.Minute)
			f.report("a", 1, 1, 0)
			for i := range 20 {
				others.Go(func() {
					_, err := g.Create(context.Background(), orbit.CapsuleID(fmt.Sprint("y", i)), bootSpec(code))
					require.ErrorIs(t, err, sandbox.ErrNoSlot)
				})
			}
			time.Sleep(100 * time.Millisecond)
			return false, errors.New("503")
		}
		_, err := g.Create(context.Background(), "x", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrStart)
		require.ErrorIs(t, err, sandbox.ErrNoOther)
		others.Wait()
	})
}

// A node that has failed to start a sandbox is gone to last at once, also where the board is read from afar and what it
// knows shows later. The retry needs one more view: one that shows the capsule which it moves.
func TestGatewayShunsFromAfar(t *testing.T) {
	f := newFleet(t)
	f.host("a", 99, 18, 0)
	f.host("b", 99, 6, 0)
	g, l, _ := f.watched()
	var tried []orbit.NodeID
	g.Start = func(_ context.Context, c sandbox.Created) (bool, error) {
		if tried = append(tried, c.Node); c.Node == "a" {
			return false, errors.New("503")
		}
		return true, nil
	}
	f.create(g, "x")
	f.create(g, "y")
	require.Equal(t, []orbit.NodeID{"a", "b", "b"}, tried)
	require.Equal(t, int64(2), l.snapshots.Load())
}
