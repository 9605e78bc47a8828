package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// report is all there is to say of a run.
type report struct {
	options           options
	submitted, placed int
	submitting        time.Duration
	tally             tally
	// From start to end, without samples.
	wall time.Duration
	// Of all placements together.
	floor time.Duration
	// Live bytes when all was submitted, and the most the process has taken until all was placed.
	heap, peak  uint64
	left        []leftover
	interrupted bool
}

// print writes the table and what goes with it. The last line sums up.
func (r *report) print(out io.Writer) {
	if r.interrupted {
		fmt.Fprint(out, "interrupted\n\n")
	}
	r.printStages(out)
	r.printCounts(out)
	r.printExhaustive(out)
	if notes := r.tally.notes.String(); notes != "" {
		fmt.Fprintf(out, "notes: %s\n", notes)
	}
	fmt.Fprintf(out, "memory: peak %s; live %s when all was submitted\n", mebibytes(r.peak), mebibytes(r.heap))
	fmt.Fprintln(out, "verify: ok")
	r.printLeft(out)
	fmt.Fprintf(out, "placed %d of %d in %v, %.1f x floor\n",
		r.placed, r.submitted, r.took().Round(time.Millisecond), r.floors(r.took(), r.placed))
}

// took is what the run took: the stages, or with several navigators, whose stages overlap, the wall time.
func (r *report) took() time.Duration {
	if r.options.navigators > 1 {
		return r.wall
	}
	return r.tally.busy()
}

// each divides a time by the placements, in microseconds.
func (r *report) each(t time.Duration) float64 { return micros(t, r.placed) }

// micros divides a time, in microseconds.
func micros(t time.Duration, by int) float64 {
	return float64(t.Nanoseconds()) / 1000 / float64(max(by, 1))
}

// floors is a time for so many capsules as a multiple of the floor for as many; 0 if nothing was placed.
func (r *report) floors(t time.Duration, capsules int) float64 {
	if r.floor == 0 {
		return 0
	}
	return micros(t, capsules) / r.each(r.floor)
}

func (r *report) printStages(out io.Writer) {
	all := r.tally.busy()
	fmt.Fprintf(out, "%-18s %10s %13s %7s %8s\n", "stage", "total", "µs/placement", "share", "x floor")
	row := func(name string, t time.Duration, capsules int, share string) {
		fmt.Fprintf(out, "%-18s %9.3fs %13.3f %7s %8.1f\n", name, t.Seconds(), micros(t, capsules), share, r.floors(t, capsules))
	}
	row("submit", r.submitting, r.submitted, "")
	for _, s := range []struct {
		name string
		took time.Duration
	}{{"view", r.tally.view}, {"plan", r.tally.plan}, {"propose", r.tally.propose}, {"view+plan+propose", all}} {
		row(s.name, s.took, r.placed, fmt.Sprintf("%.0f%%", 100*float64(s.took)/float64(max(all, 1))))
	}
	row("wall", r.wall, r.placed, "")
	row("floor", r.floor, r.placed, "")
	if r.options.navigators > 1 {
		fmt.Fprintf(out, "Stages are summed over %d navigators that work at the same time; wall is from start to end.\n", r.options.navigators)
	} else {
		fmt.Fprintln(out, "Wall is from start to end, with what lies between the stages.")
	}
	fmt.Fprintln(out, "Floor is merely recording the same placements: lock, find the node, check, subtract, insert into a map.")
	fmt.Fprintln(out)
}

func (r *report) printCounts(out io.Writer) {
	fmt.Fprintf(out, "%.0f placements/s; %d passes, %d conflicts, %d infeasible\n",
		perSecond(r.placed, r.took()), r.tally.passes, r.tally.conflicts, r.tally.infeasible)
}

// printExhaustive compares what a placement took with one choice of the reference engine.
func (r *report) printExhaustive(out io.Writer) {
	s := r.tally.sample
	if s.calls == 0 || r.placed == 0 {
		return
	}
	each := micros(s.took, s.calls)
	fmt.Fprintf(out, "exhaustive: %.1f µs to choose one node, by %d calls sampled at %d points of the run: %.1f times what a whole placement took here\n",
		each, s.calls, s.times, each/r.each(r.took()))
}

// leftover is how many capsules were not placed for the same reason.
type leftover struct {
	capsules int
	why      string
}

// leftOver counts what is pending by why it is, most frequent first.
func leftOver(state *orbit.State, why map[*orbit.Spec]error) []leftover {
	if state.PendingCount() == 0 {
		return nil
	}
	counts := map[string]int{}
	for c := range state.Capsules() {
		switch err := why[c.Spec]; {
		case !c.Pending():
		case err == nil:
			counts["it was not their turn yet"]++
		default:
			counts[err.Error()]++
		}
	}
	var out []leftover
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, leftover{counts[text], text})
	}
	slices.SortStableFunc(out, func(a, b leftover) int { return cmp.Compare(b.capsules, a.capsules) })
	return out
}

// maxReasons is how many reasons are printed.
const maxReasons = 5

func (r *report) printLeft(out io.Writer) {
	if len(r.left) == 0 {
		return
	}
	fmt.Fprintf(out, "%d capsules are not placed:\n", r.submitted-r.placed)
	for i, l := range r.left {
		if i == maxReasons {
			fmt.Fprintf(out, "         and %d more reasons\n", len(r.left)-maxReasons)
			break
		}
		fmt.Fprintf(out, "%8d %s\n", l.capsules, l.why)
	}
}
