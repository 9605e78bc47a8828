package orbit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Engine runs a navigator: view, plan, propose, and again. It is a struct literal; Ledger and Navigator must
// be set, everything else has a default. Set the fields before first use.
//
// What an engine guarantees: at most one Plan runs at a time. A view is at least as new as every rejection
// and every commit of the engine's own. A conflict is silent and its capsule planned again in the next pass;
// every other error is counted and handed on. A navigator that panics, exits its goroutine, overruns its
// deadline or returns nonsense loses its own pass and nothing else.
type Engine struct {
	// Owner name for assigned capsules, and in rounds.
	Name string
	// Required.
	Ledger Ledger
	// Required.
	Navigator Navigator
	// Nil: none.
	Telemetry Telemetry
	// Most capsules planned in one pass; default 1,000.
	MaxPlan int
	// Deadline of one Plan; default 10 s.
	PlanTimeout time.Duration
	// Longest that a class which fits nowhere is put aside; default 30 s.
	ParkFor time.Duration
	Backoff Backoff
	// Called by Run after every pass that was not idle, from Run's goroutine.
	Hook func(Round)

	once sync.Once
	// Held during a Pass and while waiting looks at the view.
	mu sync.Mutex
	// What is wrong with the fields.
	fault error
	view  View
	from  source
	pace  pace
	ids   idSource

	// Guards the next two.
	asking sync.Mutex
	claims map[claim]bool
	// Claims that failed.
	unanswered []error

	// If set, decides instead of the navigator: a population's claims do not overlap.
	arbiter func(claim) bool
	// The next view must have reached this.
	atLeast Revision
	// Outcome unknown.
	unsettled []Proposal
	// The last view could not be built.
	blind bool
	// A Plan that overran its deadline and still runs.
	late <-chan verdict
	// What went wrong outside a pass.
	carried []error
}

// claim is what a navigator is asked about.
type claim struct {
	module string
	class  AppClass
}

// ErrNavigator is what an engine reports of a navigator that panics, exits its goroutine or overruns its
// deadline.
var ErrNavigator = errors.New("navigator failed")

// init checks the fields and makes the engine ready, once.
func (e *Engine) init() {
	e.once.Do(func() {
		if e.fault = e.check(); e.fault != nil {
			return
		}
		e.claims = map[claim]bool{}
		e.from = source{ledger: e.Ledger, telemetry: e.Telemetry, mine: e.mine}
		e.pace = pace{Backoff: e.Backoff.withDefaults(), rng: newRand()}
		e.ids = newIDSource()
	})
}

// check reports every fault of the fields.
func (e *Engine) check() error {
	faults := e.Backoff.faults()
	if e.Ledger == nil {
		faults = append(faults, "Ledger is nil; use &orbit.MemoryLedger{} for one process")
	}
	if e.Navigator == nil {
		faults = append(faults, "Navigator is nil")
	}
	if e.MaxPlan < 0 || e.PlanTimeout < 0 || e.ParkFor < 0 {
		faults = append(faults, "MaxPlan, PlanTimeout and ParkFor must not be negative")
	}
	if len(faults) > 0 {
		return invalidf("engine %q: %s", e.Name, strings.Join(faults, "; "))
	}
	return nil
}

// Run passes until ctx ends, and then returns nil. Between passes it waits: not at all while there is more
// work than one pass takes and passes get on with it, else as long as Backoff says, or until there is work for this engine or room for
// what it has put aside. Its only error is a fault in the fields, wrapping ErrInvalid.
func (e *Engine) Run(ctx context.Context) error {
	if e.init(); e.fault != nil {
		return e.fault
	}
	for ctx.Err() == nil {
		round := e.Pass(ctx)
		if e.Hook != nil && (round.active() || len(round.Errors) > 0 && ctx.Err() == nil) {
			e.Hook(round)
		}
		if round.Committed > 0 {
			e.pace.reset()
		}
		if round.progress && e.backlog() {
			continue
		}
		e.rest(ctx, e.soonest(e.pace.next()))
	}
	return nil
}

