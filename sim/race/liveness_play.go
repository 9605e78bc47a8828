package race

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// livePlay is a world while it is played. Its own goroutine is actor 0; engine i is actor i+1.
type livePlay struct {
	*Liveness
	draft  liveDraft
	start  time.Time
	ledger orbit.Ledger
	board  *telemetry.Board
	hosts  map[orbit.NodeID]*liveHost

	// Guards what follows.
	mu sync.Mutex
	// When the world rests next; faults end then. While it rests, the revision at which it began to; else 0.
	until   time.Duration
	resting orbit.Revision
	// How long it has rested so far.
	rested time.Duration
	told   []liveLine
	// When a proposal was last sent by an engine.
	sent time.Duration
	// What the engines last said of capsules that they did not place.
	why map[orbit.CapsuleID]error
	err error
}

// liveHost is what a node reports of itself.
type liveHost struct {
	orbit.Report
	silent bool
}

// liveLine is something that happened, to be told if the world fails.
type liveLine struct {
	at   time.Duration
	who  string
	what any
}

// heartbeatLive is how often nodes report.
const heartbeatLive = 400 * time.Millisecond

// play plays a world.
func (l *Liveness) play(d liveDraft) *Stall {
	w := &livePlay{Liveness: l, draft: d, start: time.Now(), hosts: map[orbit.NodeID]*liveHost{}, why: map[orbit.CapsuleID]error{}}
	if w.ledger = orbit.Ledger(&orbit.MemoryLedger{Bounds: orbit.Limits{History: d.history}}); l.Ledger != nil {
		w.ledger = l.Ledger()
	}
	if d.telemetry {
		w.board = &telemetry.Board{Stale: staleLive, PerSecond: -1}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	population := orbit.Population{}
	for i := range d.engines {
		population.Engines = append(population.Engines, w.engine(i))
	}
	go func() { ended <- w.run(ctx, &population) }()
	w.drive()
	cancel()
	if err := <-ended; err != nil {
		w.fail("run", "the population ended: %v", err)
	}
	if w.err == nil {
		return nil
	}
	return &Stall{Seed: d.seed, Err: w.err, draft: d, history: w.tell(), how: l.command(d.seed)}
}

// run runs the engines, again if they do not start because of a fault.
func (w *livePlay) run(ctx context.Context, p *orbit.Population) error {
	for {
		if err := p.Run(ctx); err == nil || !errors.Is(err, errMadeUp) {
			return err
		}
	}
}

// drive lets events happen and nodes report, until the world has rested for the last time.
func (w *livePlay) drive() {
	beat := heartbeatLive
	for i, e := range w.draft.events {
		w.mu.Lock()
		w.until = w.restAfter(i)
		w.mu.Unlock()
		beat = w.beats(beat, e.at+w.rested)
		if e.kind != liveRest {
			w.happen(e)
			continue
		}
		w.rest(w.snapshot().Revision())
		began := time.Since(w.start)
		beat = w.beats(beat, began+w.within())
		if w.judge(w.snapshot(), began); w.failed() {
			return
		}
		w.rested += w.within()
		w.rest(0)
	}
}

// restAfter returns when the world rests next, from event i on.
func (w *livePlay) restAfter(i int) time.Duration {
	for _, e := range w.draft.events[i:] {
		if e.kind == liveRest {
			return e.at + w.rested
		}
	}
	return 0
}

// rest begins or ends a rest.
func (w *livePlay) rest(at orbit.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = at
}

// beats lets time pass, and nodes report when it is time to. It returns when they report next.
func (w *livePlay) beats(beat, until time.Duration) time.Duration {
	for ; beat < until; beat += heartbeatLive {
		time.Sleep(time.Until(w.start.Add(beat)))
		w.turn(0)
		state := w.snapshot()
		for _, id := range slices.Sorted(maps.Keys(w.hosts)) {
			w.beat(state, id)
		}
	}
	time.Sleep(time.Until(w.start.Add(until)))
	w.turn(0)
	return beat
}

// open reports whether anything may go wrong now, and how long still.
func (w *livePlay) open() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.until - time.Since(w.start)
	return left, w.resting == 0 && left > 0
}

