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

// forgetful applies proposals, or not, and for so many of them does not say so.
func forgetful(l orbit.Ledger, applies bool, silent int) (hook func(context.Context, orbit.Proposal) (orbit.Revision, error), sent func() []orbit.Proposal) {
	var mu sync.Mutex
	var all []orbit.Proposal
	return func(ctx context.Context, p orbit.Proposal) (rev orbit.Revision, err error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, p)
		if applies || len(all) > silent {
			rev, err = l.Propose(context.WithoutCancel(ctx), p)
		}
		if len(all) <= silent {
			return 0, fmt.Errorf("%w: the connection was lost", orbit.ErrUnknown)
		}
		return rev, err
	}, func() []orbit.Proposal { return all }
}

// A ledger that does not answer is sent the same proposal again, which has one effect, until it does (SCENARIOS 4, I12).
func TestGatewayUnknownOutcome(t *testing.T) {
	for _, applies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.host("a", 99, 1, 0)
			g, l, _ := f.watched()
			hook, sent := forgetful(f.ledger, applies, 5)
			l.hook(hook)
			made := f.create(g, "c")
			require.Len(t, sent(), 6)
			for _, p := range sent() {
				require.Equal(t, sent()[0], p)
			}
			require.Equal(t, snapshot(t, f.ledger).Capsule("c").PlacedAt, made.Revision)
			require.Equal(t, uint64(1), g.Stats().Created)
		})
	}
}

// If the context ends first, the create says that the outcome is unknown, and leaves nothing, whether the proposal had
// arrived or not, and also when it arrives late. Its room can be had again.
func TestGatewayUnknownUntilTheContextEnds(t *testing.T) {
	for _, applies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.host("a", 1, 1, 0)
			g, l, _ := f.watched()
			hook, sent := forgetful(f.ledger, applies, 20)
			l.hook(hook)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			_, err := g.Create(ctx, "c", bootSpec(code))
			require.ErrorIs(t, err, orbit.ErrUnknown)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, sandbox.ErrLeftBehind)
			require.Less(t, time.Since(began), 11*time.Second)
			require.Zero(t, f.live())
			l.hook(nil)
			_, err = f.ledger.Propose(context.Background(), sent()[0]) // arrives late, once more
			require.NoError(t, err)
			require.Zero(t, f.live(), "it has one effect")
			require.NoError(t, g.Delete(context.Background(), "c"))
			f.create(g, "d")
		})
	}
}

// What cannot be undone within the bound is said to be left behind, and can be deleted later.
func TestGatewayLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1, 1, 0)
		g, l, _ := f.watched()
		g.CleanUp = 3 * time.Second
		hook, _ := forgetful(f.ledger, true, 1<<30)
		l.hook(hook)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := g.Create(ctx, "c", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrLeftBehind)
		require.ErrorIs(t, err, orbit.ErrUnknown)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Equal(t, 1, f.live())
		l.hook(nil)
		require.NoError(t, g.Delete(context.Background(), "c"))
		require.Zero(t, f.live())
		f.report("a", 1, 1, 0)
		f.create(g, "d") // a create without an outcome does not stay counted for ever
	})
}

// An unavailable ledger was sent nothing: the create ends at once, and what was given away for it can be had again
// (SCENARIOS 1, I6).
func TestGatewayUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1, 1, 0)
		g, l, _ := f.watched()
		l.hook(func(context.Context, orbit.Proposal) (orbit.Revision, error) {
			return 0, fmt.Errorf("%w: no route", orbit.ErrUnavailable)
		})
		began := time.Now()
		_, err := g.Create(context.Background(), "c", bootSpec(code))
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		require.ErrorContains(t, err, `sandbox: create "c": ledger unavailable: no route`)
		require.Zero(t, time.Since(began))
		require.Equal(t, int64(1), l.proposals.Load())
		r, _ := f.board.Latest("a")
		require.Equal(t, []int{1, 1}, []int{r.FreeSlots, r.Warm[code]}, "nor is it claimed on the board")
		l.hook(nil)
		made := f.create(g, "d")
		require.True(t, made.Promised)
		require.Equal(t, int64(1), l.snapshots.Load())
	})
}

