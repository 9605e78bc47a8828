package navtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// me is the engine that runs the navigator under test; other is every other engine.
const (
	me    = "navtest"
	other = "navtest-other"
)

// world is a ledger with one engine that runs a new navigator. Only an engine can make a view, so everything goes
// through one. The world stands between the engine and the navigator, and keeps the last call of Plan.
//
//	engine.Pass ─► world.Plan ─► ask (the navigator's Plan) ─► during (what happens meanwhile) ─► engine proposes
type world struct {
	t      *trial
	ledger *orbit.MemoryLedger
	engine orbit.Engine
	under  orbit.Navigator
	// ask is called in place of the navigator's Plan; default: under.Plan. It runs in the engine's goroutine, so it
	// must not end the trial.
	ask func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error)
	// during, if set, is called after Plan and before the engine proposes. It must not end the trial either.
	during func(*call) error
	made   int // how many capsules and gangs have been made
	// facts draws what other parties do; nil: they do nothing.
	facts *dice

	mu   sync.Mutex // guards last, which a Plan that has exceeded its deadline may still write
	last *call
}

// refuses reports whether the navigator's own filter refuses a node for a spec, whatever the ledger says.
func (t *trial) refuses(n *orbit.NodeState, spec *orbit.Spec) bool {
	if t.suite.Filter == nil {
		return false
	}
	var report orbit.Report
	if t.suite.Telemetry != nil {
		report, _ = t.suite.Telemetry.Latest(n.Node.ID)
	}
	return t.suite.Filter(n, &report, spec) != ""
}

// call is one call of Plan.
type call struct {
	t       *trial
	state   *orbit.State
	pending []*orbit.Capsule
	plan    orbit.Plan
	err     error
	trouble error // the error of during
}

// judge returns an error if a plan is not as the rule requires.
type judge func(*call) error

// world returns an empty world. Its engine parks classes for a nanosecond only, so that every plan gets all the work.
func (t *trial) world() *world {
	w := &world{t: t, ledger: &orbit.MemoryLedger{}, under: t.navigator()}
	w.ask = w.under.Plan
	w.engine = orbit.Engine{Name: me, Ledger: w.ledger, Navigator: w, Telemetry: t.suite.Telemetry, PlanTimeout: t.suite.Patience, ParkFor: time.Nanosecond}
	return w
}

// Claims asks the navigator.
func (w *world) Claims(module string, class orbit.AppClass) bool {
	return w.under.Claims(module, class)
}

// Plan asks the navigator and keeps its answer.
func (w *world) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	c := &call{t: w.t, state: view.State(), pending: slices.Clone(pending)}
	c.plan, c.err = w.ask(ctx, view, pending)
	if w.during != nil {
		c.trouble = w.during(c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = c
	return c.plan, c.err
}

// pass does one pass and returns the call of Plan; nil: there was nothing to plan. If Plan returns an error, it ends
// the case.
func (w *world) pass() *call {
	c := w.passing()
	if c != nil && c.err != nil {
		w.t.Failf("Plan on revision %d returns an error: %w", c.state.Revision(), c.err)
	}
	return c
}

// passing is pass for plans that may return an error.
func (w *world) passing() *call {
	w.mu.Lock()
	w.last = nil
	w.mu.Unlock()
	round := w.engine.Pass(context.Background())
	for _, err := range round.Errors {
		if errors.Is(err, orbit.ErrNavigator) {
			w.t.Failf("%w", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		w.t.Must(w.last.trouble)
	}
	return w.last
}

// passUntilPlaced does passes until none of the capsules is pending. It ends the case if that takes more passes than
// the suite allows. judge, if not nil, judges every plan.
func (w *world) passUntilPlaced(why string, ids []orbit.CapsuleID, judge judge) {
	parts := 1
	if most := w.engine.MaxPlan; most > 0 {
		parts = max(1, (len(ids)+most-1)/most)
	}
	passes := w.t.suite.Passes * parts
	if w.until(passes, judge, func(*orbit.State) bool { return w.firstPending(ids) == "" }) {
		return
	}
	id := w.firstPending(ids)
	w.t.Failf("%s: capsule %q is pending after %d passes; %s%s", why, id, passes, w.said(id), w.t.unknownFilter())
}

// unknownFilter advises to tell the suite of a filter.
func (t *trial) unknownFilter() string {
	if t.suite.Filter != nil {
		return ""
	}
	return " (if the navigator has a filter of its own, set Suite.Filter)"
}

// until does passes until a state is reached, at most that many, and reports whether it was reached.
func (w *world) until(passes int, judge judge, reached func(*orbit.State) bool) bool {
	for range passes {
		if reached(w.state()) {
			return true
		}
		w.passes(1, judge)
	}
	return reached(w.state())
}

// passes does n passes, and ends the case if judge returns an error for a plan. judge may be nil.
func (w *world) passes(n int, judge judge) {
	for range n {
		if c := w.pass(); c != nil && judge != nil {
			w.t.Must(judge(c))
		}
	}
}

// firstPending returns the first of the capsules that is pending and not kept out by the navigator's filter; "": none is.
func (w *world) firstPending(ids []orbit.CapsuleID) orbit.CapsuleID {
	s := w.state()
	for _, id := range ids {
		if c := s.Capsule(id); c != nil && c.Pending() && !w.filtered(s, c) {
			return id
		}
	}
	return ""
}

// filtered reports whether there are nodes that the ledger would let a single capsule use, and the navigator's filter
// refuses all of them.
func (w *world) filtered(s *orbit.State, c *orbit.Capsule) (refused bool) {
	if w.t.suite.Filter == nil || c.Gang() != "" {
		return false
	}
	for n := range s.Nodes() {
		if n.Fits(c.Spec) {
			if !w.t.refuses(n, c.Spec) {
				return false
			}
			refused = true
		}
	}
	return refused
}

// said returns what the last plan says about a capsule.
func (w *world) said(id orbit.CapsuleID) string {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if last == nil {
		return "nothing was handed over in the last pass"
	}
	for _, u := range last.plan.Unplaced {
		if idOf(u.Capsule) == id {
			return fmt.Sprintf("the last plan says: %v", u.Why)
		}
	}
	return "the last plan says nothing of it"
}

// state returns the present state.
func (w *world) state() *orbit.State {
	s, err := w.ledger.Snapshot(context.Background())
	w.t.Must(err)
	return s
}

// commit makes a proposal that must be committed.
func (w *world) commit(do ...orbit.Commitment) {
	if err := w.attempt(do...); err != nil {
		w.t.Failf("the suite cannot set its world up (do Suite.Node and Suite.Spec take something away?): %w", err)
	}
}

// attempt makes a proposal.
func (w *world) attempt(do ...orbit.Commitment) error {
	_, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	return err
}
