package orbit

import "fmt"

// This file has the rules of surges. A capsule that surges has two instances: the former one keeps running on the node that the
// capsule has left, and another is to begin where the capsule is placed now. When that one is ready, the former one is told to stop.

// maySurge returns why a move of a capsule that has begun may not be a surge; nil: it may. It judges the protection of the capsule,
// too, because a surge is no wish, and judgeProtection looks at wishes only.
func (t *tx) maySurge(c *Evict, e *txCapsule) error {
	if e.was != nil && t.s.protected.Len() > 0 {
		if r := t.s.shielded(e.was); r != nil {
			return t.refuse(*r, e.newest(), "%s", r.Reason)
		}
	}
	why := e.now.noSurge()
	if why == "" {
		return nil
	}
	at, newest := Rejection{Capsule: c.Capsule, Node: c.From, advice: "move it without Surge"}, max(e.newest(), e.newestSpec())
	if s := e.now.Surge(); s != nil {
		at.Node, at.advice = s.Node, "wait until that has stopped"
	}
	return t.refuse(at, newest, "capsule %q cannot surge: %s", c.Capsule, why)
}

// noSurge says why a capsule that has begun cannot be moved by a surge; "": it can.
func (c *Capsule) noSurge() string {
	switch s := c.Surge(); {
	case s != nil:
		return fmt.Sprintf("another instance of it, on node %q, has not stopped", s.Node)
	case !c.Spec.Surge:
		return "its spec does not permit it"
	case c.Gang() != "":
		return "it is a member of a gang"
	case c.Spec.Backfills:
		return "it backfills, so the lender may take its room at any time"
	}
	return ""
}

// surge takes a capsule off its node, where the former instance runs on. Unlike leave, it gives back neither room nor devices: the
// node lists the instance among its remains, as one that surges, and it keeps what it takes.
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

// judgeSurges refuses to place a capsule that surges on the node of its former instance. It also refuses a node that does not
// confirm, because nobody would say there that the capsule is ready, and the surge would not end.
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

// refuseSurging returns the refusal of an eviction whose capsule surges; nil: it does not surge.
func (t *tx) refuseSurging(c *Evict, e *txCapsule) error {
	s := e.now.surging()
	if t.breaks(s != nil) {
		at := Rejection{Capsule: c.Capsule, Node: c.From, advice: "wait until it is ready, or release it, which undoes the surge"}
		return t.refuse(at, e.newest(), "capsule %q surges from node %q", c.Capsule, s.Node)
	}
	return nil
}

// confirmSurging executes a Confirm that says whether s, the former instance of a capsule that surges, is ready.
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

// endSurge ends the surge of a capsule: its former instance gives its room and devices back, and is told to stop. It does nothing
// if the capsule does not surge.
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

// replaceSurge replaces the record of the former instance, on its node and in the capsule. If it is told to stop and the capsule has
// not begun, the record moves on to Capsule.Remains (ordered).
func (t *tx) replaceSurge(e *txCapsule, by *Remains) {
	s, n := e.now.Surge(), t.node(by.Node)
	n.now.remains = remainsWithout(n.now.remains, s)
	t.setRemains(n, n.now.withRemains(by))
	u := *e.now.rare()
	u.surge = by
	e.now.setRare(u.ordered(e.now.Begun))
}

// resume undoes the surge of a capsule that has just left the node on which it was placed. The capsule is placed on the node of its
// former instance again, since the same revision as before. If an instance has begun on the node that it has left, it
// becomes Capsule.Surge, and is told to stop.
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