// What was given away and came to nothing makes its node as good as it was, in the same view, though others have been
// told meanwhile that it is worse.
func TestGatewayGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 9, 1, 0)
		f.host("b", 20, 0, 0)
		g, l, _ := f.watched()
		gate := make(chan struct{})
		l.hook(func(context.Context, orbit.Proposal) (orbit.Revision, error) {
			<-gate
			return 0, orbit.ErrUnavailable
		})
		var first sync.WaitGroup
		first.Go(func() {
			_, err := g.Create(context.Background(), "c1", bootSpec(code))
			require.ErrorIs(t, err, orbit.ErrUnavailable)
		})
		synctest.Wait()
		l.hook(nil)
		require.Equal(t, orbit.NodeID("b"), f.create(g, "c2").Node, "a's warm slot is given away")
		close(gate)
		first.Wait()
		made := f.create(g, "c3")
		require.True(t, made.Node == "a" && made.Warm)
		require.Equal(t, int64(1), l.snapshots.Load())
	})
}

// After an outcome was unknown, that the ledger is unavailable proves nothing: it may have been committed. A
// conflict does: it was not.
func TestGatewayUnknownThenSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1, 1, 0)
		f.host("b", 1, 0, 0)
		g, l, _ := f.watched()
		answers := []error{orbit.ErrUnknown, orbit.ErrUnavailable, errors.New("what?")}
		l.hook(func(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
			if len(answers) > 0 {
				err := answers[0]
				answers = answers[1:]
				return 0, err
			}
			return f.ledger.Propose(ctx, p)
		})
		require.Equal(t, orbit.NodeID("a"), f.create(g, "c").Node)
		require.Empty(t, answers)

		answers = []error{orbit.ErrUnknown}
		g.Start = nil
		commit(t, f.ledger, orbit.Submit{IDs: []orbit.CapsuleID{"theirs"}, Spec: bootSpec(code)}, orbit.Place{Capsule: "theirs", Node: "b"})
		_, err := g.Create(context.Background(), "d", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrNoSlot)
		require.Equal(t, 2, f.live())
	})
}

// A create whose context ends, wherever it is then, leaves nothing behind: while it waits, while it proposes, while the
// node starts it, or between its two nodes.
func TestGatewayContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 99, 9, 0)
		f.host("b", 99, 5, 0)
		g, l, _ := f.watched()
		slow := func(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
			if err := sleepIn(ctx, 10*time.Millisecond); err != nil { // sent or not, who knows
				_, _ = f.ledger.Propose(context.Background(), p)
				return 0, fmt.Errorf("%w: %w", orbit.ErrUnknown, err)
			}
			return f.ledger.Propose(ctx, p)
		}
		l.hook(slow)
		l.snapshot = func(ctx context.Context) error { return sleepIn(ctx, 10*time.Millisecond) }
		failing := 0
		g.Start = func(ctx context.Context, c sandbox.Created) (bool, error) {
			if err := sleepIn(ctx, 10*time.Millisecond); err != nil {
				return false, err
			}
			if failing++; failing%2 == 1 {
				return false, errors.New("503")
			}
			return true, nil
		}
		// One that is not interrupted: view 10, propose 10, start 10, propose 10, start 10.
		made := f.create(g, "whole")
		require.True(t, made.Retried)
		require.Equal(t, 1, f.live())
		for ms := range 50 {
			time.Sleep(time.Minute) // a new view is due
			f.report("a", 99, 9, 0)
			f.report("b", 99, 5, 0)
			failing = 0
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
			_, err := g.Create(ctx, orbit.CapsuleID(fmt.Sprint("c", ms)), bootSpec(code))
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, "after %d ms", ms)
			require.NotErrorIs(t, err, sandbox.ErrLeftBehind)
			require.Equal(t, 1, f.live(), "after %d ms", ms)
		}
		require.NoError(t, snapshot(t, f.ledger).Verify())
	})
}

// A capsule that is deleted while its node fails is not placed again (SCENARIOS 20, I15).
func TestGatewayDeletedMeanwhile(t *testing.T) {
	f := newFleet(t)
	f.host("a", 99, 9, 0)
	f.host("b", 99, 5, 0)
	g := f.gateway()
	g.Start = func(ctx context.Context, c sandbox.Created) (bool, error) {
		require.NoError(t, g.Delete(ctx, c.Capsule))
		return false, errors.New("503")
	}
	_, err := g.Create(context.Background(), "c", bootSpec(code))
	require.ErrorIs(t, err, sandbox.ErrStart)
	require.ErrorIs(t, err, sandbox.ErrTaken)
	require.Zero(t, f.live())
}
