package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
)

// World is a shadow in a world of its own: a fork of a ledger on which other engines live, fed with what happens to the real one from
// outside. Nodes join, change and leave there as they do in reality, and capsules, budgets and marks come and go; who is placed where, and
// who makes way, is up to the World's engines. The real ledger is only read.
//
//	real ledger ── Changes: nodes, submissions, ends, budgets ─► fork ◄─ engines of the World
//	     └────────── placements, evictions ──► Report ◄── placements, evictions ──┘
//
// A capsule ends in the World when it ends in reality, however long it has run there by then. Nodes of the World do not confirm: what
// is placed runs at once, and what leaves stops at once. Work that none of the World's engines plans is placed where it is placed in
// reality, if it fits there. Holds, nominations and protections are the engines' own.
//
// Set the fields before the first call. Methods may be called from any goroutine.
type World struct {
	// Ledger is the real ledger. It is only read. Required.
	Ledger orbit.Ledger
	// Engines makes the engines of the World, on the ledger that they are given. Work is assigned by the names of engines, so use
	// those of the real ones. Run is not called, Pass is. It is called again where the World has to begin anew. Required.
	Engines func(fork orbit.Ledger) []*orbit.Engine
	// Scores rate the placements of both, by name; nil: only agreement is counted. They are called from one goroutine at a time.
	Scores map[string]orbit.Score
	// Telemetry is where scores get reports of nodes from; nil: they get the zero report.
	Telemetry orbit.Telemetry
	// Rounds is how often each engine passes at most in one step; default 100.
	Rounds int
	// Every is how long Run waits at most before it steps again though nothing has happened, for engines that act when time has passed;
	// default 1 s.
	Every time.Duration

	running atomic.Bool

	// Guards what follows.
	mu sync.Mutex
	// The real state that the World has been fed with.
	real    *orbit.State
	fork    *recorder
	engines []*orbit.Engine
	claims  map[claim]bool
	// Nodes that have left in reality, and cannot leave here yet.
	leaving map[orbit.NodeID]bool
	// What one of the two has placed and the other not yet.
	open map[orbit.CapsuleID]*pair
	sum  WorldReport
}

// claim is what a navigator is asked about.
type claim struct {
	module string
	class  orbit.AppClass
}

// pair is where a capsule was placed last.
type pair struct{ real, shadow *choice }

// WorldReport compares a World with reality.
type WorldReport struct {
	// Revision is the real revision that the World has been fed with.
	Revision orbit.Revision
	// Real and Shadow are the two constellations as they are now.
	Real, Shadow WorldTotals
	// Missed counts the real events that the World could not take, such as a placement by others where there is no room.
	Missed int
	// Anew is how often the World has begun anew from the real state, because the history did not reach back.
	Anew int
	// Errors are the latest errors of the World's passes, at most 16.
	Errors []error
	Tally
}

// WorldTotals are the numbers of one constellation.
type WorldTotals struct {
	// Placed and Pending count the capsules.
	Placed, Pending int
	// Utilisation is which part of each dimension is used, from 0 to 1, on nodes that are not lost; 0 where there is none.
	Utilisation [orbit.Dimensions]float64
	// Waits counts the first placements of capsules that the World's engines plan and whose Submit.At and Place.At are known, Waited is
	// how long these have waited together, and Longest the longest of these waits.
	Waits           int
	Waited, Longest time.Duration
}

// String tells the comparison in a few lines.
func (r *WorldReport) String() string {
	line := func(t *WorldTotals) string {
		mean := t.Waited / time.Duration(max(1, t.Waits))
		return fmt.Sprintf("%d placed, %d pending, %.1f%% cpu, %.1f%% memory, waits mean %v, longest %v", t.Placed, t.Pending,
			100*t.Utilisation[orbit.CPU], 100*t.Utilisation[orbit.Memory], mean.Round(time.Microsecond), t.Longest.Round(time.Microsecond))
	}
	return fmt.Sprintf("at revision %d: real %s\n  shadow %s\n  %d events missed, begun anew %d times, %d errors\n%s",
		r.Revision, line(&r.Real), line(&r.Shadow), r.Missed, r.Anew, len(r.Errors), &r.Tally)
}

// Run steps whenever something has happened in reality, until ctx ends, and then returns nil. An error of the real ledger ends it;
// the World stays as it is, and Run may be called again. It refuses, with an error, to run with a fault in the fields or twice at a
// time.
func (w *World) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("whatif: the world runs already")
	}
	defer w.running.Store(false)
	for ctx.Err() == nil {
		seen, err := w.step(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, cmp.Or(max(0, w.Every), time.Second))
		_, err = w.Ledger.Wait(soon, seen)
		elapsed := soon.Err() != nil
		cancel()
		if err != nil && !elapsed {
			return err
		}
	}
	return nil
}

