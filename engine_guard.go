package orbit

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// lawful returns copies of those proposals of a plan that may be sent, because a navigator may change its own when it likes. The
// others are lost: they do what is not for the navigator to do.
func (e *Engine) lawful(plan []Proposal, round *Round) []Proposal {
	plan = slices.Clone(plan)
	new(cloner).proposals(plan)
	at := -1
	return slices.DeleteFunc(plan, func(p Proposal) bool {
		at++
		err := e.view.state.Offence(p, e.owns)
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

// Offence returns what a proposal of a plan does that is not for its navigator to do, as a *Rejection that wraps [ErrInvalid]; nil:
// nothing. An [Engine] does not send such a proposal. The state is that of the view that was planned on, and owns reports whether
// capsules with this owner and spec are the navigator's: assigned to its engine, or to none and claimed by it.
//
// A plan places, releases, nominates and assigns only what is its own. Work of others it takes off a node by [Evict] alone: to make way for
// work of its own that outranks it, or to place it again, as far as the ledger lets it. It does not say that
// something has stopped, and puts nothing that is not work: nodes, say. What is not in the state is left to the ledger, as is whose a
// hold is, which nothing shows.
func (s *State) Offence(p Proposal, owns func(owner string, spec *Spec) bool) error {
	t := tribunal{s, owns, p.Do, map[CapsuleID]bool{}}
	for i, do := range p.Do {
		if id, why := t.offence(do); why != "" {
			return &Rejection{Kind: ErrInvalid, Do: i, Capsule: id, Reason: why, At: s.rev}
		}
	}
	return nil
}

// tribunal judges whose the work is that a proposal touches.
type tribunal struct {
	s    *State
	owns func(owner string, spec *Spec) bool
	do   []Commitment
	// What has been taken off its node to be placed again.
	moved map[CapsuleID]bool
}

// offence returns what is wrong with a commitment, and with which capsule; empty: nothing is.
func (t *tribunal) offence(do Commitment) (id CapsuleID, why string) {
	switch do := do.(type) {
	case Place:
		if t.moved[do.Capsule] {
			return "", ""
		}
		return do.Capsule, t.foreign(do.Capsule, "places")
	case Release:
		if do.Stopped {
			return do.Capsule, fmt.Sprintf("says that capsule %q has stopped, which the agent of its node would say", do.Capsule)
		}
		return do.Capsule, t.foreign(do.Capsule, "releases")
	case Evict:
		if t.moved[do.Capsule] = do.For == "" && do.ForGang == ""; t.moved[do.Capsule] {
			return "", ""
		}
		if c := t.s.Capsule(do.Capsule); c != nil {
			if why := t.s.outranked(&do, c); why != "" {
				return do.Capsule, fmt.Sprintf("evicts capsule %q of priority %d for %s: %s", do.Capsule, c.Spec.Priority, do.cause(), why)
			}
		}
		return "", ""
	case Assign:
		return do.Capsule, t.foreign(do.Capsule, "assigns")
	case Nominate:
		return t.misnominated(&do)
	case Submit, Hold, Mark:
		return "", ""
	case PutNode, RemoveNode:
		return "", fmt.Sprintf("changes the constellation (%T)", do)
	}
	return "", fmt.Sprintf("holds a %T, which is not for a plan", do)
}

// misnominated returns why a nomination may not be made or ended; empty: it may. A nomination of others may be ended only by a
// proposal that makes one in its place.
func (t *tribunal) misnominated(do *Nominate) (id CapsuleID, why string) {
	makes := func(c Commitment) bool { n, ok := c.(Nominate); return ok && len(n.Parts) > 0 }
	switch {
	case len(do.Parts) == 0 && slices.ContainsFunc(t.do, makes):
		return "", ""
	case do.Gang == "":
		return do.Capsule, t.foreign(do.Capsule, "nominates")
	}
	for c := range t.s.Members(do.Gang) {
		if why := t.foreign(c.ID, "nominates"); why != "" {
			return c.ID, why
		}
	}
	return "", ""
}

// foreign returns whose a capsule is; empty: it is the navigator's, or not in the state.
func (t *tribunal) foreign(id CapsuleID, does string) string {
	c := t.s.Capsule(id)
	switch {
	case c == nil || t.owns(c.Owner, c.Spec):
		return ""
	case c.Owner != "":
		return fmt.Sprintf("%s capsule %q, which is assigned to %q", does, id, c.Owner)
	}
	return fmt.Sprintf("%s capsule %q of module %q and class %v, which it does not claim", does, id, c.Spec.Module, c.Spec.Class)
}
