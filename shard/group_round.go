package shard

import (
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// Regrouping is what one Step of [Groups] did.
type Regrouping struct {
	// What it is based on.
	View orbit.Revision
	// Nodes that had no owner and have one now.
	Grouped int
	// Nodes that had one and were given, or are about to be given, to another one, ordered by node.
	Moved []Move
	// Handoffs that were ended: the nodes have changed hands. Those that were begun and given up are in Cancelled.
	Ended, Cancelled int
	// Handoffs under way after the Step.
	Waiting int
	// Nodes that have left, or are unschedulable and whose owner is gone, of which the marks were deleted.
	Cleared int
	// Schedulable nodes that have no owner that lives.
	Ungrouped int
	// The groups of all that live, ordered by scheduler, as they are when all handoffs have ended.
	Groups []Group
	// Every group is within Tolerance of its part, or one node.
	Balanced bool
	// Changes lost to another one; the next Step sees it.
	Conflicts int
	// All else that went wrong, at most 16.
	Errors []error

	// When the first handoff has waited long enough; zero: none will.
	deadline time.Time
}

// Group is what one scheduler has.
type Group struct {
	Scheduler string
	// Schedulable nodes.
	Nodes int
	// The quantity that is furthest from its mean, as in "memory" or "free memory", and how far: a tenth more than
	// its part of the constellation's capacity is 0.1.
	Worst string
	Off   float64
}

// String sums the round up in a line.
func (r Regrouping) String() string {
	why := map[Cause]int{}
	for _, m := range r.Moved {
		why[m.Why]++
	}
	line := fmt.Sprintf("at %d: %d nodes grouped, %d moved (%d for balance, %d owner gone, %d no answer), %d handoffs ended, %d cancelled, %d wait, %d cleared, %d ungrouped, %d conflicts, %d errors",
		r.View, r.Grouped, len(r.Moved), why[ForBalance], why[OwnerGone], why[NoAnswer], r.Ended, r.Cancelled, r.Waiting, r.Cleared, r.Ungrouped, r.Conflicts, len(r.Errors))
	if !r.Balanced {
		line += "; out of balance"
	}
	return line
}

// active reports whether there was anything to do.
func (r *Regrouping) active() bool {
	return r.Grouped+len(r.Moved)+r.Ended+r.Cancelled+r.Cleared+r.Conflicts > 0
}
