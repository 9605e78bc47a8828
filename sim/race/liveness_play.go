package race

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// livePlay is a world of [Liveness] while it is played.
type livePlay struct {
	*course
	draft *liveDraft
	hosts map[orbit.NodeID]*liveHost
	// sour are the nodes on which every start fails until the world rests.
	sour map[orbit.NodeID]bool
	// resting is the revision at which the world began to rest; 0 while it does not rest.
	resting orbit.Revision
	// rested is the time of all rests so far. The times of events do not include rests.
	rested time.Duration
	// sent is when an engine last sent a proposal other than a nomination.
	sent time.Duration
	// why has the reasons that the engines last gave for capsules that they did not place.
	why map[orbit.CapsuleID]error
	// over says that all events have happened.
	over bool
}

// liveHost is the reporting side of a node.
type liveHost struct {
	orbit.Report
	silent bool
}

// begin puts the first event and the first reports on the agenda.
func (w *livePlay) begin() {
	w.next(0)
	if w.board != nil {
		w.world.later(heartbeatLive, w.beats)
	}
}

// next puts event i on the agenda, which puts the one after it there. During a rest no event happens until the world
// has been judged.
func (w *livePlay) next(i int) {
	if i == len(w.Events) {
		w.over = true
		return
	}
	e := &w.Events[i]
	w.world.later(max(w.now, e.At+w.rested), func(ctx context.Context) {
		if e.kind != liveRest {
			w.happen(ctx, e)
			w.next(i + 1)
			return
		}
		w.resting = max(1, w.snapshot().Revision())
		clear(w.sour)
		began := w.now
		w.world.later(w.now+w.draft.within, func(context.Context) {
			w.judge(w.snapshot(), began)
			w.rested += w.draft.within
			w.resting = 0
			w.next(i + 1)
		})
	})
}

// left returns the time until the next rest.
func (w *livePlay) left() time.Duration {
	for i := range w.Events {
		if at := w.Events[i].At + w.rested; w.Events[i].kind == liveRest && at > w.now {
			return at - w.now
		}
	}
	return 0
}

// burst returns the fault that every proposal of an engine has at present; empty: none.
func (w *livePlay) burst(engine string) string {
	for _, b := range w.draft.bursts {
		if now := w.now - w.rested; w.resting == 0 && b.engine == engine && b.from <= now && now < b.to {
			return b.what
		}
	}
	return ""
}

// beats lets all nodes report that are not silent, with their true number of free slots.
func (w *livePlay) beats(context.Context) {
	state := w.snapshot()
	for _, id := range slices.Sorted(maps.Keys(w.hosts)) {
		w.beat(state, id)
	}
	w.world.later(w.now+heartbeatLive, w.beats)
}

func (w *livePlay) beat(state *orbit.State, id orbit.NodeID) {
	h := w.hosts[id]
	if w.board == nil || h == nil || h.silent {
		return
	}
	h.At, h.FreeSlots = time.Now(), 0
	if n := state.Node(id); n != nil {
		h.FreeSlots = int(max(0, n.Free()[orbit.Slots]))
	}
	if err := w.board.Report(h.Report); err != nil && !errors.Is(err, telemetry.ErrOutdated) {
		w.fail("report", "node %s: %v", id, err)
	}
}

// snapshot returns the state of the ledger, without faults.
func (w *livePlay) snapshot() *orbit.State {
	state, err := w.ledger.Snapshot(background())
	if err != nil {
		w.fail("ledger", "snapshot: %v", err)
		return new(orbit.State)
	}
	return state
}

