package moves

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
)

// Away returns a set of moves that takes all of these capsules off their nodes; nil: none was found. If they do not all fit
// elsewhere, up to two others move, too, in a chain or a swap. Unlike Room, Away does not go on to sets with still more moves.
// Work includes these capsules, although they have to leave in any case.
//
// All of these capsules that permit it ([orbit.Spec].Surge) surge. If no such set is found, none of them does: what surges keeps its
// room, which another of them may need.
func (s *Search) Away(leaving ...*orbit.Capsule) *Found {
	var surges []orbit.CapsuleID
	for _, c := range leaving {
		if c.Spec.Surge && c.Begun && c.Surge() == nil {
			surges = append(surges, c.ID)
		}
	}
	if len(surges) > 0 {
		if f := s.away(leaving, surges); f != nil {
			f.surges = surges
			return f
		}
	}
	return s.away(leaving, nil)
}

// away is Away with a given choice of the capsules that surge.
func (s *Search) away(leaving []*orbit.Capsule, surges []orbit.CapsuleID) *Found {
	s.begin()
	start := s.Draft.Checkpoint()
	defer s.Draft.Rollback(start)
	state := s.Draft.View().State()
	var queue []homeless
	for _, c := range leaving {
		spec, _, err := SpecOf(state, c)
		if err != nil || !s.mayMove(c) || s.Draft.Evict(orbit.Evict{Capsule: c.ID, Surge: slices.Contains(surges, c.ID)}) != nil {
			return nil
		}
		own, n := *c, state.Node(c.Node)
		own.Spec = spec
		queue = append(queue, homeless{&own, n.Index(), nil})
		s.moved, s.work = append(s.moved, c), s.work+Size(c, n.Node)
	}
	slices.SortStableFunc(queue, func(a, b homeless) int { return cmp.Compare(size(state, &b), size(state, &a)) })
	for left := range min(max(0, s.Most-len(leaving)), fewMoves-1) + 1 {
		if s.settle(queue, left); s.best != nil {
			return s.best
		}
	}
	return nil
}

// size returns the Size of a capsule on the node that it leaves.
func size(state *orbit.State, h *homeless) float64 { return Size(h.Capsule, state.Node(h.Node).Node) }
