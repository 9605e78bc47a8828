package orbit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// verdict is how a guarded call ended.
type verdict struct {
	err     error
	crashed bool // it panicked, exited or overran: nothing it did counts
}

// graceParts divides the limit of a call: within limit/graceParts after its context has ended, a call may return what
// it has so far without being late.
const graceParts = 10

// contain runs user code in a goroutine of its own, so that neither a panic nor runtime.Goexit nor a call that never
// returns reaches the caller. An error's Error method is user code too, so contain calls it in the same goroutine. If
// the call has not returned when the limit has passed or the outer context has ended, its verdict arrives on late.
func contain(outer context.Context, limit time.Duration, f func(context.Context) error) (v verdict, late <-chan verdict) {
	ctx, cancel := context.WithTimeout(outer, limit)
	done := make(chan verdict, 1)
	go guard.CallDeep(func() error { return guard.Said(f(ctx)) }, func(err error) {
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
		patience = 0 // its results are of no use
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

// plan asks the navigator. Past the deadline the engine goes on without it, and late results are dropped. It also
// returns the specs that fit nowhere. Finding them runs the navigator's own error methods, so the same guard applies.
func (e *Engine) plan(ctx context.Context, pending []*Capsule) (Plan, []misfitting, error) {
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
	unfit []misfitting
}

// misfitting is a spec of capsules that a plan leaves out.
type misfitting struct {
	spec *Spec
	// It fits nowhere, and not only has the navigator reasons of its own.
	nowhere bool
	// The domains that it is bound to, if every diagnosis has gone by the same.
	near *nearby
	// What a diagnosis rests on besides the nodes.
	rest rest
}

// unfit returns the specs of the capsules that are left out, each once.
func unfit(unplaced []Unplaced) (specs []misfitting) {
	at := map[*Spec]int{}
	for _, u := range unplaced {
		if u.Capsule == nil {
			continue
		}
		i, seen := at[u.Capsule.Spec]
		if !seen {
			i = len(specs)
			at[u.Capsule.Spec] = i
			specs = append(specs, misfitting{spec: u.Capsule.Spec})
		}
		var nofit *NoFit
		if !errors.As(u.Why, &nofit) {
			continue
		}
		m, was := &specs[i], specs[i].nowhere
		m.nowhere = true
		switch {
		case nofit == nil:
			m.near = nil
		case !was:
			m.near, m.rest = nofit.near, nofit.rest
		case m.near != nofit.near:
			m.near = nil
		}
	}
	return specs
}

// claim is the module and class that a navigator is asked to claim.
type claim struct {
	module string
	class  AppClass
}

// claims remembers a navigator's answers. Several engines of a population ask it at once; no call waits with
// the mutex held.
type claims struct {
	// Guards what follows.
	mu      sync.Mutex
	answers map[claim]*answer
	// A call that has overrun its deadline: until it returns, nothing new is claimed.
	late <-chan verdict
	// What went wrong, for the next round.
	faults []error
}

// answer is a navigator's answer, which is valid once done is closed.
type answer struct {
	done chan struct{}
	yes  bool
}

const (
	// claimTimeout is the deadline of one call of Claims, which should look at its arguments and no further.
	claimTimeout = time.Second
	// maxClaims is how many answers are remembered; beyond that they are asked for again.
	maxClaims = 1 << 16
)

// ask returns the navigator's answer, which is asked for once. A navigator that panics, exits or does not
// answer claims nothing.
func (e *Engine) ask(key claim) bool {
	a, first := e.claims.promise(key)
	if first {
		e.answer(key, a)
	}
	<-a.done
	return a.yes
}

// promise returns the answer to a claim, and whether the caller is the one to find it.
func (c *claims) promise(key claim) (a *answer, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.answers[key]; ok {
		return a, false
	}
	if c.answers == nil || len(c.answers) >= maxClaims {
		c.answers = map[claim]*answer{}
	}
	a = &answer{done: make(chan struct{})}
	c.answers[key] = a
	return a, true
}

// answer asks the navigator.
func (e *Engine) answer(key claim, a *answer) {
	defer close(a.done)
	if e.claims.busy() { // the answer is forgotten when that call returns
		e.claims.fault(fmt.Errorf("orbit: engine %q: Claims(%q, %v) is not asked: %w: an earlier call still runs", e.Name, key.module, key.class, ErrNavigator), nil)
		return
	}
	said := make(chan bool, 1)
	v, late := contain(context.Background(), claimTimeout, func(context.Context) error {
		said <- e.Navigator.Claims(key.module, key.class)
		return nil
	})
	if v.err != nil {
		e.claims.fault(fmt.Errorf("orbit: engine %q: Claims(%q, %v): %w", e.Name, key.module, key.class, v.err), late)
		return
	}
	a.yes = <-said
}

// recovered reports whether a call that had overrun has returned. It then forgets all answers, because some were given
// without the navigator while that call ran.
func (c *claims) recovered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late == nil {
		return false
	}
	select {
	case <-c.late:
		c.late, c.answers = nil, nil
		return true
	default:
		return false
	}
}

// busy reports whether a call has overrun and the engine has not recovered from it.
func (c *claims) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late != nil
}

// fault records an error for the next round, and the overrun call if it still runs.
func (c *claims) fault(err error, late <-chan verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) < maxErrors {
		c.faults = append(c.faults, err)
	}
	if late != nil {
		c.late = late
	}
}

// takeFaults returns the errors recorded since its last call.
func (c *claims) takeFaults() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := c.faults
	c.faults = nil
	return faults
}
