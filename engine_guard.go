package orbit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// verdict is how a guarded call ended.
type verdict struct {
	err     error
	crashed bool // it panicked, exited or overran, so its results are dropped
}

// graceParts sets the grace of a call: a call that returns within limit/graceParts after its context has ended is not late, and
// what it returns counts.
const graceParts = 10

// contain runs user code in a goroutine of its own, so that the caller survives a panic, runtime.Goexit, and a call that never
// returns. An error's Error method is user code too, so contain calls it in the same goroutine. If the call has not returned
// when the limit and the grace have passed, or when the outer context has ended, contain returns without it, and its verdict
// arrives on late.
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
		return verdict{fmt.Errorf("the engine stops and does not wait for the call: %w", err), true}, done
	}
	return verdict{fmt.Errorf("%w: the call has not returned after %v: %w", ErrNavigator, limit, ctx.Err()), true}, done
}

// plan calls the navigator's Plan. Past the deadline the engine goes on without it, and drops its results when they arrive. It
// also returns the specs of what the plan leaves out. To find out which of them fit nowhere calls the navigator's own error
// methods, so that is done under the same guard.
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
	return p.Plan, p.unfit, v.err // what was planned counts, also if Plan has returned an error
}

// planned is a plan, and the specs of what it leaves out.
type planned struct {
	Plan
	unfit []misfitting
}

