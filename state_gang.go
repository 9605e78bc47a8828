package orbit

// This file has which of two broken gangs ([GangState.Broken]) comes first: one may evict the other, and one may leave its nodes
// as a whole and start anew.

// Precedes reports whether the broken gang a comes before the broken gang b: a has the higher priority (the lowest of its
// roles with members left), or the priorities are equal and a was submitted first. Gang a may then evict b whole for the
// members that it lacks ([Evict]), even if [Limits].NeverEvictFrom forbids other evictions between them. Precedes is false if a or b
// is not broken.
func (s *State) Precedes(a, b GangID) bool {
	g, o := s.Gang(a), s.Gang(b)
	if g == nil || o == nil || a == b || !g.Broken() || !o.Broken() {
		return false
	}
	mine, _ := g.Priorities()
	other, _ := o.Priorities()
	if mine != other {
		return mine > other
	}
	return s.submitted(a) < s.submitted(b)
}

// submitted returns the lowest submission number of a gang's members that are not done.
func (s *State) submitted(id GangID) uint64 {
	first := ^uint64(0)
	for c := range s.Members(id) {
		if !c.released {
			first = min(first, c.Submitted)
		}
	}
	return first
}

// inBroken reports whether a capsule is a member of a broken gang.
func (s *State) inBroken(c *Capsule) bool {
	if c.Gang() == "" {
		return false
	}
	g := s.Gang(c.Gang())
	return g != nil && g.Broken()
}

// gangOf returns the gang that a capsule is a member of, or nil.
func (s *State) gangOf(c *Capsule) *GangState {
	if c.Gang() == "" {
		return nil
	}
	return s.Gang(c.Gang())
}
