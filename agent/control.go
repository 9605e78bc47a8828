package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// Control is the interface through which agents reach the ledger, the leases and the telemetry. One Control serves all
// nodes. [Local] and [Client] implement it. Its methods may be called from any goroutine, and return when their context
// ends.
type Control interface {
	// Join lets a node take work under a new term of its lease. The node is merged with the known description of it, as
	// lease.Members.Join says. The holder is the name of the machine, a "#", and a name of the agent's run.
	Join(ctx context.Context, node orbit.Node, holder string) (Lease, error)
	// Leave says that the agent of a term has ended and left its capsules running, so that another agent of the same
	// machine may join at once. The error is lease.ErrExpired if the term is over.
	Leave(ctx context.Context, node orbit.NodeID, term orbit.Revision) error
	// Report stores a report. An accepted report refreshes the term that it names. The error is lease.ErrExpired if the
	// term is over.
	Report(ctx context.Context, report orbit.Report) error
	// Watch returns the work of a node as soon as it may have changed since the revision after; with after 0 at once.
	// The error wraps context.DeadlineExceeded if nothing has changed before the call's time is over.
	Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (Work, error)
	// Confirm commits the statements of a node's agent about its instances. Each statement is judged by itself; the
	// outcomes are in the order of the statements. All statements are refused if the term is over.
	Confirm(ctx context.Context, node orbit.NodeID, term orbit.Revision, said []Statement) []orbit.Outcome
}

// Lease is the term that an agent has begun.
type Lease struct {
	// Term is the epoch of the term, which identifies it. 0: no term has begun, because another agent of the same machine
	// has reported lately; join again.
	Term orbit.Revision `json:"term"`
	// Fence is a duration: for this long after an accepted report was sent, the node's capsules are started on no other
	// node. Without a term the same holds from when Join was sent.
	Fence time.Duration `json:"fence"`
	// Wait is, if Term is 0, the time after which Join succeeds if the other agent has died.
	Wait time.Duration `json:"wait,omitempty"`
}

// Work lists the capsules that a node has to run or to stop, at one revision of the ledger.
type Work struct {
	// Revision is the ledger's revision.
	Revision orbit.Revision `json:"revision"`
	// Absent says that the node does not exist or is Lost: nothing must run there, and the agent has to join.
	Absent bool `json:"absent,omitempty"`
	// Placed are the capsules that are placed on the node, in the order in which they were placed.
	Placed []Task `json:"placed,omitempty"`
	// Leaving are the instances that were taken off the node and have not been confirmed as stopped, in the order in
	// which they left.
	Leaving []Instance `json:"leaving,omitempty"`
}

// Instance is one placement of a capsule on a node. If a capsule is placed on the same node again, that is another
// instance.
type Instance struct {
	// Capsule is the id of the capsule.
	Capsule orbit.CapsuleID `json:"capsule"`
	// Since is the revision at which the capsule was placed ([orbit.Capsule.PlacedAt]).
	Since orbit.Revision `json:"since"`
}

// String returns the capsule and the revision, as in web-1@17.
func (i Instance) String() string { return fmt.Sprintf("%s@%d", i.Capsule, i.Since) }

// Task is a placement with everything that a runtime needs to start it.
type Task struct {
	// Instance is the placement.
	Instance
	// Spec is what the capsule asks for.
	Spec *orbit.Spec `json:"spec"`
	// Labels are the labels with which the capsule was submitted. orbit does not say what program a capsule runs; the
	// importer may say so in a label.
	Labels map[string]string `json:"labels,omitempty"`
	// Gang is the capsule's gang; empty: none.
	Gang orbit.GangID `json:"gang,omitempty"`
	// Devices are the device instances that the placement has.
	Devices orbit.DeviceSet `json:"devices,omitempty"`
	// Note is the note of the placement.
	Note string `json:"note,omitempty"`
	// Begun and Ready say what has been confirmed of the placement.
	Begun bool `json:"begun,omitempty"`
	Ready bool `json:"ready,omitempty"`
}

// Fact is a statement's claim about an instance.
type Fact string

// The facts that an agent can state about an instance.
const (
	// Begun means that the instance is about to run.
	Begun Fact = "begun"
	// Serves means that the instance runs and serves.
	Serves Fact = "ready"
	// NotReady means that the instance runs and does not serve.
	NotReady Fact = "notReady"
	// Stopped means that the instance does not run. If the capsule is still placed there, it returns to pending.
	Stopped Fact = "stopped"
	// Finished means that the instance does not run because its work is done. The capsule is released for good.
	Finished Fact = "finished"
)

// Statement is a fact about an instance. A statement that is sent again with the same id has no second effect.
type Statement struct {
	// ID is the id of the proposal that commits the statement.
	ID orbit.ProposalID `json:"id"`
	// Instance is the instance that the fact is about.
	Instance
	// Fact is the fact.
	Fact Fact `json:"fact"`
	// Seen is the revision of the newest Work when the statement was made. A Begun is refused if the capsule has got
	// another spec since. 0: the revision is not known, and this is not checked.
	Seen orbit.Revision `json:"seen,omitempty"`
}

// workOf returns the work of a node in a state.
func workOf(state *orbit.State, id orbit.NodeID) Work {
	w := Work{Revision: state.Revision()}
	if n := state.Node(id); n == nil || n.Node.State == orbit.Lost {
		w.Absent = true
		return w
	}
	for c := range state.On(id) {
		w.Placed = append(w.Placed, Task{
			Instance: Instance{c.ID, c.PlacedAt}, Spec: c.Spec, Labels: c.Labels(), Gang: c.Gang(), Devices: c.Devices, Note: c.Note(),
			Begun: c.Begun, Ready: c.Ready,
		})
	}
	for r := range state.Remains(id) {
		if r.Surge { // it runs on, as if it were placed there
			c := state.Capsule(r.Capsule)
			w.Placed = append(w.Placed, Task{
				Instance: Instance{r.Capsule, r.Since}, Spec: r.Spec, Labels: c.Labels(), Devices: r.Devices, Note: r.Note, Begun: true, Ready: r.Ready,
			})
			continue
		}
		w.Leaving = append(w.Leaving, Instance{r.Capsule, r.Since})
	}
	slices.SortFunc(w.Placed, func(a, b Task) int { return a.compare(b.Instance) })
	return w
}
