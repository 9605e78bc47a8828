package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
)

// report has the results of all rounds.
type report struct {
	options
	rounds  []tally
	samples *sampler
	// left has the capsules that the last round has not placed.
	left []leftover
}

// add adds the results of a round. It does not keep the round's ledger.
func (r *report) add(run *run) {
	r.rounds = append(r.rounds, run.tally)
	r.left = leftOver(run.state, run.tally.why)
	if run.sampler != nil {
		r.samples = run.sampler
	}
}

// print writes the table and the lines below it for the round with the median multiple of the floor. The last line sums
// up all rounds.
func (r *report) print(out io.Writer) {
	slices.SortFunc(r.rounds, func(a, b tally) int { return cmp.Compare(a.floors(), b.floors()) })
	t := &r.rounds[len(r.rounds)/2]
	plural := ""
	if r.navigators > 1 {
		plural = "s"
	}
	fmt.Fprintf(out, "%s engine, %s order, %d navigator%s; the median of %d rounds\n", r.engine, r.order, r.navigators, plural, len(r.rounds))
	r.printStages(out, t)
	r.printMultiples(out, t)
	if r.verbose {
		fmt.Fprintf(out, "%d passes, %d conflicts; notes: %s\n", t.passes, t.conflicts, t.notes.String())
	}
	if peak := peakMemory(); peak != "" {
		fmt.Fprintf(out, "memory: peak %s, with the floor's\n", peak)
	}
	fmt.Fprintln(out, "verify: ok")
	r.printLeft(out)
	fmt.Fprintf(out, "placed %d of %d in %v, %.1f x floor\n", t.committed, r.capsules, t.wall.Round(time.Millisecond), t.floors())
}

// micros returns t divided by a number, in microseconds.
func micros(t time.Duration, by int) float64 {
	return float64(t.Nanoseconds()) / 1000 / float64(max(by, 1))
}

func (r *report) printStages(out io.Writer, t *tally) {
	fmt.Fprintf(out, "%-22s %10s %13s\n", "stage", "total", "µs/capsule")
	row := func(name string, took time.Duration, capsules int) {
		fmt.Fprintf(out, "%-22s %9.3fs %13.2f\n", name, took.Seconds(), micros(took, capsules))
	}
	row("submit", t.submit, r.capsules)
	row("view", t.view, t.committed)
	row("plan", t.plan, t.committed)
	row("propose", t.propose, t.committed)
	row("wall, without submit", t.wall, t.committed)
	if r.navigators > 1 {
		fmt.Fprintf(out, "View, plan and propose are summed over %d navigators that work at the same time.\n", r.navigators)
	}
	fmt.Fprintln(out)
}

// printMultiples compares the cost of a placement with the floor, and with one choice of the reference engine.
func (r *report) printMultiples(out io.Writer, t *tally) {
	var floors []time.Duration
	for i := range r.rounds {
		floors = append(floors, r.rounds[i].floor)
	}
	slices.Sort(floors)
	each := micros(t.spent, t.committed)
	fmt.Fprintf(out, "%s for one placement\n", cputime.Name)
	fmt.Fprintf(out, "  floor      %8.2f µs (%.2f to %.2f): merely to record it: lock, find the node, check, subtract, insert into a map\n",
		micros(floors[len(floors)/2], t.committed), micros(floors[0], t.committed), micros(floors[len(floors)-1], t.committed))
	fmt.Fprintf(out, "  here       %8.2f µs: all threads, the garbage collector too; %.1f x floor (%.1f to %.1f)\n",
		each, t.floors(), r.rounds[0].floors(), r.rounds[len(r.rounds)-1].floors())
	if s := r.samples; s != nil && t.committed > 0 {
		exhaustive := micros(s.took, s.calls)
		fmt.Fprintf(out, "  exhaustive %8.2f µs: only to choose a machine by rating all, in %d calls at %d points of the run; %.0f x a placement here\n",
			exhaustive, s.calls, s.points, exhaustive/each)
	}
	fmt.Fprintln(out)
}

var highWater = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)

// peakMemory returns the most memory that the process has used so far; "" if the operating system does not report it.
func peakMemory() string {
	status, _ := os.ReadFile("/proc/self/status")
	found := highWater.FindSubmatch(status)
	if found == nil {
		return ""
	}
	kib, _ := strconv.Atoi(string(found[1])) // digits alone
	return fmt.Sprintf("%d MiB", kib>>10)
}

// leftover is the number of capsules that were not placed for the same reason.
type leftover struct {
	capsules int
	why      string
}

// leftOver counts the pending capsules by their reason, the most frequent first.
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

// maxReasons is how many reasons are printed at most.
const maxReasons = 5

func (r *report) printLeft(out io.Writer) {
	if len(r.left) == 0 {
		return
	}
	fmt.Fprintf(out, "%d capsules are not placed:\n", r.capsules-r.rounds[0].committed)
	for i, l := range r.left {
		if i == maxReasons {
			fmt.Fprintf(out, "         and %d more reasons\n", len(r.left)-maxReasons)
			break
		}
		fmt.Fprintf(out, "%8d %s\n", l.capsules, l.why)
	}
}
