package shard

import "github.com/orbitsched/orbit"

// Move is a capsule, a gang or a node that has a new owner, or is about to have one.
type Move struct {
	// One of the three: a [Dispatcher] assigns capsules and gangs, [Groups] nodes.
	Capsule orbit.CapsuleID
	Gang    orbit.GangID
	Node    orbit.NodeID
	// From is the scheduler that had it; empty: it was given back. To is the one that gets it.
	From, To string
	Why      Cause
}

// Cause is why something has a new owner.
type Cause string

const (
	// OwnerGone means that the lease of From is over, or there is no such scheduler.
	OwnerGone Cause = "owner gone"
	// Divided means that two schedulers had members of a gang that wait: one was released while the others were
	// assigned. The scheduler that has the first of them gets all.
	Divided Cause = "divided"
	// GivenBack means that a scheduler could not place a capsule or a gang.
	GivenBack Cause = "given back"
	// TriedAgain means that all have failed a capsule or a gang, and it is time to try again.
	TriedAgain Cause = "tried again"
	// ForBalance means that From had more nodes than its part, or To less.
	ForBalance Cause = "balance"
	// NoAnswer means that From has been asked for the node, and has not answered for as long as Patience is. The node was
	// reported once before, when it was asked for.
	NoAnswer Cause = "no answer"
)
