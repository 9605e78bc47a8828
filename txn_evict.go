package orbit

// What leaves its node because somebody wants that: wishes, and who has a say in them.

// mayReturn checks that a placed capsule may be released back to pending, though it has not stopped.
func (t *tx) mayReturn(e *txCapsule) error {
	n := t.node(e.now.Node)
	if n.now.Node.State == Lost || e.was == nil || !e.was.Placed() { // what this proposal has placed has displaced nothing yet
		return nil
	}
	var g *txGang
	if e.now.Gang != "" {
		g = t.gang(e.now.Gang)
		g.wished = true
	}
	switch {
	case n.drains():
		if g != nil {
			g.drains = true
		}
	case g == nil:
		return t.refuseReturn(e.now.ID, n, max(n.newestSpec(), e.newest()))
	case g.displaced == nil: // settleWishes looks whether all of the gang is released
		g.displaced = t.refuseReturn(e.now.ID, n, max(n.newestSpec(), g.newest()))
	}
	return nil
}

// refuseReturn refuses a release of a capsule on a node that takes new work.
func (t *tx) refuseReturn(id CapsuleID, n *txNode, newest Revision) error {
	state := n.now.Node.State.String()
	if n.now.Node.State != Ready {
		state = "not cordoned all through the proposal"
	}
	return t.refuse(Rejection{Capsule: id, Node: n.now.Node.ID, advice: "release it for good, move it with Evict, or say Stopped if it is"}, newest,
		"capsule %q is on node %q, which is %s", id, n.now.Node.ID, state)
}

// drains reports whether the node takes no new work, before the proposal and all through it: else one proposal could cordon
// it, release what is there, end the cordon and place something else.
func (n *txNode) drains() bool {
	return n.was != nil && !n.was.Node.Schedulable() && !n.ready && !n.gone
}

// evict takes a capsule off its node, to make way, or to be placed again by the same proposal.
func (t *tx) evict(c *Evict) (NodeID, error) {
	e := t.capsule(c.Capsule)
	if c.For != "" || c.ForGang != "" {
		return t.evictFor(c, e)
	}
	if e == nil {
		return "", t.noCapsule(c.Capsule)
	}
	at := Rejection{Capsule: c.Capsule, Node: c.From}
	if e.now.Node != c.From || e.now.PlacedAt != c.Since {
		return "", t.refuse(at, e.newest(), "capsule %q is not on node %q since revision %d", c.Capsule, c.From, c.Since)
	}
	n := t.node(c.From)
	if !e.now.Spec.Movable && !n.drains() {
		at.advice = "submit it as Movable, or cordon the node first"
		return "", t.refuse(at, max(n.newestSpec(), e.newestSpec()), "capsule %q is not movable, and node %q is not cordoned all through the proposal", c.Capsule, c.From)
	}
	if e.now.Gang == "" {
		t.leave(e)
	} else {
		g := t.gang(e.now.Gang)
		restarts := g.restarts
		t.leave(e)
		g.wished, g.restarts = true, restarts // it stays as complete as it is
	}
	e.now.Changed, e.dirty, e.moves = t.rev, true, true
	return c.From, nil
}

// evictFor takes a victim off its node. One that has left by itself is passed over.
func (t *tx) evictFor(c *Evict, e *txCapsule) (NodeID, error) {
	if e == nil || e.now.Node != c.From || e.now.PlacedAt != c.Since || e.was == nil || e.was.PlacedAt != c.Since {
		if t.replays {
			return "", t.refuse(Rejection{Capsule: c.Capsule, Node: c.From}, 0, "capsule %q is not on node %q since revision %d", c.Capsule, c.From, c.Since)
		}
		t.passed = append(t.passed, t.at)
		return "", nil
	}
	if e.now.Gang != "" {
		g := t.gang(e.now.Gang)
		g.wished, g.evicts = true, true
	}
	t.leave(e)
	e.now.Changed, e.dirty, e.evicted = t.rev, true, true
	t.evictions = append(t.evictions, t.at)
	return c.From, nil
}

// priority returns the priority at which a capsule evicts: of a member of a gang, that of the lowest role.
func (t *tx) priority(e *txCapsule) int32 {
	lowest := e.now.Spec.Priority
	if g := t.gangs.find(e.now.Gang); g != nil {
		for i := range g.now.Gang.Roles {
			lowest = min(lowest, g.now.Gang.Roles[i].Spec.Priority)
		}
	}
	return lowest
}

// settleMoves judges that what was taken off its node to be moved is placed again.
func (t *tx) settleMoves() error {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.moves && !e.now.Placed() {
			t.at = -1
			return t.refuse(Rejection{Capsule: e.now.ID}, 0, "capsule %q is taken off its node to be moved, and not placed again", e.now.ID)
		}
	}
	return nil
}

// settleWishes judges what wishes leave of a gang: as much as there was in each role, every role's minimum, or nothing.
func (t *tx) settleWishes(g *txGang) error {
	if !g.wished || g.was == nil {
		return nil
	}
	if g.displaced != nil && (!g.drains || !g.restarts) {
		return g.displaced
	}
	i := g.now.wanting()
	if g.now.Total() == 0 || i < 0 {
		return nil
	}
	for r, placed := range g.now.Placed {
		if placed < g.was.Placed[r] {
			role := &g.now.Gang.Roles[i]
			t.at = -1
			return t.refuse(Rejection{}, g.newest(), "gang %q: role %q would have %d members placed; a wish leaves at least %d, or none of the gang",
				g.now.Gang.ID, role.Name, g.now.Placed[i], role.minimum())
		}
	}
	return nil
}
