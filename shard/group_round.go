package shard

import (
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// Regrouping is what one Step of [Groups] did.
type Regrouping struct {
	// View is the revision of the state that the Step decided on.
	View orbit.Revision
	// Grouped is the number of nodes that had no owner and have one now.
	Grouped int
	// Moved are the nodes that had an owner and were given, or are about to be given, to another one, sorted by node.
	Moved []Move
	// Ended is the number of handoffs that were completed, Cancelled the number of those that were given up.
	Ended, Cancelled int
	// Waiting is the number of handoffs under way after the Step.
	Waiting int
	// Cleared is the number of nodes whose marks were deleted, because the node has left or is unschedulable and its owner
	// is dead.
	Cleared int
	// Ungrouped is the number of schedulable nodes without a living owner.
	Ungrouped int
	// Groups are the groups of all living schedulers, sorted by name, as they will be when all handoffs have ended.
	Groups []Group
	// Balanced says that the share of every group differs from the mean by at most Tolerance or one node.
	Balanced bool
	// Conflicts is the number of proposals that were refused because something had changed; the next Step decides again.
	Conflicts int
	// Errors are all other errors, at most 16.
	Errors []error

	// deadline is when the Patience of the first handoff is over; zero: none is waited for.
	deadline time.Time
}

// Group is the set of nodes of one scheduler.
type Group struct {
	// Scheduler is the scheduler's name.
	Scheduler string
	// Nodes is the number of schedulable nodes.
	Nodes int
	// Worst is the quantity that differs most from its mean, such as "memory" or "free memory". Off is the difference as a
	// fraction of the mean share of the capacity: 0.1 is a tenth too much, -0.1 a tenth too little.
	Worst string
	Off   float64
}

// String returns a one-line summary.
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

// active reports whether the Step did something.
func (r *Regrouping) active() bool {
	return r.Grouped+len(r.Moved)+r.Ended+r.Cancelled+r.Cleared+r.Conflicts > 0
}
