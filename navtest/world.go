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

// world is a ledger and one engine on it that runs a new navigator. Only an engine can make a view, so
// everything goes through one: the world stands between engine and navigator and keeps what passes.
//
//	engine.Pass ─► world.Plan ─► ask (the navigator's Plan) ─► during (what happens meanwhile) ─► engine proposes
type world struct {
	t      *trial
	ledger *orbit.MemoryLedger
	engine orbit.Engine
	under  orbit.Navigator
	// In the place of under.Plan; it runs in the engine's goroutine, and so must not end the trial.
	ask func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error)
	// Called when the plan is made and before it is proposed; likewise.
	during func(*call) error
	// Capsules and gangs made so far.
	made int

	// Guards last: a Plan that overran its deadline may still write.
	mu   sync.Mutex
	last *call
}

// call is one call of Plan.
type call struct {
	state   *orbit.State
	pending []*orbit.Capsule
	plan    orbit.Plan
	err     error
	// What during said.
	trouble error
}

// judge returns an error if a plan is not as the rule requires.
type judge func(*call) error

// world makes an empty one. Its engine takes back at once what was put aside, so that every plan is asked
// about all the work.
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

// Plan asks the navigator and keeps what it says.
func (w *world) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	c := &call{state: view.State(), pending: slices.Clone(pending)}
	c.plan, c.err = w.ask(ctx, view, pending)
	if w.during != nil {
		c.trouble = w.during(c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = c
	return c.plan, c.err
}

// pass does one pass and returns the call of Plan that it made, nil if there was nothing to plan. A
// navigator that fails ends the case.
func (w *world) pass() *call {
	c := w.passing()
	if c != nil && c.err != nil {
		w.t.Failf("Plan on revision %d returns an error: %w", c.state.Revision(), c.err)
	}
	return c
}

// passing is pass, for plans that may return an error.
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

// passUntilPlaced runs passes until none of these capsules is pending, and ends the case if that takes more passes than
// the suite allows. Judge, if any, sees every call.
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
	w.t.Failf("%s: capsule %q is pending after %d passes; %s", why, id, passes, w.said(id))
}

// until passes until something is reached, at most so many times, and reports whether it is.
func (w *world) until(passes int, judge judge, reached func(*orbit.State) bool) bool {
	for range passes {
		if reached(w.state()) {
			return true
		}
		w.passes(1, judge)
	}
	return reached(w.state())
}

// passes does n passes and ends the case if a plan is not what judge requires; nil: it requires nothing.
func (w *world) passes(n int, judge judge) {
	for range n {
		if c := w.pass(); c != nil && judge != nil {
			w.t.Must(judge(c))
		}
	}
}

// firstPending returns the first of the capsules that still waits.
func (w *world) firstPending(ids []orbit.CapsuleID) orbit.CapsuleID {
	s := w.state()
	for _, id := range ids {
		if c := s.Capsule(id); c != nil && c.Pending() {
			return id
		}
	}
	return ""
}

// said quotes what the last plan says of a capsule.
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

// state is everything as it is now.
func (w *world) state() *orbit.State {
	s, err := w.ledger.Snapshot(context.Background())
	w.t.Must(err)
	return s
}

// commit changes the world. What it does must be possible.
func (w *world) commit(do ...orbit.Commitment) {
	if err := w.attempt(do...); err != nil {
		w.t.Failf("the suite cannot set its world up (do Suite.Node and Suite.Spec take something away?): %w", err)
	}
}

// attempt changes the world if that is possible.
func (w *world) attempt(do ...orbit.Commitment) error {
	_, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	return err
}