// misfitting is a spec of capsules that a plan leaves out.
type misfitting struct {
	spec *Spec
	// The plan says by a *NoFit that it fits on no node. False: the navigator leaves it out for other reasons.
	nowhere bool
	// The domains to which it is bound, if every NoFit of it names the same; nil: they differ, or there are none.
	near  *nearby
	ruled bool // rules of company may have closed domains to it
	rest  rest // what the NoFit depends on besides the nodes
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
		m.nowhere, m.ruled = true, m.ruled || nofit != nil && nofit.ruled
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

// claim is a module and a class: a navigator is asked whether it claims capsules with both.
type claim struct {
	module string
	class  AppClass
}

// claims remembers what a navigator answers to Claims. Several engines of a population ask at once, so the mutex is never held
// during a call of the navigator.
type claims struct {
	// Guards what follows.
	mu      sync.Mutex
	answers map[claim]*answer
	// A call that has overrun its deadline; nil: none has. Until it returns, the navigator is not asked and claims nothing new.
	late <-chan verdict
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

// ask returns whether the navigator claims a module and class. The navigator is called once for each. If that call panics, exits
// or does not return in time, the answer is no.
func (e *Engine) ask(key claim) bool {
	a, first := e.claims.promise(key)
	if first {
		e.answer(key, a)
	}
	<-a.done
	return a.yes
}

// promise returns the answer to a claim. If first is true the answer is not there yet, and the caller has to find it.
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

// answer calls the navigator and enters what it says into a.
func (e *Engine) answer(key claim, a *answer) {
	defer close(a.done)
	if e.claims.busy() { // the answer no holds until that call returns
		e.claims.fault(fmt.Errorf("orbit: engine %q: Claims(%q, %v) is not called: %w: an earlier call still runs",
			e.Name, key.module, key.class, ErrNavigator), nil)
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

// recovered reports whether a call that had overrun has returned since. It then forgets all answers, because some were given while
// that call ran, without asking the navigator.
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

// fault records an error for the next round, and the call that has overrun, if one has.
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

// takeFaults returns the errors that were recorded since it was last called.
func (c *claims) takeFaults() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := c.faults
	c.faults = nil
	return faults
}

// lawful returns those proposals of a plan that may be sent. The others do something that their navigator may not do
// ([State.Offence]); they count as lost, and the round reports them. It returns copies, because the navigator may still change
// its own proposals. Pending is what the navigator was given, which is its own work, and is not looked up in the state.
func (e *Engine) lawful(plan []Proposal, pending []*Capsule, round *Round) []Proposal {
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

// given is the capsules that a navigator was given. A look at a capsule in a large state misses the processor's caches several times, and
// most plans ask once about each capsule, many in the order in which they were given.
type given struct {
	// Those that have not been asked about, as long as all are asked about in their order.
	next []*Capsule
	// The ids of all that were left when that order ended; nil: it has not.
	ids map[CapsuleID]struct{}
}

// has reports whether a capsule is among them. It may forget one that it has found.
func (g *given) has(id CapsuleID) bool {
	if g.ids == nil {
		if len(g.next) > 0 && g.next[0].ID == id {
			g.next = g.next[1:]
			return true
		}
		g.ids = make(map[CapsuleID]struct{}, len(g.next))
		for _, c := range g.next {
			g.ids[c.ID] = struct{}{}
		}
	}
	_, has := g.ids[id]
	return has
}

// Offence returns the first thing that a proposal of a plan does and its navigator may not do, as a *Rejection that wraps
// [ErrInvalid]; nil: there is none. An [Engine] does not send a proposal with an offence. The state is that of the view on which
// was planned. Owns reports whether capsules with this owner and spec are the navigator's: assigned to its engine, or assigned
// to none and claimed by the navigator.
//
// A plan may place, release, nominate and assign only work of its navigator. It may take work of others off a node only by
// [Evict]: to make way for work that outranks it, or to place it again by the same proposal; the ledger judges both. It may end a
// nomination of others only by a proposal that makes one of higher rank, on one of its nodes or of a resource that it claims. A plan may
// not say that something has stopped, and may not change nodes, budgets and other records that are no work. Capsules that are
// not in the state are left to the ledger to judge, and so are holds, because nothing shows to whom a hold belongs.
func (s *State) Offence(p Proposal, owns func(owner string, spec *Spec) bool) error {
	return s.offence(&p, &given{}, owns)
}

// offence is Offence for a navigator that was given some capsules, which are its own.
func (s *State) offence(p *Proposal, given *given, owns func(owner string, spec *Spec) bool) error {
	t := tribunal{s, owns, given, p.Do, nil}
	for i, do := range p.Do {
		if id, why := t.offence(do); why != "" {
			return &Rejection{Kind: ErrInvalid, Do: i, Capsule: id, Reason: why, At: s.rev}
		}
	}
	return nil
}

// tribunal judges the commitments of one proposal, in their order.
type tribunal struct {
	s     *State
	owns  func(owner string, spec *Spec) bool
	given *given
	do    []Commitment
	// Capsules that the proposal evicts to place them again: it may place them, whosever they are.
	moved map[CapsuleID]bool
}

// offence returns why a commitment is an offence, and the capsule that it is about; an empty why: it is none.
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
		if t.moved == nil {
			t.moved = map[CapsuleID]bool{}
		}
		if t.moved[do.Capsule] = do.For == "" && do.ForGang == ""; t.moved[do.Capsule] {
			return "", ""
		}
		for id := range t.newcomers(&do) {
			if why := t.foreign(id, "evicts others for"); why != "" {
				return id, why
			}
		}
		if c := t.s.Capsule(do.Capsule); c != nil {
			if why := t.s.outranked(&do, c); why != "" {
				return do.Capsule, fmt.Sprintf("evicts capsule %q of priority %d for %s: %s", do.Capsule, c.Spec.Priority, do.cause(), why)
			}
		}
		return "", ""
	case Assign:
		return do.Capsule, t.foreign(do.Capsule, "assigns")
	case Protect:
		if do.For == 0 {
			return do.Capsule, fmt.Sprintf("ends the protection of capsule %q, which engines do", do.Capsule)
		}
		return do.Capsule, t.foreign(do.Capsule, "protects")
	case Nominate:
		return t.misnominated(&do)
	case Resize:
		return do.Capsule, t.oversized(&do)
	case Submit, Hold, Mark:
		return "", ""
	case PutNode, RemoveNode:
		return "", fmt.Sprintf("changes the constellation (%T)", do)
	}
	return "", fmt.Sprintf("holds a %T, which is not for a plan", do)
}

// newcomers yields those that an eviction makes way for.
func (t *tribunal) newcomers(do *Evict) iter.Seq[CapsuleID] {
	return func(yield func(CapsuleID) bool) {
		if do.For != "" && !yield(do.For) {
			return
		}
		for c := range t.s.Members(do.ForGang) {
			if !yield(c.ID) {
				return
			}
		}
	}
}

// misnominated returns why the navigator may not make or end a nomination; empty: it may. It may end a nomination of others' work
// only by a proposal that also makes one which outranks it and to which it leaves room.
func (t *tribunal) misnominated(do *Nominate) (id CapsuleID, why string) {
	switch {
	case len(do.Parts) == 0 && t.s.makesWay(do, t.do):
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

// oversized returns why the navigator may not resize a capsule; empty: it may.
func (t *tribunal) oversized(do *Resize) string {
	if c := t.s.Capsule(do.Capsule); do.Applied || c != nil && do.Spec != nil && c.Spec.Priority != do.Spec.Priority {
		return fmt.Sprintf("says that capsule %q takes less already, or changes its priority, which is not for a plan", do.Capsule)
	}
	return t.foreign(do.Capsule, "resizes")
}

// foreign returns why the navigator may not do something (the verb in does) to a capsule: because it is not its own. Empty: the
// capsule is its own, or is not in the state.
func (t *tribunal) foreign(id CapsuleID, does string) string {
	if t.given.has(id) {
		return ""
	}
	c := t.s.Capsule(id)
	switch {
	case c == nil || t.owns(c.Owner, c.Spec):
		return ""
	case c.Owner != "":
		return fmt.Sprintf("%s capsule %q, which is assigned to %q", does, id, c.Owner)
	}
	return fmt.Sprintf("%s capsule %q of module %q and class %v, which it does not claim", does, id, c.Spec.Module, c.Spec.Class)
}
