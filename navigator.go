package orbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit/internal/rate"
)

// Navigator is a scheduler. It answers two questions: which pending capsules are mine, and where should they go? It
// plans on its own view and proposes; it never talks to another navigator. An [Engine] runs it.
type Navigator interface {
	// Claims reports whether pending capsules of this module and class that are assigned to no engine are this
	// navigator's. It must always give the same answer for a pair, and is asked once for each pair. A call may take 1
	// s.
	Claims(module string, class AppClass) bool
	// Plan proposes placements for pending capsules, which are sorted by priority, the highest first. The view and the
	// capsules are read-only and valid until Plan returns. Plan must return when ctx ends.
	//
	// A pass hands over at most MaxPlan capsules, and none of a class that is parked. So pending may have only some
	// members of a gang: the others are in State.Members.
	Plan(ctx context.Context, view *View, pending []*Capsule) (Plan, error)
}

// Plan is the result of [Navigator].Plan.
type Plan struct {
	// Proposals are sent in this order. The engine sets their ID, so leave it zero: a proposal with an id is not sent.
	// Their View, and At of their placements and releases, may be left zero; then the engine sets them too. What else a
	// plan may not do, [State.Offence] says.
	Proposals []Proposal
	// Unplaced lists the capsules that the plan does not place, with reasons.
	Unplaced []Unplaced
	// Notes are measurements of the navigator, which the engine copies to Round.Notes.
	Notes []slog.Attr
}

// maySilence reports whether a plan may leave out some of the capsules that the navigator was given without a reason.
func (p *Plan) maySilence(given int) bool {
	left := given - len(p.Unplaced)
	if len(p.Proposals) >= left { // nearly all proposals place one capsule or more
		return false
	}
	p.eachPlace(func(*Place) { left-- })
	return left > 0
}

// eachPlace calls f with each placement of the plan.
func (p *Plan) eachPlace(f func(*Place)) {
	for i := range p.Proposals {
		for _, do := range p.Proposals[i].Do {
			if place, ok := do.(Place); ok {
				f(&place)
			}
		}
	}
}

// complete sets the fields that a plan may leave zero, and the id, unless the engine has set it before and sends the
// proposal again. It requires that p shares no slice with the plan.
func (p *Proposal) complete(ids *idSource, view Revision, now Instant) {
	if p.ID.IsZero() {
		p.ID = ids.next()
	}
	if p.View == 0 {
		p.View = view
	}
	for i, do := range p.Do {
		switch do := do.(type) {
		case Place:
			if do.At == 0 {
				do.At = now
				p.Do[i] = do
			}
		case Release:
			if do.At == 0 && do.Hold == "" && !do.Final {
				do.At = now
				p.Do[i] = do
			}
		}
	}
}

// Unplaced is a capsule for which a plan has no place. As an error it is what a [Population] reports for a capsule that
// none of its engines plans.
type Unplaced struct {
	// Capsule is the capsule that has no place.
	Capsule *Capsule
	// Why is the reason. A *NoFit parks the capsule's class until a change could help it: a node offers more, members
	// of Spec.Near.Group or Spec.Start.Parent are placed or leave, a proposal of the same plan is refused, or
	// Engine.ParkFor has passed. Do not give a *NoFit, or an error that wraps one, for a member of a gang: it would
	// park the class of one role, and the next passes would hand over the other roles without it.
	Why error
}

// Error names the capsule and the reason.
func (u Unplaced) Error() string {
	if u.Capsule == nil {
		return fmt.Sprintf("no capsule is not placed: %v", u.Why)
	}
	return fmt.Sprintf("capsule %q is not placed: %v", u.Capsule.ID, u.Why)
}

// Unwrap returns the reason.
func (u Unplaced) Unwrap() error { return u.Why }

