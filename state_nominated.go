package orbit

import (
	"iter"
	"slices"
	"time"
)

// This file has what a state says of nominations, and when they and other claims end.

// roomEnd is an end that the owner of the view has to propose: of a hold, a protection, or a nomination whose Ends is too
// late, when (at) and by which commitment (do).
type roomEnd struct {
	at time.Time
	do Commitment
}

// Before orders ends, soonest first.
func (a roomEnd) Before(b roomEnd) bool { return a.at.Before(b.at) }

// lives reports whether what an end is for still exists, unchanged.
func (s *State) lives(end roomEnd) bool {
	l, ok := end.do.(interface {
		lives(s *State, ends time.Time) bool
	})
	return ok && l.lives(s, end.at)
}

// nominationOf returns the nomination of a capsule, or of a gang if gang is not empty; nil: there is none.
func (s *State) nominationOf(capsule CapsuleID, gang GangID) *Nomination {
	if g := s.Gang(gang); g != nil {
		return g.Nomination
	}
	if c := s.Capsule(capsule); c != nil {
		return c.Nomination()
	}
	return nil
}

// capsulesOf yields the capsule, or all members of the gang if gang is not empty.
func (s *State) capsulesOf(capsule CapsuleID, gang GangID) iter.Seq[CapsuleID] {
	return func(yield func(CapsuleID) bool) {
		if gang == "" {
			yield(capsule)
			return
		}
		for c := range s.Members(gang) {
			if !yield(c.ID) {
				return
			}
		}
	}
}

// fitsNominated reports whether a node with nominated room may take a nominee of the spec: a nominee that outranks at
// least one nomination on the node, wherever its own room is nominated. Capsules that borrow from this nominee count as
// gone, because it may evict them. The answer may be too optimistic: it does not check that the nominations which the
// nominee does not outrank leave enough.
func (s *State) fitsNominated(n *NodeState, spec *Spec) (fits bool) {
	var lowest *Nomination
	for of := range n.Nominated {
		if lowest == nil || lowest.Outranks(of) {
			lowest = of
		}
	}
	bare := *n.without(func(l *loan) bool { return slices.Contains(s.specsOf(l.from.Capsule, l.from.Gang), spec) })
	bare.nominated = nil
	if lowest == nil || !bare.Fits(spec) {
		return false
	}
	s.nominations.Ascend(func(of *Nomination) bool {
		fits = slices.Contains(s.specsOf(of.Capsule, of.Gang), spec)
		return !fits && of.Outranks(lowest)
	})
	return fits
}

// nominates reports whether the predicate holds for the nominated capsule, or for a member of the nominated gang.
func (s *State) nominates(n *Nomination, is func(*Capsule) bool) bool {
	if c := s.Capsule(n.Capsule); c != nil {
		return is(c)
	}
	for c := range s.Members(n.Gang) {
		if is(c) {
			return true
		}
	}
	return false
}

// broken reports whether a node can no longer serve a nomination: the node is not schedulable, or its description has
// changed since in a way that keeps the nominee off.
func (s *State) broken(node *NodeState, p nominatedPart) bool {
	return !node.Node.Schedulable() || node.Specification > p.of.Made && p.room().misfit(node.Node, s.specsOf(p.of.Capsule, p.of.Gang), &s.names) != ""
}
