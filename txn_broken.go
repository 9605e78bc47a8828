package orbit

// The rules for broken gangs ([GangState.Broken]): one may evict another, and one may leave its nodes as a whole and
// start anew.

// Precedes reports whether the broken gang a comes before the broken gang b: a has the higher priority (the lowest of its
// roles with members left), or the priorities are equal and a was submitted first. Gang a may then evict b whole for the
// members that it lacks ([Evict]), whatever the truce of [Limits] says. It is false if one of them is not broken.
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

// replaces reports whether a gang that was broken before the proposal and is not broken after it precedes another one,
// by the state before.
func (t *tx) replaces(gang, other GangID) bool {
	g := t.gangs.find(gang)
	return g != nil && g.now.wanting() < 0 && t.s.Precedes(gang, other)
}

// rebuilds reports whether the proposal takes a broken gang off its nodes as a whole, and leaves it without placed
// members or with the minimum of every role.
func (t *tx) rebuilds(g *txGang) bool {
	if g.was == nil || !g.was.Broken() || g.now.Total() > 0 && g.now.wanting() >= 0 {
		return false
	}
	left := 0
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.was != nil && e.was.Gang() == g.was.Gang.ID && e.was.Placed() && (!e.now.Placed() || e.now.PlacedAt != e.was.PlacedAt) {
			left++
		}
	}
	return left == g.was.Total()
}

// inBroken reports whether a capsule is a member of a broken gang.
func (s *State) inBroken(c *Capsule) bool {
	if c.Gang() == "" {
		return false
	}
	g := s.Gang(c.Gang())
	return g != nil && g.Broken()
}
