package shard

import "github.com/orbitsched/orbit"

// Move is a capsule, a gang or a node that has a new owner, or is about to have one.
type Move struct {
	// Capsule, Gang or Node is what has moved; the other two are empty. A [Dispatcher] moves capsules and gangs, [Groups]
	// moves nodes.
	Capsule orbit.CapsuleID
	Gang    orbit.GangID
	Node    orbit.NodeID
	// From is the previous owner; empty: there was none, because it was given back. To is the new owner.
	From, To string
	// Why is the reason of the move.
	Why Cause
}

// Cause is the reason of a [Move].
type Cause string

const (
	// OwnerGone means that the lease of From is over, or that From is not a scheduler.
	OwnerGone Cause = "owner gone"
	// GivenBack means that a scheduler could not place a capsule or a gang.
	GivenBack Cause = "given back"
	// TriedAgain means that all schedulers have failed to place a capsule or a gang, and that its retry is due.
	TriedAgain Cause = "tried again"
	// ForBalance means that the group of From was too large, or the group of To too small.
	ForBalance Cause = "balance"
	// NoAnswer means that From was asked for the node and did not answer within Groups.Patience. The node was reported
	// before, when From was asked.
	NoAnswer Cause = "no answer"
)