// Round is what one pass of an engine did.
type Round struct {
	// Engine is the name of the engine.
	Engine string
	// View is the revision of the view that the pass planned on.
	View Revision
	// Pending counts the capsules that the pass gave to the navigator.
	Pending int
	// Proposed counts the proposals that were sent: those of the plan, those sent again because their outcome was
	// unknown, and the ends of holds, protections and nominations, except for ends that another engine has committed
	// first.
	Proposed int
	// Committed counts the proposals that were committed.
	Committed int
	// Conflicts counts the proposals that lost to another commit; their capsules are planned again in the next pass.
	Conflicts int
	// Infeasible counts the proposals that did not hold in their own view. If this rises pass after pass, the navigator
	// is wrong.
	Infeasible int
	// Invalid counts the proposals that were malformed, and those that were not sent because they do what their
	// navigator may not do ([State.Offence]).
	Invalid int
	// Unknown counts the proposals without a known outcome; they are sent again in the next pass.
	Unknown int
	// Failed counts the proposals that failed because the ledger was unavailable, or with any other error.
	Failed int
	// Unplaced lists the capsules that the plan did not place, with reasons.
	Unplaced []Unplaced
	// Parked counts the classes that are parked because they fit nowhere.
	Parked int
	// Notes are the Plan.Notes of the navigator.
	Notes []slog.Attr
	// Errors has all errors of the pass except conflicts, at most 16 of a kind.
	Errors []error

	// By is the engine that made the round, for example for a [Backlog] of its work.
	By *Engine

	// Why nothing could be planned; nil: it could.
	trouble error
	// Something new was committed.
	fresh bool
	// The ledger had new work, or new room for parked work.
	roused bool
	// Capsules were placed, released or put aside: the next pass has less work.
	progress bool

	// Start is when the pass began; zero: it did not begin, because the engine has a fault or its last Plan still ran.
	Start time.Time
	// Viewing, Planning and Proposing are the times that the stages of the pass took.
	Viewing, Planning, Proposing time.Duration

	// Settled lists the proposals that Proposed counts, in the order in which they were sent. It is filled in only for
	// an engine with an OnRound, because it takes memory. Read it, never write it.
	Settled []Settled
	// State is the state that the pass planned on; nil where Settled is not filled in, and where the view could not be
	// built. Keeping the round keeps the state in memory.
	State *State
}

// Settled is a proposal that an engine has sent, and its outcome.
type Settled struct {
	// Proposal is the proposal as it was sent, with its id and view. All ids that one engine sets begin with the same
	// eight bytes, and no other engine's ids do. So these bytes of [Rejection].TakenBy tell which engine's proposal has
	// won.
	Proposal Proposal
	// Outcome is the answer of the ledger. For a conflict its Err is the receipt, a [*Rejection].
	Outcome Outcome
}

// maxErrors is the number of errors of a kind that a round keeps; the counts count all of them.
const maxErrors = 16

// String sums the round up in a line.
func (r Round) String() string {
	return fmt.Sprintf("%s at %d: %d pending, %d proposed, %d committed, %d conflicts, %d infeasible, %d errors, %d unplaced, %d classes parked%s",
		r.Engine, r.View, r.Pending, r.Proposed, r.Committed, r.Conflicts, r.Infeasible, r.errors(), len(r.Unplaced), r.Parked, r.first())
}

// errors counts all errors except conflicts and infeasible proposals: invalid and failed proposals, unknown outcomes,
// and errors of the navigator and the view.
func (r Round) errors() int {
	kept := min(r.Infeasible, maxErrors) + min(r.Invalid, maxErrors) + min(r.Unknown, maxErrors) + min(r.Failed, maxErrors)
	return r.Invalid + r.Unknown + r.Failed + max(0, len(r.Errors)-kept)
}

// first quotes the first line of the first error.
func (r Round) first() string {
	if len(r.Errors) == 0 {
		return ""
	}
	line, _, _ := strings.Cut(r.Errors[0].Error(), "\n")
	return "; " + line
}

// fail notes an error that kept the pass from planning.
func (r *Round) fail(err error) {
	r.Errors = append(r.Errors, err)
	r.trouble = err
}

// active reports whether the pass had anything to plan or to send.
func (r *Round) active() bool { return r.Pending > 0 || r.Proposed > 0 }