// navigator makes the navigator of an engine.
func (w *livePlay) navigator(e *liveEngine, i int) (n orbit.Navigator) {
	filter := place.Filter(nil)
	if e.filter {
		filter = liveFilter
	}
	var placement orbit.PlacementEngine
	switch e.placement {
	case 0:
		placement = &place.Exhaustive{Filter: filter, Seed: uint64(i)}
	case 1:
		placement = &place.Sampled{Filter: filter, Seed: uint64(i)}
	default:
		placement = &place.Indexed{Filter: filter, Seed: uint64(i)}
	}
	switch e.kind {
	case "services":
		n = &nav.Services{Placement: placement}
	case "batch":
		n = &nav.Batch{Placement: placement}
	case "gang":
		n = &nav.Gang{Repair: e.repair}
	case "keeper":
		n = &liveKeeper{placement: placement, play: w}
	case "warm":
		n = &sandbox.Warm{Board: w.board, Modules: []string{"none"}, AllowStale: e.allowStale, Seed: uint64(i)}
		filter = nil
	}
	if e.anchored { // HoldFor is below the default, so that its holds end during a rest and their room is judged too
		n = &nav.Anchor{Navigator: n, SelfMatch: e.selfMatch, HoldFor: 1500 * time.Millisecond, Filter: filter}
	}
	if e.patient { // its nominations last for the whole run and do not age, so that the engine comes to rest
		n = &nav.Patient{Navigator: n, After: 200 * time.Millisecond, For: time.Hour, Unaged: true, Filter: filter}
	}
	if e.preempting {
		n = &nav.Preempting{Navigator: n, Filter: filter}
	}
	if e.fair {
		n = &nav.Fair{Navigator: n}
	}
	return n
}

// liveFilter keeps work away from nodes that are busy or whose reports are stale.
func liveFilter(_ *orbit.NodeState, r *orbit.Report, _ *orbit.Spec) string {
	if r.Stale || r.CPUPercent > 90 {
		return "are busy or not heard of"
	}
	return ""
}

// heard checks the errors of an engine's round, and notes its reasons for the capsules that it did not place.
func (w *livePlay) heard(r *orbit.Round) {
	for _, err := range r.Errors {
		if errors.Is(err, orbit.ErrInfeasible) {
			w.fail("infeasible", "engine %s: %v", r.Engine, err)
		}
		if errors.Is(err, orbit.ErrInvalid) { // a plan that no state makes right
			w.fail("invalid", "engine %s: %v", r.Engine, err)
		}
		if errors.Is(err, orbit.ErrNavigator) && strings.Contains(err.Error(), "it panicked") && !strings.Contains(err.Error(), errMadeUp.Error()) {
			w.fail("panic", "%v", err)
		}
	}
	for _, u := range r.Unplaced {
		if u.Capsule != nil {
			w.why[u.Capsule.ID] = u.Why
		}
	}
}

// newPlay returns the play of a course; nil: it has none.
func newPlay(c *course) *livePlay {
	if c.live == nil {
		return nil
	}
	return &livePlay{course: c, draft: c.live, hosts: map[orbit.NodeID]*liveHost{}, sour: map[orbit.NodeID]bool{}, why: map[orbit.CapsuleID]error{}}
}

// newBoard returns the board for the reports of a race; nil: no node reports. Without Config.Sleep package time does
// not follow the virtual time, so the board reads the virtual time itself.
func newBoard(c *course) *telemetry.Board {
	if c.Heartbeat <= 0 {
		return nil
	}
	b := &telemetry.Board{Stale: -1, PerSecond: -1}
	if c.live != nil {
		b.Stale = staleLive
	}
	if c.Sleep == nil {
		b.Now = func() time.Time { return c.start.Add(c.now) }
	}
	return b
}

// hearing is the board as an engine sees it: asking for reports is a step, which may have a fault.
type hearing struct {
	*telemetry.Board
	actor *actor
}

// Reports implements [orbit.Telemetry].
func (h hearing) Reports(ctx context.Context, after uint64) ([]orbit.Report, uint64, error) {
	if f := h.actor.stop(stepHear, "ask for reports"); f.what == faultUnavailable {
		return nil, 0, errMadeUp
	}
	return h.Board.Reports(ctx, after)
}

// spoil lets a plan fail by a drawn fault (what), and reports whether the plan has failed. In half of the cases the
// navigator has made the plan before, and does not know that it is lost.
func (t *thinker) spoil(ctx context.Context, what string, view *orbit.View, pending []*orbit.Capsule) (bool, error) {
	if what == "" {
		return false, nil
	}
	if t.steps%2 == 0 {
		if _, err := t.of.Plan(ctx, view, pending); err != nil {
			return true, err
		}
	}
	switch what {
	case faultPanics:
		panic(errMadeUp)
	case faultOverruns:
		if t.planning.Load() == 1 && t.scheduler.planTimeout > 0 { // otherwise plans of other engines would overrun too
			t.planning.Add(0)                           // passes the driver's writes on to the engine, which goes on without this goroutine
			time.Sleep(t.scheduler.planTimeout*3/2 + 7) // the odd 7 ns keep it from ending at the same instant as anything else
		}
	}
	return true, errMadeUp
}