// failed reports whether a rule was broken.
func (w *livePlay) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// turn waits until it is the turn of an actor, which is every so many microseconds: so no two of them move at
// the same instant, and a world is the same whenever it is played.
func (w *livePlay) turn(actor int) {
	turns := int64(len(w.draft.engines) + 1)
	for {
		gone := time.Since(w.start)
		n := (int64(gone) + 999) / 1000
		n += (int64(actor) - n%turns + turns) % turns
		if wait := time.Duration(n)*time.Microsecond - gone; wait > 0 {
			time.Sleep(wait)
			continue
		}
		return
	}
}

// beat lets a node report the truth, unless it is silent.
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

// snapshot returns the state of the ledger itself.
func (w *livePlay) snapshot() *orbit.State {
	state, err := w.ledger.Snapshot(context.Background())
	if err != nil {
		w.fail("ledger", "snapshot: %v", err)
		return new(orbit.State)
	}
	return state
}

// commit proposes the changes of an event. The ledger may refuse them, because events are drawn without a check that
// they are possible.
func (w *livePlay) commit(kind string, do []orbit.Commitment) {
	_, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	if err != nil {
		w.note(kind, fmt.Sprintf("refused: %v", err))
		return
	}
	w.note(kind, do)
}

// note keeps something for the story.
func (w *livePlay) note(who string, what any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, liveLine{time.Since(w.start), who, what})
}

// fail notes the first rule that was broken.
func (w *livePlay) fail(rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = &violation{rule, fmt.Sprintf(format, args...)}
		w.told = append(w.told, liveLine{time.Since(w.start), "broken", w.err.Error()})
	}
}

// engine makes the engine of actor i+1.
func (w *livePlay) engine(i int) *orbit.Engine {
	e := &w.draft.engines[i]
	navigator := w.navigator(e, i)
	if w.Wrap != nil {
		navigator = w.Wrap(e.name, navigator)
	}
	out := &orbit.Engine{
		Name: e.name, MaxPlan: e.maxPlan, PlanTimeout: 100 * time.Millisecond,
		Backoff:   orbit.Backoff{Initial: 5 * time.Millisecond, Max: 250 * time.Millisecond, Jitter: -1},
		Ledger:    liveLedger{Ledger: w.ledger, livePlay: w, engine: e.name, actor: i + 1, draws: &liveDraws{livePlay: w, name: e.name}},
		Navigator: &liveNavigator{Navigator: navigator, livePlay: w, actor: i + 1, assigned: e.assigned, draws: &liveDraws{livePlay: w, name: e.name + "/plan"}},
		OnRound:   w.heard,
	}
	if w.board != nil {
		out.Telemetry = &liveBoard{Board: w.board, draws: &liveDraws{livePlay: w, name: e.name + "/reports"}}
	}
	return out
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
		n = &nav.Gang{}
	case "keeper":
		n = &liveKeeper{placement: placement, draws: &liveDraws{livePlay: w, name: e.name + "/holds"}}
	case "warm":
		n = &sandbox.Warm{Board: w.board, Modules: []string{"none"}, AllowStale: e.allowStale, Seed: uint64(i)}
		filter = nil
	}
	if e.anchored { // its holds end before the rest does, which is shorter than the default: what they keep is judged
		n = &nav.Anchor{Navigator: n, SelfMatch: e.selfMatch, HoldFor: 2 * time.Second, Filter: filter}
	}
	return n
}

// liveFilter keeps work away from nodes that are busy or not heard of.
func liveFilter(_ *orbit.NodeState, r *orbit.Report, _ *orbit.Spec) string {
	if r.Stale || r.CPUPercent > 90 {
		return "are busy or not heard of"
	}
	return ""
}

// heard takes note of a round of an engine.
func (w *livePlay) heard(r orbit.Round) {
	w.note(r.Engine, r)
	for _, err := range r.Errors {
		if errors.Is(err, orbit.ErrInfeasible) && w.calm(r.View) {
			w.fail("infeasible", "engine %s: %v", r.Engine, err)
		}
		if errors.Is(err, orbit.ErrNavigator) && strings.Contains(err.Error(), "it panicked") && !strings.Contains(err.Error(), errMadeUp.Error()) {
			w.fail("panic", "%v", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range r.Unplaced {
		if u.Capsule != nil {
			w.why[u.Capsule.ID] = u.Why
		}
	}
}

// calm reports whether the world rests, and a view shows that.
func (w *livePlay) calm(view orbit.Revision) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resting > 0 && view >= w.resting
}
