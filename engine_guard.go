package orbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// verdict is how a guarded call ended.
type verdict struct {
	err     error
	crashed bool // it panicked, exited or overran, so its results are dropped
}

// graceParts sets the grace of a call. A call that returns within limit/graceParts after its deadline is not late: its
// results count.
const graceParts = 10

// contain runs user code in a goroutine of its own, so that the caller survives a panic, runtime.Goexit, and a call
// that never returns. The Error method of the returned error is user code too, so it is called in the same goroutine.
// If the call has not returned when the limit and the grace have passed, or when the outer context has ended, contain
// returns a verdict of its own, and the call's verdict arrives on the channel late. Else late is nil.
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

// plan calls the navigator's Plan. If Plan overruns its deadline, the engine goes on without it and drops its results
// when they arrive. plan also returns the specs of the capsules that the plan leaves out. Whether such a spec fits
// nowhere is found out by errors.As, which calls methods of the navigator's errors, so it runs under the same guard.
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
		m.evicts, m.kept = m.evicts || nofit != nil && nofit.evicts, m.kept || nofit != nil && nofit.kept
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

// takeFaults returns the errors recorded since it was last called.
func (c *claims) takeFaults() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := c.faults
	c.faults = nil
	return faults
}

// lawful returns the proposals of a plan that may be sent. It leaves out each proposal that does what its navigator may
// not do ([State.Offence]); the engine treats it as lost, and the round reports it. lawful returns copies, because the
// navigator may still change its own proposals. Pending lists the capsules that the navigator was given: they are its
// own, so they need not be looked up in the state.
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

// given answers whether a capsule is one of those that the navigator was given. Looking a capsule up in a large state
// causes several cache misses, while most plans name each given capsule once and many plans name them in the given
// order. So given first compares with the next capsule in that order.
type given struct {
	// The capsules that come next in the given order, as long as the questions follow that order.
	next []*Capsule
	// The ids of the capsules that were left when a question first departed from the order; nil: none has.
	ids map[CapsuleID]struct{}
}

