package orbit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// verdict is how a contained call ended.
type verdict struct {
	err     error
	crashed bool // it panicked, exited or overran: nothing it did counts
}

// graceParts is which part of its limit a call has to return in once its context has ended: one that does as
// told, with what it has so far, is not late.
const graceParts = 10

// contain runs user code in a goroutine of its own, so that neither a panic nor runtime.Goexit nor a call
// that never returns reaches the caller. The text of its error is user code too, and made here. If the call has not
// returned when the limit has passed or the outer context has ended, late is where its verdict will arrive.
func contain(outer context.Context, limit time.Duration, f func(context.Context) error) (v verdict, late <-chan verdict) {
	ctx, cancel := context.WithTimeout(outer, limit)
	done := make(chan verdict, 1)
	go guard.Call(func() error { return guard.Said(f(ctx)) }, func(err error) {
		crashed := guard.Crashed(err)
		if crashed {
			err = fmt.Errorf("%w: %w", ErrNavigator, err)
		}
		done <- verdict{err, crashed}
		cancel()
	})
	select {
	case v = <-done:
		return v, nil
	case <-ctx.Done():
	}
	patience := limit / graceParts
	if outer.Err() != nil {
		patience = 0 // nobody wants its results
	}
	grace := time.NewTimer(patience)
	defer grace.Stop()
	select {
	case v = <-done: // it returned when told to
		return v, nil
	case <-grace.C:
	}
	if err := outer.Err(); err != nil {
		return verdict{fmt.Errorf("it was given up, for the engine stops: %w", err), true}, done
	}
	return verdict{fmt.Errorf("%w: it has not returned after %v: %w", ErrNavigator, limit, ctx.Err()), true}, done
}

// plan asks the navigator. Past the deadline the engine goes on without it, and late results are dropped.
// It also returns the specs that fit nowhere; finding them runs the navigator's own error methods, and so is
// contained too.
func (e *Engine) plan(ctx context.Context, pending []*Capsule) (Plan, []*Spec, error) {
	plans := make(chan planned, 1)
	v, late := contain(ctx, e.planTimeout(), func(ctx context.Context) error {
		plan, err := e.Navigator.Plan(ctx, &e.view, pending)
		plans <- planned{plan, unfit(plan.Unplaced)}
		return err
	})
	e.late = late
	if v.err != nil {
		v.err = fmt.Errorf("orbit: engine %q: plan: %w", e.Name, v.err)
	}
	if v.crashed {
		return Plan{}, nil, v.err
	}
	p := <-plans
	return p.Plan, p.unfit, v.err // what it did plan counts, with an error too
}

// planned is a plan and the specs that it says fit nowhere.
type planned struct {
	Plan
	unfit []*Spec
}

// unfit returns the specs of the capsules that fit nowhere, each once.
func unfit(unplaced []Unplaced) (specs []*Spec) {
	seen := map[*Spec]bool{}
	for _, u := range unplaced {
		var nofit *NoFit
		if u.Capsule != nil && !seen[u.Capsule.Spec] && errors.As(u.Why, &nofit) {
			seen[u.Capsule.Spec] = true
			specs = append(specs, u.Capsule.Spec)
		}
	}
	return specs
}