// Population runs several engines on one ledger, and reports work that none of them owns. It needs no coordinator:
// claims divide the work, and the ledger settles the rest. Set the fields before Run.
type Population struct {
	// Engines are the engines that the population runs.
	Engines []*Engine
	// OnError is called for each pending capsule that none of the engines will place, once each time that it becomes
	// pending. The error wraps an Unplaced, which names the capsule. Such a capsule is assigned to no engine and
	// claimed by none, or it is assigned to an engine that is not in the list (which is correct if that engine runs in
	// another process). OnError is also called when the ledger cannot be read. Nil: they are written to slog.Default(),
	// at most 10 at once and one more every 10 s.
	OnError func(error)

	owners *claimTable
	log    rate.Log
}

// Run runs all engines until ctx ends, and then returns nil. Before it starts any, it refuses engines with faults, with
// the same name or on different ledgers, and engines whose claims overlap on the module and class of a pending capsule.
// The error wraps ErrInvalid. If claims overlap on a pair that first occurs later, the first of these engines in the
// list gets the work.
func (p *Population) Run(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	p.owners = &claimTable{engines: p.Engines}
	for i, e := range p.Engines {
		e.population.Store(&claimShare{p.owners, i})
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range p.Engines {
		g.Go(func() error { return e.Run(ctx) })
	}
	g.Go(func() error { return p.watch(ctx) })
	return g.Wait()
}

// claimTable tells which engine of a population owns the work that is assigned to none: the first engine that claims
// its module and class. All engines share one table, so each pair is looked up once, whatever the number of engines.
type claimTable struct {
	engines []*Engine
	// Guards the fields below. It is never held during a call of a navigator.
	mu sync.RWMutex
	// The position of the engine for each pair, -1 if none claims it; at most maxClaims pairs.
	owner map[claim]int
	// Counts the calls of forget, so that find does not store an answer from before one.
	forgotten int
}

// find returns the position of the engine that owns a pair; -1: no engine claims it. It asks the engines in order, up
// to the first that claims the pair. Each engine asks its navigator under its own guard and caches the answer.
func (t *claimTable) find(key claim) int {
	t.mu.RLock()
	owner, known := t.owner[key]
	forgotten := t.forgotten
	t.mu.RUnlock()
	if known {
		return owner
	}
	owner = slices.IndexFunc(t.engines, func(e *Engine) bool { return e.ask(key) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgotten == forgotten {
		if t.owner == nil || len(t.owner) >= maxClaims {
			t.owner = map[claim]int{}
		}
		t.owner[key] = owner
	}
	return owner
}

// claimShare is the position of an engine in the claim table of its population.
type claimShare struct {
	table  *claimTable
	number int
}

// forget clears the table. Some answers were given while a navigator did not answer, and it answers again.
func (t *claimTable) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner = nil
	t.forgotten++
}

// check returns every fault that keeps the population from starting.
func (p *Population) check(ctx context.Context) error {
	var faults []error
	names := map[string]bool{}
	for i, e := range p.Engines {
		if e == nil {
			return invalidf("engine %d of the population is nil", i)
		}
		if e.running.Load() {
			faults = append(faults, invalidf("engine %q runs already", e.Name))
			continue
		}
		if e.init(); e.fault != nil {
			faults = append(faults, e.fault)
			continue
		}
		if !sameLedger(e.Ledger, p.Engines[0].Ledger) {
			faults = append(faults, invalidf("engine %q works on another ledger than the first", e.Name))
		}
		if names[e.Name] {
			faults = append(faults, invalidf("two engines are named %q; owners must be told apart", e.Name))
		}
		names[e.Name] = true
	}
	if len(p.Engines) == 0 {
		faults = append(faults, invalidf("population without engines"))
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return p.checkClaims(ctx)
}

// sameLedger reports whether two ledgers are the same, or cannot be compared.
func sameLedger(a, b Ledger) bool {
	return !reflect.TypeOf(a).Comparable() || !reflect.TypeOf(b).Comparable() || a == b
}

// checkClaims returns an error for each pair of a pending capsule that more than one engine claims.
func (p *Population) checkClaims(ctx context.Context) error {
	state, err := p.Engines[0].Ledger.Snapshot(ctx)
	switch {
	case ctx.Err() != nil: // the population ends before it starts
		return nil //nolint:nilerr // a context that ends early is how it ends
	case err != nil:
		return fmt.Errorf("orbit: population: %w", err)
	}
	pairs := map[claim]bool{}
	for c := range state.Capsules() {
		if c.Pending() && c.Owner() == "" {
			pairs[claim{c.Spec.Module, c.Spec.Class}] = true
		}
	}
	var faults []error
	for pair := range pairs {
		if owners := p.claimants(pair); len(owners) > 1 {
			faults = append(faults, invalidf("module %q, class %v is claimed by engines %s; claims must not overlap: leave all but one out, or let each claim modules of its own",
				pair.module, pair.class, strings.Join(owners, ", ")))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// claimants returns the quoted names of the engines that claim a pair.
func (p *Population) claimants(pair claim) []string {
	var names []string
	for _, e := range p.Engines {
		if e.ask(pair) {
			names = append(names, fmt.Sprintf("%q", e.Name))
		}
	}
	return names
}

// watch reports the pending capsules that no engine owns, each once for every time that it becomes pending.
func (p *Population) watch(ctx context.Context) error {
	ledger := p.Engines[0].Ledger
	from := source{ledger: ledger, owns: p.unowned}
	view, pace := View{}, pace{Backoff: Backoff{}.withDefaults(), rng: newRand()}
	for ctx.Err() == nil {
		if _, err := view.refresh(ctx, &from, time.Now()); err != nil {
			if ctx.Err() == nil {
				p.tell(ctx, fmt.Errorf("view: %w", err))
			}
			sleep(ctx, pace.next())
			continue
		}
		pace.reset()
		p.reportAll(ctx, &view)
		if err := waitForWork(ctx, ledger, view.Revision()); err != nil {
			sleep(ctx, pace.next())
		}
	}
	return nil
}

// waitForWork waits for a change that may leave a capsule without an owner. It skips others, such as placements,
// without a snapshot.
func waitForWork(ctx context.Context, ledger Ledger, seen Revision) error {
	for changes, err := range Follow(ctx, ledger, seen) {
		if errors.Is(err, ErrCompacted) {
			return nil
		} else if err != nil {
			return err
		}
		for i := range changes {
			switch changes[i].Do.(type) {
			case Submit, Assign, Release:
				return nil
			}
		}
	}
	return ctx.Err()
}

// unowned reports whether none of the engines owns pending work with this owner and spec.
func (p *Population) unowned(owner string, spec *Spec) bool {
	if owner != "" {
		return !slices.ContainsFunc(p.Engines, func(e *Engine) bool { return e.Name == owner })
	}
	return p.owners.find(claim{spec.Module, spec.Class}) < 0
}

// tell passes an error to OnError, or writes it to the log.
func (p *Population) tell(ctx context.Context, err error) {
	if p.OnError != nil {
		p.OnError(fmt.Errorf("orbit: population: %w", err))
		return
	}
	p.log.Error(ctx, "orbit: error of a population", err)
}

// reportAll reports each capsule in the view's queue, which has the work that no engine owns, and empties the
// queue.
func (p *Population) reportAll(ctx context.Context, view *View) {
	most := view.state.PendingCount()
	view.queue.turn(most, view.state, false)
	for _, c := range view.queue.take(most) {
		why := fmt.Errorf("no engine claims module %q, class %v; assign it to an engine, or let a navigator claim it", c.Spec.Module, c.Spec.Class)
		if c.Owner() != "" {
			why = fmt.Errorf("it is assigned to %q, which is none of this population's engines", c.Owner())
		}
		p.tell(ctx, Unplaced{c, why})
	}
	view.queue.batch = view.queue.batch[:0] // do not report them again
}