// Step feeds the World with what has happened since the last step, has its engines pass until they rest, and returns the report. The
// first step begins with the real state as it is.
func (w *World) Step(ctx context.Context) (*WorldReport, error) {
	if _, err := w.step(ctx); err != nil {
		return nil, err
	}
	return w.Report(), nil
}

func (w *World) step(ctx context.Context) (seen orbit.Revision, err error) {
	if w.Ledger == nil || w.Engines == nil {
		return 0, errors.New("whatif: a World needs the Ledger that it reads, and Engines, which makes the engines that live in it")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now, changes, whole, err := w.real.CatchUp(ctx, w.Ledger)
	switch {
	case err != nil:
		return 0, err
	case whole:
		err = w.begin(ctx, now)
	default:
		err = w.feedAll(ctx, now, changes)
	}
	if err != nil {
		return 0, err
	}
	_, err = settle(ctx, w.engines, cmp.Or(max(0, w.Rounds), 100), func() int { return w.fork.commits }, func(round *orbit.Round) {
		w.sum.Errors = latest(w.sum.Errors, round.Errors)
	}, func() error { return nil })
	w.takeShadow()
	return now.Revision(), err
}

// begin makes the World from a real state.
func (w *World) begin(ctx context.Context, now *orbit.State) error {
	fork := newRecorder(now, raters{w.Scores, w.Telemetry})
	engines := w.Engines(fork)
	for _, e := range engines {
		if e == nil || e.Ledger != orbit.Ledger(fork) {
			return errors.New("whatif: World.Engines must return engines on the very ledger that it is given; another one might be written to")
		}
	}
	if w.real != nil {
		w.sum.Anew++
	}
	w.real, w.fork, w.engines = now, fork, engines
	w.claims, w.leaving, w.open = map[claim]bool{}, map[orbit.NodeID]bool{}, map[orbit.CapsuleID]*pair{}
	for n := range now.Nodes() {
		for r := range now.Remains(n.Node.ID) {
			w.do(ctx, orbit.Confirm{Capsule: r.Capsule, Since: r.Since, Stopped: true})
		}
		if n.Node.Confirms && n.Node.State != orbit.Lost {
			w.putNode(ctx, *n.Node)
		}
	}
	return nil
}

// takeReal counts what a real commit has placed and evicted.
func (w *World) takeReal(changes []orbit.Change, before, after *orbit.State) {
	w.sum.Evicted += w.fork.choices(changes, before, after, func(c *orbit.Capsule, to choice) {
		if w.plans(c) {
			w.pair(c.ID).real = &to
			w.meet(c.ID)
			w.sum.Real.wait(to.waited)
		}
	})
}

// takeShadow counts what the World's engines have placed and evicted.
func (w *World) takeShadow() {
	w.sum.ShadowEvicted, w.sum.Revision = w.fork.evicted, w.real.Revision()
	for id, to := range w.fork.placed {
		w.pair(id).shadow = &to
		w.meet(id)
		w.sum.Shadow.wait(to.waited)
	}
	clear(w.fork.placed)
}

func (w *World) pair(id orbit.CapsuleID) *pair {
	if w.open[id] == nil {
		w.open[id] = &pair{}
	}
	return w.open[id]
}

// meet compares the placements of a capsule when both have placed it.
func (w *World) meet(id orbit.CapsuleID) {
	if p := w.open[id]; p.real != nil && p.shadow != nil {
		w.sum.both(*p.real, *p.shadow)
		delete(w.open, id)
	}
}

// wait counts a wait, unless it is negative.
func (t *WorldTotals) wait(waited time.Duration) {
	if waited < 0 {
		return
	}
	t.Waits++
	t.Waited += waited
	t.Longest = max(t.Longest, waited)
}

// Report returns the comparison as it is after the last step. It looks at each node of both constellations. Capsules that only one of
// the two has placed, and that have not ended, are in OnlyReal and OnlyShadow.
func (w *World) Report() *WorldReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.sum
	r.Tally = w.sum.clone()
	for _, p := range w.open {
		if p.real != nil {
			r.OnlyReal++
		} else {
			r.OnlyShadow++
		}
	}
	if w.real != nil {
		r.Real.count(w.real)
		if state, err := w.fork.Snapshot(context.Background()); err == nil {
			r.Shadow.count(state)
		}
	}
	return &r
}

// count counts capsules and what they use.
func (t *WorldTotals) count(s *orbit.State) {
	var used, capacity [orbit.Dimensions]float64
	t.Pending = s.PendingCount()
	for n := range s.Nodes() {
		t.Placed += n.Capsules
		if n.Node.State == orbit.Lost {
			continue
		}
		for d, u := range n.Used() {
			used[d] += float64(u)
			capacity[d] += float64(n.Node.Capacity[d])
		}
	}
	for d := range used {
		if capacity[d] > 0 {
			t.Utilisation[d] = used[d] / capacity[d]
		}
	}
}
