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

// World is a fork of a ledger that follows the real ledger, and on which other engines plan. Nodes join, change and
// leave in the World as they do in reality, and so do capsules, budgets and marks. The World's own engines decide on
// placements and evictions. The real ledger is only read.
//
//	real ledger ── Changes: nodes, submissions, ends, budgets ─► fork ◄─ engines of the World
//	     └────────── placements, evictions ──► Report ◄── placements, evictions ──┘
//
// A capsule ends in the World when it ends in reality, however long it has run in the World by then. Nodes of the World
// do not confirm: a placed capsule runs at once, and a released or evicted one stops at once. A capsule that none of
// the World's engines plans is placed on the same node as in reality, if it fits there. Holds, nominations and
// protections of the real ledger are not repeated; the World's engines make their own.
//
// Set the fields before the first call. Methods may be called from any goroutine.
type World struct {
	// Ledger is the real ledger. It is only read. Required.
	Ledger orbit.Ledger
	// Engines makes the engines of the World. They must use the ledger that Engines is called with. Give them the names
	// of the real engines, because work may be assigned to these names. The World calls their Pass and never their Run.
	// It calls Engines again if it has to begin anew. Required.
	Engines func(fork orbit.Ledger) []*orbit.Engine
	// Scores rate the placements of both, by name; nil: only agreement is counted. They are called from one goroutine
	// at a time.
	Scores map[string]orbit.Score
	// Telemetry has the nodes' reports for the scores; nil: scores get the zero report.
	Telemetry orbit.Telemetry
	// Rounds is how often each engine passes at most in one step; default 100.
	Rounds int
	// Every is the longest time between two steps of Run, even if the real ledger does not change, for engines that act
	// when time has passed; default 1 s.
	Every time.Duration

	running atomic.Bool

	mu sync.Mutex // guards the fields below
	// real is the real state up to which the World has been fed.
	real    *orbit.State
	fork    *recorder
	engines []*orbit.Engine
	claims  map[claim]bool // the answers of plans
	// leaving are nodes that have left in reality and cannot be removed from the World yet.
	leaving map[orbit.NodeID]bool
	// open are the capsules that only one of the two has placed so far.
	open map[orbit.CapsuleID]*pair
	sum  WorldReport
}

// claim is the arguments of [orbit.Navigator] Claims.
type claim struct {
	module string
	class  orbit.AppClass
}

// pair is the last real placement of a capsule and the last one in the World; nil: none yet.
type pair struct{ real, shadow *choice }

// WorldReport compares a World with reality.
type WorldReport struct {
	// Revision is the real revision up to which the World has been fed.
	Revision orbit.Revision
	// Real and Shadow are the totals of the real constellation and of the World's.
	Real, Shadow WorldTotals
	// Missed counts the real commits that could not be repeated in the World, such as a placement on a node that has no
	// free capacity for it there.
	Missed int
	// Anew is how often the World has begun anew from the real state, because the ledger's history did not reach back.
	Anew int
	// Errors are the latest errors of the World's passes, at most 16.
	Errors []error
	Tally
}

// WorldTotals are the numbers of one constellation.
type WorldTotals struct {
	// Placed and Pending count the capsules.
	Placed, Pending int
	// Utilisation is the used fraction of each dimension on nodes that are not lost, from 0 to 1, more if nodes are
	// overcommitted; 0 if no node has the dimension.
	Utilisation [orbit.Dimensions]float64
	// Waits counts the first placements of capsules that the World's engines plan and whose Submit.At and Place.At are
	// known. Waited is the sum of the times from submission to these placements, and Longest the longest of them.
	Waits           int
	Waited, Longest time.Duration
}

// String returns the comparison in a few lines.
func (r *WorldReport) String() string {
	line := func(t *WorldTotals) string {
		mean := t.Waited / time.Duration(max(1, t.Waits))
		return fmt.Sprintf("%d placed, %d pending, %.1f%% cpu, %.1f%% memory, waits mean %v, longest %v", t.Placed, t.Pending,
			100*t.Utilisation[orbit.CPU], 100*t.Utilisation[orbit.Memory], mean.Round(time.Microsecond), t.Longest.Round(time.Microsecond))
	}
	return fmt.Sprintf("at revision %d: real %s\n  shadow %s\n  %d events missed, begun anew %d times, %d errors\n%s",
		r.Revision, line(&r.Real), line(&r.Shadow), r.Missed, r.Anew, len(r.Errors), &r.Tally)
}

// Run steps whenever the real ledger has changed, and at least as often as Every says, until ctx ends; then it returns
// nil. An error of the real ledger ends Run; the World keeps its state, and Run may be called again. Run returns an
// error at once if a required field is missing, or if another call of Run has not returned.
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

// Step repeats in the World the real changes since the last step, lets the World's engines pass until they rest, and
// returns the report. The first step begins with the current real state.
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

// begin makes the World anew from a real state. It ends all confirmations there: capsules that have left a node are
// confirmed as stopped, and nodes no longer confirm.
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

// takeReal counts the placements and evictions of a real commit.
func (w *World) takeReal(changes []orbit.Change, before, after *orbit.State) {
	w.sum.Evicted += w.fork.choices(changes, before, after, func(c *orbit.Capsule, to choice) {
		if w.plans(c) {
			w.pair(c.ID).real = &to
			w.meet(c.ID)
			w.sum.Real.wait(to.waited)
		}
	})
}

// takeShadow counts the placements and evictions of the World's engines since the last step.
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

// Report returns the comparison after the last step. It visits each node of both constellations. OnlyReal and
// OnlyShadow count the capsules that only one of the two has placed so far and that have not ended.
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

// count fills in the numbers of capsules and the utilisation from a state.
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
