package main

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// tally is the sum of rounds.
type tally struct {
	passes, committed, conflicts, infeasible int
	view, plan, propose                      time.Duration // over all engines
	sample                                   sample
	notes                                    notes
	// Why a class was last found to fit nowhere.
	why map[*orbit.Spec]error
	// Passes with errors, and the first of these.
	failed  int
	failure error
}

// add adds a round. Time for samples does not count as planning.
func (t *tally) add(r orbit.Round) {
	if r.Pending > 0 {
		t.passes++
	}
	t.committed += r.Committed
	t.conflicts += r.Conflicts
	t.infeasible += r.Infeasible
	t.view += r.Viewing
	t.plan += r.Planning
	t.propose += r.Proposing
	for _, note := range r.Notes {
		if s, ok := note.Value.Any().(sample); ok {
			t.sample.add(s)
			t.plan -= s.pause
		} else {
			t.notes.add(note)
		}
	}
	if t.why == nil {
		t.why = map[*orbit.Spec]error{}
	}
	for _, u := range r.Unplaced {
		t.why[u.Capsule.Spec] = u.Why
	}
	if len(r.Errors) > 0 {
		if t.failed++; t.failure == nil {
			t.failure = r.Errors[0]
		}
	}
}

// busy is the time of all three stages.
func (t *tally) busy() time.Duration { return t.view + t.plan + t.propose }

// notes are what navigators measured, numbers alone, summed up by key.
type notes struct {
	sums  map[string]float64
	times map[string]time.Duration
}

func (n *notes) add(note slog.Attr) {
	if n.sums == nil {
		n.sums, n.times = map[string]float64{}, map[string]time.Duration{}
	}
	switch v := note.Value.Resolve(); v.Kind() {
	case slog.KindInt64:
		n.sums[note.Key] += float64(v.Int64())
	case slog.KindUint64:
		n.sums[note.Key] += float64(v.Uint64())
	case slog.KindFloat64:
		n.sums[note.Key] += v.Float64()
	case slog.KindDuration:
		n.times[note.Key] += v.Duration()
	default: // has no sum
	}
}

// String lists the sums, ordered by key.
func (n *notes) String() string {
	words := map[string]string{}
	for key, sum := range n.sums {
		words[key] = strconv.FormatFloat(sum, 'f', -1, 64)
	}
	for key, sum := range n.times {
		words[key] = sum.Round(time.Microsecond).String()
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(words)) {
		out = append(out, key+" "+words[key])
	}
	return strings.Join(out, ", ")
}
