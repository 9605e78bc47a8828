package shard

import (
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// partitionView is the ledger's state as one scheduler sees it: nodes that are not in its group, or are leaving it, are
// closed. It follows the ledger's changes, and its cost grows with their number.
//
// Invariants: shown is state with those nodes closed, at the same revision. Own has every node whose group mark names
// the scheduler, even if the node itself has left. Open and nodes count the schedulable nodes in shown and in state.
type partitionView struct {
	ledger    orbit.Ledger
	scheduler string

	state, shown *orbit.State
	own          map[orbit.NodeID]holding
	open, nodes  int
	// asked are the nodes of own that are leaving and have not been answered for.
	asked map[orbit.NodeID]bool
	// touched are the indices of nodes that have changed since shown, described those of nodes that may have been
	// opened or closed since then.
	touched, described []int32
	// recent are the changes that were read last, with the revision that they follow.
	recent []orbit.Change
	after  orbit.Revision
}

// holding is a node that the scheduler owns.
type holding struct {
	// fence is the bet that the group mark has not changed.
	fence orbit.MarkAt
	// bet is fence as an interface value, made once to save allocations.
	bet orbit.Precondition
	// leaving is the revision at which the scheduler was asked for the node; 0: it was not asked.
	leaving orbit.Revision
}

// follow brings the view up to the ledger's current state.
func (s *partitionView) follow(ctx context.Context) error {
	state, changes, whole, err := s.state.CatchUp(ctx, s.ledger)
	switch {
	case err != nil:
		return err
	case whole:
		s.rebuild(state)
	case state != s.state:
		s.recent, s.after = changes, s.state.Revision()
		s.advance(state, changes)
	}
	return nil
}

// rebuild reads all nodes and marks of a state.
func (s *partitionView) rebuild(state *orbit.State) {
	s.own, s.asked = map[orbit.NodeID]holding{}, map[orbit.NodeID]bool{}
	s.recent, s.after = nil, 0
	for key, owner := range state.Marks(string(groupMark)) {
		if id, ok := groupMark.id(key); ok && owner == s.scheduler {
			s.learn(state, orbit.NodeID(id))
		}
	}
	s.state, s.shown = state, state.Restricted(nil, nil, s.closed)
	s.open, s.nodes = 0, 0
	for n := range s.shown.Nodes() {
		s.open += count(n)
	}
	for n := range state.Nodes() {
		s.nodes += count(n)
	}
}

// advance moves to a newer state by the changes that led to it.
func (s *partitionView) advance(state *orbit.State, changes []orbit.Change) {
	s.touched, s.described = s.touched[:0], s.described[:0]
	for i := range changes {
		c := &changes[i]
		if _, id, ok := nodeOfMark(c); ok {
			s.learn(state, id)
			s.describe(state, id)
			continue
		}
		switch c.Do.(type) {
		case orbit.PutNode, orbit.RemoveNode:
			s.describe(state, c.Node)
		default:
			if n := state.Node(c.Node); n != nil { // otherwise it has left, and a later change removes it
				s.touched = append(s.touched, int32(n.Index()))
			}
		}
	}
	s.described = unique(s.described)
	s.touched = unique(append(s.touched, s.described...))
	was, wasShown := s.state, s.shown
	s.state, s.shown = state, state.Restricted(s.shown, s.touched, s.closed)
	for _, i := range s.described {
		s.open += count(s.shown.NodeByIndex(int(i))) - count(wasShown.NodeByIndex(int(i)))
		s.nodes += count(s.state.NodeByIndex(int(i))) - count(was.NodeByIndex(int(i)))
	}
}

// describe notes that a node may have joined, left, been opened or been closed. It adds the node's index in the new
// state and in the old one.
func (s *partitionView) describe(state *orbit.State, id orbit.NodeID) {
	for _, st := range [2]*orbit.State{state, s.state} {
		if n := st.Node(id); n != nil {
			s.described = append(s.described, int32(n.Index()))
		}
	}
}

// unique sorts a list and removes duplicates.
func unique(list []int32) []int32 {
	slices.Sort(list)
	return slices.Compact(list)
}

// learn reads the marks of a node.
func (s *partitionView) learn(state *orbit.State, id orbit.NodeID) {
	delete(s.asked, id)
	owner, at := state.Mark(groupMark.key(string(id)))
	if owner != s.scheduler {
		delete(s.own, id)
		return
	}
	_, leaving := state.Mark(leavingMark.key(string(id)))
	if by, _ := state.Mark(leftMark.key(string(id))); leaving != 0 && by != s.scheduler {
		s.asked[id] = true
	}
	h := s.own[id]
	if h.fence.Revision != at {
		h.fence = orbit.MarkAt{Key: groupMark.key(string(id)), Revision: at}
		h.bet = h.fence
	}
	h.leaving = leaving
	s.own[id] = h
}

// closed reports whether the scheduler must not plan on a node.
func (s *partitionView) closed(n *orbit.NodeState) bool {
	h, mine := s.own[n.Node.ID]
	return !mine || h.leaving != 0
}

// changes returns the ledger's changes after a revision. It reuses those that follow has just read.
func (s *partitionView) changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if len(s.recent) > 0 && s.after == after {
		return s.recent, nil
	}
	return s.ledger.Changes(ctx, after)
}

// nodeOfMark returns the node whose owner a change is about, and which of the marks of a handoff it sets.
func nodeOfMark(c *orbit.Change) (kind markKind, node orbit.NodeID, ok bool) {
	mark, ok := c.Do.(orbit.Mark)
	if !ok {
		return "", "", false
	}
	for _, kind := range [...]markKind{groupMark, leavingMark, leftMark} {
		if id, ok := kind.id(mark.Key); ok {
			return kind, orbit.NodeID(id), true
		}
	}
	return "", "", false
}

// count returns 1 for a schedulable node, 0 for any other and for none.
func count(n *orbit.NodeState) int {
	if n == nil || !n.Node.Schedulable() {
		return 0
	}
	return 1
}
