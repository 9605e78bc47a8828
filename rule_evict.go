package orbit

import "fmt"

// Who may be taken off a node: a capsule that moves is placed again by the same proposal, and a victim makes way for
// work of higher priority.

// check implements [Commitment].
func (c Evict) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	v.ref("node id", string(c.From))
	v.text("capsule id", string(c.For), v.limits.IDBytes)
	v.text("gang id", string(c.ForGang), v.limits.IDBytes)
	if c.For != "" && c.ForGang != "" {
		v.fail("eviction of capsule %q is for capsule %q and for gang %q; it is for one of them, or a move", c.Capsule, c.For, c.ForGang)
	}
	if c.Surge && (c.For != "" || c.ForGang != "") {
		v.fail("eviction of capsule %q makes way for others, so it cannot surge", c.Capsule)
	}
	if c.Since == 0 {
		v.fail("eviction of capsule %q does not say since when it is placed; take PlacedAt from its record", c.Capsule)
	}
	return nil
}

// skippable implements [mayBeSkipped]: a victim that has left, or is spared, is skipped.
func (c Evict) skippable() bool { return true }

// execute implements [Commitment].
func (c Evict) execute(t *tx) (NodeID, error) {
	return t.evict(&c)
}

func (c Evict) subject() CapsuleID { return c.Capsule }

func (c Evict) effect() effect {
	return effect{leaves: c.Capsule, waits: c.Capsule, gives: true}
}

// offence implements [planCheck.offence].
func (c Evict) offence(t *planCheck) (CapsuleID, string) {
	if t.moved == nil {
		t.moved = map[CapsuleID]bool{}
	}
	if t.moved[c.Capsule] = c.For == "" && c.ForGang == ""; t.moved[c.Capsule] {
		return "", ""
	}
	for id := range t.s.capsulesOf(c.For, c.ForGang) {
		if why := t.foreign(id, "evicts others for"); why != "" {
			return id, why
		}
	}
	if victim := t.s.Capsule(c.Capsule); victim != nil {
		if why := t.s.outranked(&c, victim); why != "" {
			return c.Capsule, fmt.Sprintf("evicts capsule %q of priority %d for %s: %s", c.Capsule, victim.Spec.Priority, c.cause(), why)
		}
	}
	return "", ""
}

// wish reports whether c is a wish to take the capsule off its node.
func (c Evict) wish(s *State, of *Capsule) bool {
	if c.For == "" && c.ForGang == "" {
		return s.misses(of) && !c.surges(of, s.Node(of.Node).Node)
	}
	return !c.recalls(of)
}

// surges reports whether c lets a capsule run on, on the node on which it is placed, until it is ready elsewhere. Whether it may is
// judged by [tx.maySurge].
func (c Evict) surges(of *Capsule, on *Node) bool { return c.Surge && of.Begun && on.State != Lost }

// evict executes an Evict. With For or ForGang the capsule makes way (evictFor); otherwise it is moved: the same
// proposal places it again.
func (t *tx) evict(c *Evict) (NodeID, error) {
	if c.For != "" || c.ForGang != "" {
		return t.evictFor(c, t.capsule(c.Capsule))
	}
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	at := Rejection{Capsule: c.Capsule, Node: c.From}
	if e.now.Node != c.From || !t.madeAt(e.now.PlacedAt, c.Since) {
		return "", t.refuse(at, e.newest(), "capsule %q is not on node %q since revision %d", c.Capsule, c.From, c.Since)
	}
	if err := t.refuseSurging(c, e); err != nil {
		return "", err
	}
	n := t.node(c.From)
	waits := t.waitsToBegin(e, n)
	if t.breaks(n.now.Node.ends(&e.now) && !e.now.Spec.Movable) {
		at.advice = "submit it as Movable, or release it for good and submit another one"
		return "", t.refuse(at, max(n.newestSpec(), e.newest()), "capsule %q ends when it is taken off its node, and is not movable", c.Capsule)
	}
	if t.breaks(!waits && !e.now.Spec.Movable) && !n.drains() && !n.expels(e.now.Spec) && !t.s.isCovered(e.now.Spec) {
		at.advice = "submit it as Movable, put a budget on its group, or cordon the node first"
		g, newest := t.gang(e.now.Gang()), max(n.newestSpec(), e.newest(), t.s.left.Budgets)
		if g != nil {
			newest = max(newest, g.newest())
		}
		err := t.refuse(at, newest,
			"capsule %q is not movable and does not wait to begin, and node %q is not cordoned all through the proposal", c.Capsule, c.From)
		if g == nil || g.was == nil || !g.was.Broken() {
			return "", err
		}
		if g.displaced == nil { // judgeWishes decides: it may stand if the whole gang leaves
			g.displaced = err
		}
	}
	if c.surges(&e.now, n.now.Node) {
		if err := t.maySurge(c, e); err != nil && !t.replays {
			return "", err
		}
		t.surge(e)
		e.now.Changed, e.dirty, e.moves = t.rev, true, true
		return c.From, nil
	}
	e.wished = e.wished || !waits && n.now.Node.State != Lost
	if e.now.Gang() == "" {
		t.leave(e)
	} else {
		g := t.gang(e.now.Gang())
		restarts := g.restarts
		t.leave(e)
		g.wished, g.restarts = g.wished || !waits, restarts // a move does not count as a restart of the gang
	}
	e.now.Changed, e.dirty, e.moves = t.rev, true, true
	return c.From, nil
}

