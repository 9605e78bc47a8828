package shard

import (
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// partitionView is what one scheduler sees of a ledger: the state in which all nodes are closed that are not in its group, or
// are leaving it. It follows the ledger's changes, and costs what they are.
//
// Invariants: shown is state with those nodes closed, and both are of one revision; own has the nodes whose group mark
// names the scheduler in state, members or not; open and nodes count what is schedulable in shown and in state.
type partitionView struct {
	ledger    orbit.Ledger
	scheduler string

	state, shown *orbit.State
	own          map[orbit.NodeID]holding
	open, nodes  int
	// Nodes of own that are leaving and have not been answered for.
	asked map[orbit.NodeID]bool
	// Indices of nodes that have changed since shown, and of those that may be schedulable in it otherwise than before.
	touched, described []int32
	// The last changes that were read, and after which revision.
	recent []orbit.Change
	after  orbit.Revision
}

// holding is a node of the group.
type holding struct {
	// The fence: a bet on the group mark as it is.
	fence orbit.MarkAt
	// The same, made once.
	bet orbit.Precondition
	// When the node was asked for; 0: it is not leaving.
	leaving orbit.Revision
}

// follow brings the view up to the ledger.
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

// rebuild looks at all there is.
func (s *partitionView) rebuild(state *orbit.State) {
	s.own, s.asked = map[orbit.NodeID]holding{}, map[orbit.NodeID]bool{}
	s.recent, s.after = nil, 0
	for key, owner := range state.Marks(string(groupMark)) {
		if id, ok := groupMark.id(key); ok && owner == s.scheduler {
			s.learn(state, orbit.NodeID(id))
		}
	}
	s.state, s.shown = state, state.Closed(nil, nil, s.closed)
	s.open, s.nodes = 0, 0
	for n := range s.shown.Nodes() {
		s.open += count(n)
	}
	for n := range state.Nodes() {
		s.nodes += count(n)
	}
}

// advance moves to a newer state by the changes in between.
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
			if n := state.Node(c.Node); n != nil { // else it has left, and a later change says so
				s.touched = append(s.touched, int32(n.Index()))
			}
		}
	}
	s.described = unique(s.described)
	s.touched = unique(append(s.touched, s.described...))
	was, wasShown := s.state, s.shown
	s.state, s.shown = state, state.Closed(s.shown, s.touched, s.closed)
	for _, i := range s.described {
		s.open += count(s.shown.NodeByIndex(int(i))) - count(wasShown.NodeByIndex(int(i)))
		s.nodes += count(s.state.NodeByIndex(int(i))) - count(was.NodeByIndex(int(i)))
	}
}

// describe notes that a node may have joined or left, or be open or closed otherwise than before: where it is, and where
// it was.
func (s *partitionView) describe(state *orbit.State, id orbit.NodeID) {
	for _, st := range [2]*orbit.State{state, s.state} {
		if n := st.Node(id); n != nil {
			s.described = append(s.described, int32(n.Index()))
		}
	}
}

// unique sorts a list and takes out repetitions.
func unique(list []int32) []int32 {
	slices.Sort(list)
	return slices.Compact(list)
}

// learn takes over what the marks say of a node.
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

// closed reports whether the scheduler may plan nothing on a node.
func (s *partitionView) closed(n *orbit.NodeState) bool {
	h, mine := s.own[n.Node.ID]
	return !mine || h.leaving != 0
}

// changes returns the ledger's changes after a revision, without reading twice what follow has just read.
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
	if n == nil || n.Node.Unschedulable {
		return 0
	}
	return 1
}
