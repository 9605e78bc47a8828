package orbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// callResult is how a guarded call ended.
type callResult struct {
	err     error
	crashed bool // it panicked, exited or overran, so its results are dropped
}

// graceParts sets the grace of a call. A call that returns within limit/graceParts after its deadline is not late: its
// results count.
const graceParts = 10

// callGuarded runs user code in a goroutine of its own, so that the caller survives a panic, runtime.Goexit, and a call
// that never returns. The Error method of the returned error is user code too, so it is called in the same goroutine.
// If the call has not returned when the limit and the grace have passed, or when the outer context has ended, callGuarded
// returns a verdict of its own, and the call's verdict arrives on the channel late. Else late is nil.
func callGuarded(outer context.Context, limit time.Duration, f func(context.Context) error) (v callResult, late <-chan callResult) {
	ctx, cancel := context.WithTimeout(outer, limit)
	done := make(chan callResult, 1)
	go guard.CallDeep(func() error { return guard.Said(f(ctx)) }, func(err error) {
		crashed := guard.Crashed(err)
		if crashed {
			err = fmt.Errorf("%w: %w", ErrNavigator, err)
		}
		done <- callResult{err, crashed}
		cancel()
	})
	select {
	case v = <-done:
		return v, nil
	case <-ctx.Done():
	}
	patience := limit / graceParts
	if outer.Err() != nil {
		patience = 0 // the engine stops, so the results are not needed
	}
	grace := time.NewTimer(patience)
	defer grace.Stop()
	select {
	case v = <-done: // it returned within the grace
		return v, nil
	case <-grace.C:
	}
	if err := outer.Err(); err != nil {
		return callResult{fmt.Errorf("the engine stops and does not wait for the call: %w", err), true}, done
	}
	return callResult{fmt.Errorf("%w: the call has not returned after %v: %w", ErrNavigator, limit, ctx.Err()), true}, done
}

// plan calls the navigator's Plan. If Plan overruns its deadline, the engine goes on without it and drops its results
// when they arrive. plan also returns the specs of the capsules that the plan leaves out. Whether such a spec fits
// nowhere is found out by errors.As, which calls methods of the navigator's errors, so it runs under the same guard.
func (e *Engine) plan(ctx context.Context, pending []*Capsule) (Plan, []misfitting, error) {
	plans := make(chan planned, 1)
	v, late := callGuarded(ctx, e.planTimeout(), func(ctx context.Context) error {
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
	return p.Plan, p.unfit, v.err // the plan counts even if Plan returns an error with it
}

// planned is a plan, and the specs of the capsules that it leaves out.
type planned struct {
	Plan
	unfit []misfitting
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
		m.why = cmp.Or(m.why, u.Why)
		m.nowhere, m.ruled = true, m.ruled || nofit != nil && nofit.ruled
		m.quota, m.room = m.quota || nofit != nil && nofit.lack != nil, m.room || nofit == nil || nofit.lack == nil
		if nofit != nil {
			m.quota = m.quota || len(nofit.short) > 0
			for _, model := range nofit.short {
				if !slices.Contains(m.short, model) {
					m.short = append(m.short, model)
				}
			}
		}
		m.evicts, m.kept = m.evicts || nofit != nil && nofit.evicts, m.kept || nofit != nil && nofit.kept
		m.moves = m.moves || nofit != nil && nofit.moves
		switch {
		case nofit == nil:
			m.near = nil
		case !was:
			m.near, m.rest, m.count = nofit.near, nofit.rest, nofit.count
		case m.near != nofit.near:
			m.near = nil
		}
	}
	return specs
}

// claim is the pair of module and class for which a navigator is asked whether it claims capsules.
type claim struct {
	module string
	class  AppClass
}

// claims remembers what a navigator answers to Claims. Several engines of a population ask at once, so the mutex is
// never held during a call of the navigator.
type claims struct {
	// Guards what follows.
	mu      sync.Mutex
	answers map[claim]*answer
	// The verdict of a call that has overrun its deadline; nil: none has. Until it arrives, the navigator is not asked,
	// and pairs without an answer are not claimed.
	late <-chan callResult
	// Errors that the next round reports.
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
	// maxClaims is how many answers are remembered. With more, all are forgotten and the navigator is asked again.
	maxClaims = 1 << 16
)

// ask returns whether the navigator claims a module and class. The navigator is called once for each pair. The answer
// is no if that call panics, exits or overruns its deadline.
func (e *Engine) ask(key claim) bool {
	a, first := e.claims.promise(key)
	if first {
		e.answer(key, a)
	}
	<-a.done
	return a.yes
}

// promise returns the entry for the answer to a claim. If first is true, the caller must find the answer and close
// done; any other caller waits on done.
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

// answer calls the navigator and writes its answer into a.
func (e *Engine) answer(key claim, a *answer) {
	defer close(a.done)
	if e.claims.busy() { // the answer stays no until that call returns
		e.claims.fault(fmt.Errorf("orbit: engine %q: Claims(%q, %v) is not called: %w: an earlier call still runs",
			e.Name, key.module, key.class, ErrNavigator), nil)
		return
	}
	said := make(chan bool, 1)
	v, late := callGuarded(context.Background(), claimTimeout, func(context.Context) error {
		said <- e.Navigator.Claims(key.module, key.class)
		return nil
	})
	if v.err != nil {
		e.claims.fault(fmt.Errorf("orbit: engine %q: Claims(%q, %v): %w", e.Name, key.module, key.class, v.err), late)
		return
	}
	a.yes = <-said
}

// recovered reports whether a call that had overrun its deadline has returned since. If so, it forgets all answers,
// because some of them were given without asking the navigator while that call ran.
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

// busy reports whether a call has overrun and recovered has not yet seen it return.
func (c *claims) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late != nil
}

// fault records an error for the next round and, if late is not nil, the call that has overrun its deadline.
func (c *claims) fault(err error, late <-chan callResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) < maxErrors {
		c.faults = append(c.faults, err)
	}
	if late != nil {
		c.late = late
	}
}

// takeFaults returns the errors recorded since it was last called.
func (c *claims) takeFaults() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := c.faults
	c.faults = nil
	return faults
}

// permitted returns the proposals of a plan that may be sent. It leaves out each proposal that does what its navigator may
// not do ([State.JudgePlan]); the engine treats it as lost, and the round reports it. permitted returns copies, because the
// navigator may still change its own proposals. Pending lists the capsules that the navigator was given: they are its
// own, so they need not be looked up in the state.
func (e *Engine) permitted(plan []Proposal, pending []*Capsule, round *Round) []Proposal {
	plan = slices.Clone(plan)
	new(cloner).proposals(plan)
	at, given := -1, given{next: pending}
	return slices.DeleteFunc(plan, func(p Proposal) bool {
		at++
		err := e.view.state.offence(&p, &given, e.owns)
		if err == nil {
			return false
		}
		e.lost(&p, err)
		if round.Invalid++; round.Invalid <= maxErrors {
			round.Errors = append(round.Errors, fmt.Errorf("orbit: engine %q: proposal %d of the plan is not sent: %w", e.Name, at, err))
		}
		return true
	})
}