// Pass does one round: view, plan, propose. Passes of one engine run one after another.
func (e *Engine) Pass(ctx context.Context) Round {
	round := Round{Engine: e.Name}
	if e.init(); e.fault != nil {
		round.Errors = append(round.Errors, e.fault)
		return round
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	round.Errors, e.carried = e.carried, nil
	if !e.planReturned() {
		round.Errors = append(round.Errors, fmt.Errorf("orbit: engine %q: %w: its last Plan still runs; nothing is planned until it returns", e.Name, ErrNavigator))
		return round
	}
	start := time.Now()
	err := e.look(ctx, start)
	if e.blind = err != nil; e.blind {
		round.Errors = append(round.Errors, fmt.Errorf("orbit: engine %q: view: %w", e.Name, err))
		return round
	}
	e.takeUnanswered(&round)
	round.View = e.view.Revision()
	e.view.queue.due(start)
	e.settle(ctx, &round)
	e.endHolds(ctx, &round, start)
	pending := e.view.queue.take(cmp.Or(e.MaxPlan, 1000), e.view.state)
	round.Pending, round.Parked = len(pending), len(e.view.queue.parked)
	viewed := time.Now()
	round.Viewing = viewed.Sub(start)
	if len(pending) == 0 {
		return round
	}
	plan, err := e.plan(ctx, pending)
	if err != nil {
		round.Errors = append(round.Errors, err)
	}
	round.Planning = time.Since(viewed)
	round.Notes, round.Unplaced = plan.Notes, plan.Unplaced
	e.park(&round, start)
	e.propose(ctx, plan.Proposals, &round)
	round.Proposing = time.Since(viewed) - round.Planning
	return round
}

// planReturned reports whether no Plan is running, taking note of one that was late.
func (e *Engine) planReturned() bool {
	if e.late == nil {
		return true
	}
	select {
	case <-e.late: // its results are dropped
		e.late = nil
		return true
	default:
		return false
	}
}

// look refreshes the view, and waits for it to reach what this engine has been told of.
func (e *Engine) look(ctx context.Context, now time.Time) error {
	if _, err := e.view.refresh(ctx, &e.from, now); err != nil {
		return err
	}
	if e.view.Revision() >= e.atLeast {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.planTimeout())
	defer cancel()
	for e.view.Revision() < e.atLeast {
		seen := e.view.Revision()
		if _, err := e.Ledger.Wait(ctx, seen); err != nil {
			return err
		}
		if _, err := e.view.refresh(ctx, &e.from, now); err != nil {
			return err
		}
		if e.view.Revision() == seen {
			sleep(ctx, time.Millisecond) // its snapshots lag behind what it says there is
		}
	}
	return nil
}

// mine reports whether a pending capsule is this engine's.
func (e *Engine) mine(c *Capsule) bool { return e.owns(c.Owner, c.Spec) }

// owns reports whether pending work with this owner and spec is this engine's: it is named, or nobody is
// and it claims it.
func (e *Engine) owns(owner string, spec *Spec) bool {
	if owner != "" {
		return owner == e.Name
	}
	key := claim{spec.Module, spec.Class}
	if e.arbiter != nil {
		return e.arbiter(key)
	}
	return e.ask(key)
}

// ask returns the navigator's answer, which is asked for once. Other engines of a population ask too.
func (e *Engine) ask(key claim) bool {
	e.asking.Lock()
	defer e.asking.Unlock()
	answer, known := e.claims[key]
	if known {
		return answer
	}
	answers := make(chan bool, 1)
	v, _ := contain(context.Background(), e.planTimeout(), func(context.Context) error {
		answers <- e.Navigator.Claims(key.module, key.class)
		return nil
	})
	if v.err != nil {
		e.unanswered = append(e.unanswered, fmt.Errorf("orbit: engine %q: Claims(%q, %v): %w", e.Name, key.module, key.class, v.err))
	} else {
		answer = <-answers
	}
	e.claims[key] = answer
	return answer
}

// takeUnanswered moves failures of Claims into a round.
func (e *Engine) takeUnanswered(round *Round) {
	e.asking.Lock()
	defer e.asking.Unlock()
	round.Errors = append(round.Errors, e.unanswered...)
	e.unanswered = nil
}

// planTimeout is the deadline of one call into the navigator.
func (e *Engine) planTimeout() time.Duration { return cmp.Or(e.PlanTimeout, 10*time.Second) }

// park puts aside the classes that fit nowhere.
func (e *Engine) park(round *Round, now time.Time) {
	until := now.Add(e.parkFor())
	for _, u := range round.Unplaced {
		var nofit *NoFit
		if u.Capsule != nil && u.Capsule.Spec != nil && errors.As(u.Why, &nofit) {
			round.progress = e.view.queue.park(u.Capsule.Spec, until) || round.progress
		}
	}
	round.Parked = len(e.view.queue.parked)
}

func (e *Engine) parkFor() time.Duration { return cmp.Or(e.ParkFor, 30*time.Second) }

// endHolds releases the holds whose end has passed; another engine may be first.
func (e *Engine) endHolds(ctx context.Context, round *Round, now time.Time) {
	var batch []Proposal
	for _, id := range e.view.ended(now) {
		batch = append(batch, Proposal{Do: []Commitment{Release{Hold: id}}})
	}
	e.propose(ctx, batch, round)
}

// settle sends again what may or may not have been committed. It has one effect.
func (e *Engine) settle(ctx context.Context, round *Round) {
	again := e.unsettled
	e.unsettled = nil
	e.propose(ctx, again, round)
}

// propose sends proposals and sorts their outcomes.
func (e *Engine) propose(ctx context.Context, batch []Proposal, round *Round) {
	if len(batch) == 0 {
		return
	}
	for i := range batch {
		if batch[i].ID.IsZero() {
			batch[i].ID = e.ids.next()
		}
		if batch[i].View == 0 {
			batch[i].View = round.View
		}
	}
	round.Proposed += len(batch)
	if b, ok := e.Ledger.(Batcher); ok {
		for i, o := range b.ProposeBatch(ctx, batch) {
			e.sort(&batch[i], o, round)
		}
		return
	}
	for i := range batch {
		rev, err := e.Ledger.Propose(ctx, batch[i])
		e.sort(&batch[i], Outcome{rev, err}, round)
	}
}

// sort counts an outcome and does what it calls for.
func (e *Engine) sort(p *Proposal, o Outcome, round *Round) {
	count := &round.Failed
	switch {
	case o.Err == nil:
		round.Committed++
		round.progress = true
		e.atLeast = max(e.atLeast, o.Revision)
		return
	case errors.Is(o.Err, ErrConflict):
		round.Conflicts++
		e.lost(p, o.Err)
		return // expected, and silent
	case errors.Is(o.Err, ErrInfeasible):
		count = &round.Infeasible
	case errors.Is(o.Err, ErrInvalid):
		count = &round.Invalid
	case errors.Is(o.Err, ErrUnknown):
		count = &round.Unknown
		e.unsettled = append(e.unsettled, *p)
	}
	if count != &round.Unknown {
		e.lost(p, o.Err)
	}
	if *count++; *count <= maxErrors {
		round.Errors = append(round.Errors, o.Err)
	}
}

// lost takes note of a rejection: the next view must have reached it, and what was reserved for the
// proposal is room again for classes that this very pass may have put aside.
func (e *Engine) lost(p *Proposal, err error) {
	var r *Rejection
	if errors.As(err, &r) {
		e.atLeast = max(e.atLeast, r.At)
	}
	for _, c := range p.Do {
		if place, ok := c.(Place); ok {
			e.view.queue.room(e.view.state.Node(place.Node))
		}
	}
}

// soonest shortens a wait to when the engine must look anyway: a hold ends, or a class has been aside long
// enough.
func (e *Engine) soonest(wait time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.late != nil || e.blind {
		return wait
	}
	now := time.Now()
	if len(e.view.ends) > 0 {
		wait = min(wait, e.view.ends[0].at.Sub(now))
	}
	if e.parkFor() >= e.pace.Initial { // else looking at once would be looking all the time
		for _, k := range e.view.queue.parked {
			wait = min(wait, k.until.Sub(now))
		}
	}
	return max(wait, 0)
}

// backlog reports whether there is work that the last pass had no time for.
func (e *Engine) backlog() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.view.queue.ready) > 0
}

// idSource makes proposal ids: a random part that is the process's own, and a count.
type idSource struct {
	prefix [8]byte
	count  uint64
}

// newIDSource returns a source that shares no id with any other.
func newIDSource() idSource {
	var s idSource
	_, _ = rand.Read(s.prefix[:]) // never fails
	return s
}

// next returns a new id, without asking the system for randomness each time.
func (s *idSource) next() (id ProposalID) {
	s.count++
	copy(id[:], s.prefix[:])
	binary.BigEndian.PutUint64(id[8:], s.count)
	return id
}

// NewProposalID returns a random id that no other proposal has.
func NewProposalID() (id ProposalID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}
