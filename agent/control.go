package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// Control is the rest of the world as agents see it: one for all nodes. [Local] and [Client] implement it. Its methods may be called
// from any goroutine, and return when their context ends.
type Control interface {
	// Join lets a node take work under a new term of its lease. What is known of the node before is replaced.
	Join(ctx context.Context, node orbit.Node, holder string) (Lease, error)
	// Report passes on a report, which names the term, and thereby keeps the term alive. The error is lease.ErrExpired if the
	// term is over.
	Report(ctx context.Context, report orbit.Report) error
	// Watch returns what a node has to run as soon as that may have changed since a revision; at once if that is 0. The error wraps
	// context.DeadlineExceeded if nothing has changed for as long as the call may take.
	Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (Work, error)
	// Confirm commits what the agent of a node says of its capsules. Each statement is judged by itself: there is an outcome for each,
	// in their order. A statement is refused if the term is over.
	Confirm(ctx context.Context, node orbit.NodeID, term orbit.Revision, said []Statement) []orbit.Outcome
}

// Lease is the term that an agent has begun.
type Lease struct {
	// Term identifies it: the epoch of the term.
	Term orbit.Revision `json:"term"`
	// Fence is how long after an accepted report was sent no other node begins what is placed on this one.
	Fence time.Duration `json:"fence"`
}

// Work is what a node has to run, at one revision of the ledger.
type Work struct {
	// Revision is the revision.
	Revision orbit.Revision `json:"revision"`
	// Absent says that there is no such node, or that it is lost: nothing is to run there, and it must join.
	Absent bool `json:"absent,omitempty"`
	// Placed are the capsules that are placed on the node, in the order in which they were placed.
	Placed []Task `json:"placed,omitempty"`
	// Leaving are those that were taken off the node and have not been confirmed as stopped, in the order in which they left.
	Leaving []Instance `json:"leaving,omitempty"`
}

// Instance is one placement of a capsule on a node. A capsule that comes to the same node again is another instance.
type Instance struct {
	// Capsule is the capsule.
	Capsule orbit.CapsuleID `json:"capsule"`
	// Since is the revision at which it was placed ([orbit.Capsule.PlacedAt]).
	Since orbit.Revision `json:"since"`
}

// String reads like web-1@17.
func (i Instance) String() string { return fmt.Sprintf("%s@%d", i.Capsule, i.Since) }

// Task is a placement and what a runtime needs to start it.
type Task struct {
	// Instance is the placement.
	Instance
	// Spec is what the capsule asks for.
	Spec *orbit.Spec `json:"spec"`
	// Labels are those of its submission; what to run is a matter of the importer, and may be said there.
	Labels map[string]string `json:"labels,omitempty"`
	// Gang is the gang that it is a member of; empty: none.
	Gang orbit.GangID `json:"gang,omitempty"`
	// Devices are the device instances that it has.
	Devices orbit.DeviceSet `json:"devices,omitempty"`
	// Note is the note of the placement.
	Note string `json:"note,omitempty"`
	// Begun and Ready are what has been confirmed of it.
	Begun bool `json:"begun,omitempty"`
	Ready bool `json:"ready,omitempty"`
}

// Fact is what an agent says of an instance.
type Fact string

// The facts.
const (
	// Begun: it is about to run.
	Begun Fact = "begun"
	// Serves: it runs and serves.
	Serves Fact = "ready"
	// NotReady: it runs and does not serve.
	NotReady Fact = "notReady"
	// Stopped: it does not run. If the capsule is placed there it returns to pending.
	Stopped Fact = "stopped"
	// Finished: it does not run, because its work is done. The capsule is released for good.
	Finished Fact = "finished"
)

// Statement is a fact about an instance. One that is sent again with the same id has one effect.
type Statement struct {
	// ID is the id of the proposal that commits it.
	ID orbit.ProposalID `json:"id"`
	// Instance is the instance that is meant.
	Instance
	// Fact is what is said of it.
	Fact Fact `json:"fact"`
	// Seen is the revision of the Work that had the task when the statement was made. A Begun is refused if the capsule has got another
	// spec since. 0: that is not known.
	Seen orbit.Revision `json:"seen,omitempty"`
}

// workOf returns what a node has to run in a state.
func workOf(state *orbit.State, id orbit.NodeID) Work {
	w := Work{Revision: state.Revision()}
	if n := state.Node(id); n == nil || n.Node.State == orbit.Lost {
		w.Absent = true
		return w
	}
	for c := range state.On(id) {
		w.Placed = append(w.Placed, Task{
			Instance: Instance{c.ID, c.PlacedAt}, Spec: c.Spec, Labels: c.Labels, Gang: c.Gang, Devices: c.Devices, Note: c.Note,
			Begun: c.Begun, Ready: c.Ready,
		})
	}
	slices.SortFunc(w.Placed, func(a, b Task) int { return a.compare(b.Instance) })
	for r := range state.Remains(id) {
		w.Leaving = append(w.Leaving, Instance{r.Capsule, r.Since})
	}
	return w
}
