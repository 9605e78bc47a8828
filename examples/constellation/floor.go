package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

// placement is one that the run has made.
type placement struct {
	capsule   orbit.CapsuleID
	node      orbit.NodeID
	want      *orbit.Resources
	submitted uint64
}

// placementsOf lists what is placed, in the order of submission.
func placementsOf(state *orbit.State) []placement {
	out := make([]placement, 0, state.CapsuleCount()-state.PendingCount())
	for c := range state.Capsules() {
		if c.Placed() {
			out = append(out, placement{c.ID, c.Node, &c.Spec.Envelope.Reservation, c.Submitted})
		}
	}
	slices.SortFunc(out, func(a, b placement) int { return cmp.Compare(a.submitted, b.submitted) })
	return out
}

// floorRuns is how often the floor is measured; the median counts.
const floorRuns = 3

// floor records all placements on empty nodes and returns what each one took on average.
func floor(state *orbit.State, placements []placement) (time.Duration, error) {
	if len(placements) == 0 {
		return 0, nil
	}
	took := make([]time.Duration, floorRuns)
	for i := range took {
		r := sim.NewRecorder()
		for n := range state.Nodes() {
			r.Join(n.Node.ID, n.Node.Capacity)
		}
		debug.FreeOSMemory() // it starts with new memory, as the run has
		start := time.Now()
		for _, p := range placements {
			if !r.Place(p.capsule, p.node, *p.want) {
				return 0, fmt.Errorf("the floor has no room on node %q for capsule %q, which the ledger has placed there", p.node, p.capsule)
			}
		}
		took[i] = time.Since(start)
		if r.Placed() != len(placements) {
			return 0, fmt.Errorf("the floor has recorded %d of %d placements; there are capsules with the same id", r.Placed(), len(placements))
		}
	}
	slices.Sort(took)
	return took[floorRuns/2], nil
}
