package orbit

import "time"

// A hold takes room on a node without a capsule, until it ends.

// check implements [Commitment]. The end of a hold is kept in the one form that a dump can hold: UTC, without a monotonic part.
func (c Hold) check(v *validator) Commitment {
	v.id("hold id", string(c.ID))
	v.id("node id", string(c.Node))
	v.text("hold for", c.For, v.limits.IDBytes)
	v.room("hold", &c.Room, c.Devices, c.Milli)
	c.Ends = v.ends("hold", c.Ends)
	return c
}

// execute implements [Commitment].
func (c Hold) execute(t *tx) (NodeID, error) {
	return c.Node, t.startHold(&c)
}

func (Hold) subject() CapsuleID { return "" }

func (c Hold) effect() effect {
	return effect{node: c.Node, takes: true}
}

// offence implements [planCheck.offence].
func (c Hold) offence(*planCheck) (CapsuleID, string) {
	return "", notForPlans("makes hold", string(c.ID), "make and release only holds whose id")
}

// asks adds the ask of the hold to those on its node.
func (c Hold) asks(t *tx, asked map[uint32]*nodeAsks, at int) {
	if n := t.nodes.find(c.Node); n != nil && asked[n.now.index] != nil && at >= n.joined {
		a := asked[n.now.index]
		a.asks, a.at = append(a.asks, ask{room: &c.Room, devices: c.Devices, milli: c.Milli, hold: true}), at
	}
}

// inUTC implements [inUTC].
func (c Hold) inUTC() Commitment {
	c.Ends = c.Ends.UTC()
	return c
}

// ending returns when the hold ends.
func (c Hold) ending(Revision, time.Time, time.Time) (end roomEnd, ok bool) {
	return roomEnd{c.Ends, Release{Hold: c.ID}}, true
}

type txHold struct{ was, now *holdRecord }

// newest returns the revision at which the hold was made; 0 if there was none before this proposal.
func (h *txHold) newest() Revision {
	if h.was == nil {
		return 0
	}
	return h.was.changed
}

// hold returns the entry of a hold, with a nil record if there is none.
func (t *tx) hold(id HoldID) *txHold {
	if e := t.holds.find(id); e != nil {
		return e
	}
	was, _ := t.s.holds.Get(&holdRecord{Hold: Hold{ID: id}})
	e := t.holds.add(id)
	e.was, e.now = was, was
	return e
}

// startHold takes the room of a hold on a node. Labels and taints are not judged, because a hold has no spec with
// requirements.
func (t *tx) startHold(c *Hold) error {
	e := t.hold(c.ID)
	if e.now != nil {
		return t.refuse(Rejection{Node: c.Node, advice: anotherID}, e.newest(), "there is a hold %q already", c.ID)
	}
	n := t.node(c.Node)
	if n == nil {
		return t.refuse(Rejection{Node: c.Node}, t.s.left.Nodes, "node %q is not a member", c.Node)
	}
	if t.breaks(!n.now.Node.Schedulable()) {
		return t.refuse(Rejection{Node: c.Node}, n.newestSpec(), "node %q is unschedulable", c.Node)
	}
	if err := t.mayUse(n, c.Devices, ""); err != nil {
		return err
	}
	if err := t.take(n, &c.Room, c.Devices, c.Milli); err != nil {
		return err
	}
	n.now.holds++
	e.now = &holdRecord{Hold: *c, changed: t.rev}
	return nil
}

// endHold gives the room of a hold back. To end a hold a second time is refused.
func (t *tx) endHold(id HoldID) (NodeID, error) {
	e := t.hold(id)
	if e.now == nil {
		return "", t.refuse(Rejection{}, t.s.left.Holds, "there is no hold %q", id)
	}
	n := t.node(e.now.Node) // is a member: nodes with holds cannot leave
	n.now.used = n.now.used.minus(e.now.Room)
	n.now.useDevices(e.now.Devices, -e.now.Milli)
	n.now.holds--
	n.now.Usage, n.dirty = t.rev, true
	e.now = nil
	return n.now.Node.ID, nil
}

// publishHolds writes holds that have begun and drops those that have ended.
func (s *State) publishHolds(t *tx) {
	for _, e := range t.holds.entries {
		switch e.now {
		case e.was:
		case nil:
			s.holds.Delete(e.was)
			s.left.Holds = s.rev
		default:
			s.holds.ReplaceOrInsert(e.now)
		}
	}
}

// holds checks that every hold ends and is on a member, and counts it there.
func (v *verifier) holds() {
	v.s.holds.Ascend(func(h *holdRecord) bool {
		n := v.s.Node(h.Node)
		if n == nil {
			v.fail("hold %q is on node %q, which is not a member", h.ID, h.Node)
			return true
		}
		if h.Ends.IsZero() {
			v.fail("hold %q never ends", h.ID)
		}
		r := &v.nodes[n.index]
		r.holds++
		r.claim(h.Room, h.Devices, h.Milli, h.changed, false)
		return true
	})
}
