package orbit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// However long the back-off has grown, an engine plans again when a hold ends, to the nanosecond (SCENARIOS 25: every
// hold ends by itself).
func TestRestEndsWithAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		ends := time.Now().Add(90*time.Minute + 7)
		commit(t, l, PutNode{machine("n", 10)}, Hold{ID: "h", Node: "n", Room: Resources{CPU: 10}, Ends: ends})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		e := &Engine{Ledger: l, Navigator: &greedy{}, Backoff: Backoff{Max: 24 * time.Hour}}
		go func() { _ = e.Run(ctx) }()
		time.Sleep(time.Until(ends) - 1)
		synctest.Wait()
		_, lives := snapshotOf(t, l).Hold("h")
		assert.True(t, lives)
		time.Sleep(1)
		synctest.Wait()
		_, lives = snapshotOf(t, l).Hold("h")
		assert.False(t, lives)
		stop()
		synctest.Wait()
	})
}

// A class that was put aside is tried again when its bound has passed, and a bound shorter than the back-off
// does not make the engine spin.
func TestRestEndsWithAParkedClass(t *testing.T) {
	for _, parkFor := range []time.Duration{1, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l, nav := &MemoryLedger{}, &greedy{start: time.Now()}
			commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"big"}, Spec: wants(11)})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			e := &Engine{Ledger: l, Navigator: nav, ParkFor: parkFor, Backoff: Backoff{Max: 24 * time.Hour}}
			go func() { _ = e.Run(ctx) }()
			time.Sleep(65 * time.Second)
			synctest.Wait()
			if parkFor > time.Second {
				assert.Equal(t, []time.Duration{0, 30 * time.Second, 60 * time.Second}, nav.at)
			}
			assert.Less(t, len(nav.at), 20)
			stop()
			synctest.Wait()
		})
	}
}

// An engine that is stopped in the middle of a Plan says so, and does not blame the navigator.
func TestStoppedPlanIsNotTheNavigatorsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		ctx, stop := context.WithCancel(t.Context())
		gate := make(chan struct{})
		e := &Engine{Ledger: l, Navigator: planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
			<-gate
			return Plan{}, nil
		})}
		time.AfterFunc(time.Second, stop)
		round := e.Pass(ctx)
		err := errors.Join(round.Errors...)
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, ErrNavigator)
		close(gate)
	})
}

// distant is telemetry that takes a while to answer.
type distant struct{ board }

func (d *distant) Reports(ctx context.Context, after uint64) ([]Report, uint64, error) {
	select {
	case <-time.After(100 * time.Millisecond):
		return d.board.Reports(ctx, after)
	case <-ctx.Done():
		return nil, after, ctx.Err()
	}
}

// A rest that ends while the planes are being asked is no fault of theirs.
func TestRestDoesNotReportItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"big"}, Spec: wants(11)})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var errs []error
		e := &Engine{
			Ledger: l, Telemetry: &distant{}, Navigator: &greedy{start: time.Now()}, Backoff: Backoff{Jitter: -1},
			OnRound: func(r Round) { errs = append(errs, r.Errors...) },
		}
		go func() { _ = e.Run(ctx) }()
		for range 50 { // now and then one of these comes less than 100 ms before the end of a rest
			time.Sleep(170 * time.Millisecond)
			commit(t, l, PutNode{machine("n", 10)})
		}
		synctest.Wait()
		assert.Empty(t, errs)
		stop()
		synctest.Wait()
	})
}

// late is a ledger whose snapshots its engine has taken before something else was committed.
type late struct {
	*MemoryLedger
	first func()
}

func (l *late) ProposeBatch(ctx context.Context, batch []Proposal) []Outcome {
	if l.first != nil {
		l.first()
		l.first = nil
	}
	return l.MemoryLedger.ProposeBatch(ctx, batch)
}

// Two engines end the same hold: the second has lost nothing, and counts no conflict.
func TestHoldThatAnotherHasEndedIsNoConflict(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Hold{ID: "h", Node: "n", Room: Resources{CPU: 10}, Ends: time.Now().Add(-time.Second)})
	e := &Engine{Navigator: &greedy{start: time.Now()}, Ledger: &late{l, func() { commit(t, l, Release{Hold: "h"}) }}}
	r := e.Pass(t.Context())
	assert.Zero(t, r.Conflicts)
	assert.Zero(t, r.Proposed)
	assert.Empty(t, r.Errors)
	assert.Zero(t, e.Pass(t.Context()).Proposed, "it has seen that the hold is gone")
}

// What an engine has ended is in the view that the same pass plans on: a hold or a nomination that it has just ended stands
// in the way of nothing.
func TestPassPlansOnWhatItHasEnded(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(10)},
		Hold{ID: "h", Node: "n", Room: Resources{CPU: 10}, Ends: time.Now().Add(-time.Second)})
	e := &Engine{Ledger: l, Navigator: planFunc(func(_ context.Context, view *View, _ []*Capsule) (Plan, error) {
		_, held := view.State().Hold("h")
		assert.False(t, held)
		return Plan{}, nil
	})}
	assert.Equal(t, 1, e.Pass(t.Context()).Pending)
}
