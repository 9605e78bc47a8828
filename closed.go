package orbit

import "github.com/orbitsched/orbit/internal/cow"

// Closed returns s as it looks to somebody to whom some nodes are closed: they are unschedulable in it. All else is
// as in s, the revision, the counters, what is used and what is marked included; so a bet that is taken from it is
// a bet on s. A [Ledger] that shows one scheduler a part of the constellation answers Snapshot with it.
//
// Before is what Closed has returned for an older state of the same ledger, and changed are the indices
// ([NodeState.Index]) of nodes that have joined, changed or left since, or for which closed answers otherwise than
// it did; only they are looked at. With a nil before all are. What is returned is a state like any other, but it is
// nobody's history: [State.Apply] goes on from s, not from it.
func (s *State) Closed(before *State, changed []int32, closed func(*NodeState) bool) *State {
	c := s.copy()
	c.owner = cow.NewOwner()
	if before != nil {
		c.nodes = before.nodes
		c.nodes.Grow(s.nodes.Len(), c.owner)
		for _, slot := range changed {
			c.close(s, before, uint32(slot), closed)
		}
		return c
	}
	for slot := range s.nodeBound {
		if n := s.nodeAt(slot); n.occupied && !n.Node.Unschedulable && closed(n) {
			c.close(s, nil, slot, closed)
		}
	}
	return c
}

// close takes a node's record over from another state, with a description that says it is unschedulable if it is closed. As long
// as the node is described alike that is the same one, so whoever tells descriptions apart by identity may.
func (s *State) close(from, before *State, slot uint32, closed func(*NodeState) bool) {
	n := s.ownNode(slot)
	was := *n
	*n = *from.nodeAt(slot)
	switch {
	case !n.occupied || n.Node.Unschedulable || !closed(n):
	case before != nil && was.occupied && was.Node.Unschedulable && was.Specification == n.Specification && was.Node.ID == n.Node.ID:
		n.Node = was.Node
	default:
		description := *n.Node
		description.Unschedulable = true
		n.Node = &description
	}
}