// evictFor takes a victim off its node. If the victim has left already, the eviction is passed over without an error.
func (t *tx) evictFor(c *Evict, e *txCapsule) (NodeID, error) {
	if e == nil || e.now.Node != c.From || !t.madeAt(e.now.PlacedAt, c.Since) || t.breaks(e.was == nil || e.was.PlacedAt != c.Since) {
		if t.replays {
			return "", t.refuse(Rejection{Capsule: c.Capsule, Node: c.From}, 0, "capsule %q is not on node %q since revision %d", c.Capsule, c.From, c.Since)
		}
		t.passed = append(t.passed, t.at)
		return "", nil
	}
	if err := t.refuseSurging(c, e); err != nil {
		return "", err
	}
	if e.now.Gang() != "" {
		g := t.gang(e.now.Gang())
		g.wished, g.evicts = true, true
	}
	e.wished, e.ends = !c.recalls(&e.now), t.node(e.now.Node).now.Node.ends(&e.now)
	t.leave(e)
	e.now.Changed, e.dirty, e.evicted, e.evictedBy = t.rev, true, true, t.at
	t.evictions = append(t.evictions, t.at)
	return c.From, nil
}

// endEnding ends the capsules that end because the proposal has taken them off their nodes. It comes after the judgement:
// otherwise a gang would need fewer members because of the very eviction that is judged.
func (t *tx) endEnding() {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.ends && !e.now.released {
			e.now.released, t.finals = true, true
			t.end(e)
		}
	}
}

// judgeMoves judges that each capsule that was taken off its node by a move is placed again.
func (t *tx) judgeMoves() error {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.moves && !e.now.Placed() {
			t.at = -1
			return t.refuse(Rejection{Capsule: e.now.ID}, 0, "capsule %q is taken off its node to be moved, and not placed again", e.now.ID)
		}
	}
	return nil
}

// mayReturn checks that a placed capsule that has not stopped may be released back to pending. If the capsule waits to
// begin, it may, and the release counts as a start that did not take place.
func (t *tx) mayReturn(e *txCapsule, at Instant) error {
	n := t.node(e.now.Node)
	if n.now.Node.State == Lost || e.was == nil || !e.was.Placed() { // a placement by this very proposal may be taken back
		return nil
	}
	if t.waitsToBegin(e, n) {
		t.countFailure(e, at, false)
		return nil
	}
	var g *txGang
	e.wished = true
	if e.now.Gang() != "" {
		g = t.gang(e.now.Gang())
		g.wished = true
	}
	switch {
	case n.drains():
		if g != nil {
			g.drains = true
		}
	case g == nil:
		return t.refuseReturn(e.now.ID, n, max(n.newestSpec(), e.newest()))
	case g.displaced == nil: // judgeWishes decides: it may stand if the whole gang leaves
		g.displaced = t.refuseReturn(e.now.ID, n, max(n.newestSpec(), g.newest(), e.newest()))
	}
	return nil
}

// refuseReturn refuses a release of a capsule on a node that takes new work, unless a history is replayed.
func (t *tx) refuseReturn(id CapsuleID, n *txNode, newest Revision) error {
	if t.replays {
		return nil
	}
	state := n.now.Node.State.String()
	if n.now.Node.State != Ready {
		state = "not cordoned all through the proposal"
	}
	return t.refuse(Rejection{Capsule: id, Node: n.now.Node.ID, advice: "release it for good, move it with Evict, or say Stopped if it is"}, newest,
		"capsule %q is on node %q, which is %s", id, n.now.Node.ID, state)
}

// waitsToBegin reports whether a placement from before the proposal waits to begin, or may not begin because its node is
// overfull, and its node confirms what begins all through the proposal. Such a capsule has never run there, so nothing is
// disrupted if it leaves.
func (t *tx) waitsToBegin(e *txCapsule, n *txNode) bool {
	if e.now.PlacedAt >= t.rev || n.was == nil || !n.was.Node.Confirms || !n.now.Node.Confirms || n.now.Node.State == Lost {
		return false
	}
	return e.now.waitsToBegin(n.now.Node) || t.overfull(e, n) != nil
}

// priority returns the priority at which a capsule evicts others: its own, or for a member of a gang the lowest of the
// roles with members left.
func (t *tx) priority(e *txCapsule) int32 {
	lowest := e.now.Spec.Priority
	if g := t.gangs.find(e.now.Gang()); g != nil {
		gang, _ := g.now.Priorities()
		lowest = min(lowest, gang)
	}
	return lowest
}

// evictor returns the priority of the capsule or gang for which e is evicted. Nil: e is not evicted, or its evictor is
// not in the write-set.
func (t *tx) evictor(e *txCapsule) *int32 {
	if !e.evicted {
		return nil
	}
	c, _ := t.p.Do[e.evictedBy].(Evict)
	if g := t.gangs.find(c.ForGang); g != nil {
		priority, _ := g.now.Priorities()
		return &priority
	}
	if cause := t.capsules.find(c.For); cause != nil {
		priority := t.priority(cause)
		return &priority
	}
	return nil
}

// drains reports whether the node takes no new work before the proposal and throughout it. Otherwise one proposal could
// cordon the node, release its capsules, end the cordon, and place other work.
func (n *txNode) drains() bool {
	return n.was != nil && !n.was.Node.Schedulable() && !n.ready && !n.gone
}

// expels reports whether the node has, before and after the proposal, a taint that allows running capsules of the spec
// to be moved away.
func (n *txNode) expels(s *Spec) bool {
	return n.was != nil && n.was.Node.expels(s) && n.now.Node.expels(s)
}