// has reports whether a capsule is among the given ones. Ask once for each capsule: a second question about it may be
// answered with false.
func (g *given) has(id CapsuleID) bool {
	if g.ids == nil {
		if len(g.next) == 0 {
			return false
		}
		if g.next[0].ID == id {
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

// Offence returns the first act in a proposal of a plan that the plan's navigator may not do, as a *Rejection that
// wraps [ErrInvalid]; nil: there is none. An [Engine] does not send a proposal with an offence. The state must be that
// of the view on which the plan was made. Owns reports whether capsules with this owner and spec are the navigator's
// own: assigned to its engine, or assigned to no engine and claimed by the navigator.
//
// A plan may place, release, nominate and assign only work of its navigator. It may take other work off a node only by
// [Evict]: to make way for its own work that outranks the victim, or to place the victim again in the same proposal.
// The ledger judges both. It may end a nomination of other work only in a proposal that also makes a nomination of
// higher rank, on one of the same nodes or of a resource that the ended one claims.
//
// A plan says where work goes. It may not submit work, because with a high enough priority it could then evict anything:
// who may submit is a matter of access to the ledger. It may not say that a capsule has stopped, and may not change
// nodes, budgets and other records that are not work. It may make and release holds, and set marks, only under names
// that begin with [PlanPrefix], and may not delete a mark. It leaves the ids of its proposals to the engine, and their
// View is not newer than the state. Offence leaves to the ledger to judge capsules that are not in the state.
func (s *State) Offence(p Proposal, owns func(owner string, spec *Spec) bool) error {
	return s.offence(&p, &given{}, owns)
}

// PlanPrefix begins the ids of all holds and the keys of all marks that plans may use, so no plan touches the other ones,
// such as the terms of leases. All plans share these names: a navigator that keeps marks adds a word of its own, as in
// "plan/anchor/". Marks about work are for the navigator of that work alone: a plan may set "plan/capsule/KIND/ID" only
// if capsule ID is its navigator's, and "plan/gang/KIND/ID" only if a member of gang ID is, for any KIND without a slash.
const PlanPrefix = "plan/"

// offence is Offence for a navigator that was given some capsules, which are its own without a look at the state.
func (s *State) offence(p *Proposal, given *given, owns func(owner string, spec *Spec) bool) error {
	switch {
	case !p.ID.IsZero(): // it might be the id that another engine's next proposal has
		return s.offenceOf(-1, "", "sets the id of the proposal, which its engine sets")
	case p.View > s.rev: // the ledger would take it for aware of work that was submitted since, whose owner nobody has looked at
		return s.offenceOf(-1, "", fmt.Sprintf("View %d is newer than the view, which is at %d", p.View, s.rev))
	}
	t := tribunal{s, owns, given, p.Do, nil}
	for i, do := range p.Do {
		if id, why := t.offence(do); why != "" {
			return s.offenceOf(i, id, why)
		}
	}
	return nil
}

func (s *State) offenceOf(at int, id CapsuleID, why string) error {
	return &Rejection{Kind: ErrInvalid, Do: at, Capsule: id, Reason: why, At: s.rev}
}

// tribunal judges the commitments of one proposal, in their order.
type tribunal struct {
	s     *State
	owns  func(owner string, spec *Spec) bool
	given *given
	do    []Commitment
	// Capsules that the proposal evicts in order to place them again. It may place them, whoever owns them.
	moved map[CapsuleID]bool
}

// offence returns why the navigator may not make a commitment, and the capsule at fault; an empty why: it may.
func (t *tribunal) offence(do Commitment) (id CapsuleID, why string) {
	switch do := do.(type) {
	case Place:
		if t.moved[do.Capsule] {
			return "", ""
		}
		return do.Capsule, t.foreign(do.Capsule, "places")
	case Release:
		switch {
		case do.Hold != "":
			return "", unplanned("releases hold", string(do.Hold), "make and release only holds whose id")
		case do.Stopped:
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
	case Hold:
		return "", unplanned("makes hold", string(do.ID), "make and release only holds whose id")
	case Mark:
		return t.mismarked(&do)
	case Submit:
		return "", "submits work, which its owner does, not a plan"
	case PutNode, RemoveNode:
		return "", fmt.Sprintf("changes the constellation (%T)", do)
	}
	return "", fmt.Sprintf("holds a %T, which is not for a plan", do)
}

// unplanned returns why a plan may not do something to a hold or a mark: its name does not begin with PlanPrefix. Empty:
// it may. May names the holds or marks that a plan may use.
func unplanned(does, name, may string) string {
	if strings.HasPrefix(name, PlanPrefix) {
		return ""
	}
	return fmt.Sprintf("%s %q; a plan may %s begins with %q", does, name, may, PlanPrefix)
}

// mismarked returns why the navigator may not set or delete a mark; empty: it may.
func (t *tribunal) mismarked(do *Mark) (id CapsuleID, why string) {
	if why := unplanned("changes mark", do.Key, "change only marks whose key"); why != "" {
		return "", why
	}
	if do.Value == "" { // a bet (MarkAt) of a view from before it was first set would hold again
		return "", fmt.Sprintf("deletes mark %q; a plan may only set marks", do.Key)
	}
	about, name, _ := strings.Cut(do.Key[len(PlanPrefix):], "/")
	switch _, name, _ := strings.Cut(name, "/"); about {
	case "capsule":
		if id = CapsuleID(name); t.s.Capsule(id) == nil {
			return id, fmt.Sprintf("sets mark %q about a capsule that is not in its view", do.Key)
		}
		return id, t.foreign(id, "sets a mark about")
	case "gang":
		for c := range t.s.Members(GangID(name)) {
			if t.owns(c.Owner(), c.Spec) {
				return "", ""
			}
		}
		return "", fmt.Sprintf("sets mark %q about a gang of which no member is its own", do.Key)
	}
	return "", ""
}

// newcomers yields the capsules that an eviction makes way for: one capsule, or all members of a gang.
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

// misnominated returns why the navigator may not make or end a nomination; empty: it may. It may end a nomination of
// other work only in a proposal that also makes a nomination of higher rank, on one of the same nodes or of a resource
// that the ended one claims (makesWay).
func (t *tribunal) misnominated(do *Nominate) (id CapsuleID, why string) {
	switch {
	case len(do.Parts) == 0 && t.s.makesWay(do, t.do):
		return "", ""
	case do.Gang == "":
		return do.Capsule, t.foreign(do.Capsule, "nominates")
	case t.s.Gang(do.Gang) == nil:
		return "", fmt.Sprintf("nominates gang %q, which is not in its view", do.Gang)
	}
	for c := range t.s.Members(do.Gang) {
		if why := t.foreign(c.ID, "nominates"); why != "" {
			return c.ID, why
		}
	}
	return "", ""
}

// oversized returns why the navigator may not resize a capsule; empty: it may. It may neither change the priority nor
// report that the new size has been applied.
func (t *tribunal) oversized(do *Resize) string {
	if c := t.s.Capsule(do.Capsule); do.Applied || c != nil && do.Spec != nil && c.Spec.Priority != do.Spec.Priority {
		return fmt.Sprintf("says that capsule %q takes less already, or changes its priority, which is not for a plan", do.Capsule)
	}
	return t.foreign(do.Capsule, "resizes")
}

// foreign returns why the navigator may not do something to a capsule (does is the verb): the capsule is not its own.
// Empty: the capsule is its own, or is not in the state.
func (t *tribunal) foreign(id CapsuleID, does string) string {
	if t.given.has(id) {
		return ""
	}
	c := t.s.Capsule(id)
	switch {
	case c == nil || t.owns(c.Owner(), c.Spec):
		return ""
	case c.Owner() != "":
		return fmt.Sprintf("%s capsule %q, which is assigned to %q", does, id, c.Owner())
	}
	return fmt.Sprintf("%s capsule %q of module %q and class %v, which it does not claim", does, id, c.Spec.Module, c.Spec.Class)
}
