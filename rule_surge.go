package orbit

// A capsule that surges runs on where it was until it is ready where it is placed now.

// maySurge checks that a move of a capsule that has begun may be a surge.
func (t *tx) maySurge(c *Evict, e *txCapsule) error {
	if e.was != nil && t.s.protected.Len() > 0 {
		if r := t.s.shielded(e.was); r != nil {
			return t.refuse(*r, e.newest(), "%s", r.Reason)
		}
	}
	at := Rejection{Capsule: c.Capsule, Node: c.From}
	switch s := e.now.Surge(); {
	case s != nil:
		at.Node, at.advice = s.Node, "wait until that has stopped"
		return t.refuse(at, e.newest(), "capsule %q cannot surge: another instance of it, on node %q, has not stopped", c.Capsule, s.Node)
	case !e.now.Spec.Surge:
		at.advice = "submit it with Surge, or move it without"
		return t.refuse(at, e.newestSpec(), "capsule %q does not permit surges", c.Capsule)
	case e.now.Gang() != "" || e.now.Spec.Backfills:
		at.advice = "move it without Surge"
		return t.refuse(at, e.newest(), "capsule %q cannot surge: it backfills, or is a member of a gang", c.Capsule)
	}
	return nil
}

// surge takes a capsule off its node by a surge: the node keeps it as remains that surge, with its room and devices.
func (t *tx) surge(e *txCapsule) {
	n := t.node(e.now.Node)
	s := &Remains{Capsule: e.now.ID, Spec: e.now.Spec, Node: n.now.Node.ID, Devices: e.now.Devices, Since: e.now.PlacedAt,
		Left: t.rev, Adopted: e.now.Adopted, Surge: true, Ready: e.now.Ready, Note: e.now.Note()}
	n.now.Capsules--
	n.now.Usage = t.rev
	t.setRemains(n, n.now.withRemains(s))
	rare := *e.now.rare()
	rare.note, rare.surge = "", s
	e.now.setRare(rare)
	e.now.Node, e.now.Devices = "", 0
	e.now.Begun, e.now.Ready, e.now.Waits, e.now.Adopted = false, false, false, false
}

// judgeSurges refuses the placement of a capsule that surges on the node on which it runs, and on one where nobody would say
// that it is ready.
func (t *tx) judgeSurges() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		s := e.now.surging()
		if s == nil || !e.arrives {
			continue
		}
		t.at = -1
		switch n := t.nodes.find(e.now.Node); {
		case s.Node == e.now.Node:
			return t.refuse(Rejection{Capsule: e.now.ID, Node: s.Node}, 0, "capsule %q surges from node %q, so it cannot be placed there", e.now.ID, s.Node)
		case !n.now.Node.Confirms:
			return t.refuse(Rejection{Capsule: e.now.ID, Node: e.now.Node, advice: "move it without Surge"}, n.newestSpec(),
				"capsule %q surges, and node %q does not confirm when it is ready", e.now.ID, e.now.Node)
		}
	}
	return nil
}

// refuseSurging refuses an eviction of a capsule that surges, nil if it does not.
func (t *tx) refuseSurging(c *Evict, e *txCapsule) error {
	s := e.now.surging()
	if t.breaks(s != nil) {
		at := Rejection{Capsule: c.Capsule, Node: c.From, advice: "wait until it is ready, or release it: it is back there then"}
		return t.refuse(at, e.newest(), "capsule %q surges from node %q", c.Capsule, s.Node)
	}
	return nil
}

// confirmSurging executes a Confirm that the instance from which a capsule surges is ready, or not.
func (t *tx) confirmSurging(c *Confirm, e *txCapsule, s *Remains) (NodeID, error) {
	n := t.node(s.Node)
	switch {
	case t.breaks(c.Ready == s.Ready):
		return "", t.refuse(Rejection{Capsule: c.Capsule, Node: s.Node}, e.newest(), "capsule %q surges from node %q, and is ready there: %v", c.Capsule, s.Node, s.Ready)
	case t.breaks(!n.now.Node.Confirms):
		return "", t.refuse(Rejection{Capsule: c.Capsule, Node: s.Node}, n.newestSpec(), "nothing is confirmed of capsule %q on node %q: the node does not confirm", c.Capsule, s.Node)
	}
	now := *s
	now.Ready = c.Ready
	t.replaceSurge(e, &now)
	e.now.Changed, e.dirty = t.rev, true
	return s.Node, nil
}

// endSurge tells the instance from which a capsule surges to stop, if there is one. It gives its room back.
func (t *tx) endSurge(e *txCapsule) {
	if s := e.now.surging(); s != nil {
		now := *s
		now.Surge, now.Ready, now.Note, now.Left = false, false, "", t.rev
		n := t.node(s.Node)
		n.now.gives(s.Spec.Envelope.Reservation, s.Devices, s.Spec.Devices.Milli)
		n.now.Usage = t.rev
		t.replaceSurge(e, &now)
	}
}

// replaceSurge replaces the record of the instance from which a capsule surges.
func (t *tx) replaceSurge(e *txCapsule, by *Remains) {
	s, n := e.now.Surge(), t.node(by.Node)
	n.now.remains = remainsWithout(n.now.remains, s)
	t.setRemains(n, n.now.withRemains(by))
	u := *e.now.rare()
	u.surge = by
	e.now.setRare(u.ordered(e.now.Begun))
}

// resume returns a capsule that has left its node while it surges to the node on which it runs: the surge is undone. An
// instance that has begun on the other node is told to stop.
func (t *tx) resume(e *txCapsule) {
	s := e.now.surging()
	n := t.node(s.Node)
	n.now.remains = remainsWithout(n.now.remains, s)
	n.now.Capsules++
	n.now.Usage, n.dirty, n.stops = t.rev, true, true
	e.now.remember(t.s.limits.PlacementIDs)
	u := *e.now.rare()
	u.note, u.surge, u.remains = s.Note, u.remains, nil
	e.now.setRare(u)
	e.now.Node, e.node, e.now.Devices = s.Node, n.now.index, s.Devices
	e.now.Begun, e.now.Ready, e.now.Adopted = true, s.Ready, s.Adopted
	e.now.PlacedAt, e.now.PlacedBy = s.Since, ProposalID{}
	e.arrives, e.moves = false, false
}
