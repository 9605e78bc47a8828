package orbit

import (
	"cmp"
	"math"
)

// A capsule that was found running is recorded as it is: no rule is judged that only another node could meet.

// check implements [Commitment]. An adoption is kept with the shared copy of its spec.
func (c Adopt) check(v *validator) Commitment {
	v.id("capsule id", string(c.Capsule))
	v.ref("node id", string(c.Node))
	v.text("note", c.Note, v.limits.ValueBytes)
	v.carried("adoption", c.At, nil)
	if c.Spec != nil {
		c.Spec = v.spec(c.Spec)
	}
	return c
}

// execute implements [Commitment].
func (c Adopt) execute(t *tx) (NodeID, error) {
	return t.adopt(&c)
}

func (c Adopt) subject() CapsuleID { return c.Capsule }

func (c Adopt) effect() effect {
	return effect{arrives: c.Capsule, heals: c.Capsule, nominee: Nominee{Capsule: c.Capsule}, node: c.Node, takes: true}
}

// own implements [cloner.own].
func (c Adopt) own(copies *cloner) Commitment {
	c.Spec = copies.spec(c.Spec)
	return c
}

// dated implements [timeless].
func (c Adopt) dated(at Instant) Commitment {
	c.At = at
	return c
}

// adopt records that a capsule runs on a node. Room is not judged, nor any other rule that a proposer could only meet
// by planning another node: the capsule runs there already.
func (t *tx) adopt(c *Adopt) (NodeID, error) {
	if e := t.capsule(c.Capsule); e == nil {
		if c.Spec == nil {
			return "", t.refuse(Rejection{Capsule: c.Capsule, Node: c.Node, advice: "say with which Spec it runs"}, t.s.left.Capsules, "there is no capsule %q", c.Capsule)
		}
		if err := t.submit(&Submit{}, []CapsuleID{c.Capsule}, Capsule{Spec: c.Spec}); err != nil {
			return "", err
		}
	}
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	if err := t.mayAdopt(c, e); err != nil {
		return "", err
	}
	n := t.node(c.Node)
	spec := cmp.Or(c.Spec, e.now.Spec)
	asked, devices, asker := n.asked, n.askedDevices, n.asker
	err = t.take(n, &spec.Envelope.Reservation, c.Devices, spec.Devices.Milli)
	n.asked, n.askedDevices, n.asker = asked, devices, asker // an adoption asks for no room: the capsule has it already
	if err != nil {
		return "", err
	}
	n.now.Capsules++
	e.now.remember(t.s.limits.PlacementIDs)
	e.now.Respecified = e.now.Respecified || spec != e.now.Spec
	e.now.Spec, e.now.Node, e.node = spec, n.now.Node.ID, n.now.index
	e.now.Devices, e.now.PlaceTime = c.Devices, c.At
	e.now.Changed, e.now.PlacedAt, e.now.PlacedBy = t.rev, t.rev, t.p.ID
	e.now.Adopted, e.now.Begun = true, n.now.Node.Confirms
	e.dirty, e.arrives, e.adopted, e.after = true, true, true, false
	t.enter(e, c.Note)
	if e.now.Gang() != "" {
		g := t.gang(e.now.Gang())
		g.adopts = true
		g.now.varies = g.now.varies || e.now.Respecified // t.enter has made the record the proposal's own
	}
	return n.now.Node.ID, nil
}

// mayAdopt checks that the capsule has no other placement or remains, has not ended, and that the node can hold its
// record.
func (t *tx) mayAdopt(c *Adopt, e *txCapsule) error {
	at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
	switch r := e.now.Remains(); {
	case e.now.released:
		at.advice = "stop it; if it is to run on, submit its id again in the same proposal"
		return t.refuse(at, e.newest(), "capsule %q has been released for good", c.Capsule)
	case e.evicted || e.ends:
		return t.refuse(at, 0, "capsule %q is evicted or ends by this proposal", c.Capsule)
	case e.now.Placed():
		at.advice = "it is known there; adopt what is not"
		if e.now.Node != c.Node {
			at.advice = "stop it on one of the two nodes; if it is to stay where it was found, release the placement in the same proposal"
		}
		return t.refuse(at, e.newest(), "capsule %q is placed on node %q since revision %d", c.Capsule, e.now.Node, e.now.PlacedAt)
	case r != nil:
		at.Node, at.advice = r.Node, "stop it there, and confirm that it has stopped"
		return t.refuse(at, max(r.Left*Revision(btoi(r.Left <= t.s.rev)), e.newest()), "capsule %q has left node %q at revision %d and has not stopped there", c.Capsule, r.Node, r.Left)
	}
	n, spec := t.node(c.Node), cmp.Or(c.Spec, e.now.Spec)
	at.Node = c.Node
	switch {
	case n == nil:
		at.advice = "let the node join first"
		return t.refuse(at, t.s.left.Nodes, "node %q is not a member", c.Node)
	case t.breaks(n.now.Node.State == Lost):
		at.advice = "let the node leave and join anew; then adopt what it runs"
		return t.refuse(at, n.newestSpec(), "node %q is lost", c.Node)
	case c.Devices.Len() != spec.Devices.Count:
		at.advice = "name the devices that it uses, and a spec that asks for as many"
		return t.refuse(at, e.newestSpec(), "capsule %q asks for %d devices, the adoption names %d", c.Capsule, spec.Devices.Count, c.Devices.Len())
	case t.breaks(spec.Backfills && e.now.Gang() != ""):
		at.advice = "name a spec that does not backfill"
		return t.refuse(at, e.newestSpec(), "capsule %q is a member of gang %q, so it cannot backfill", c.Capsule, e.now.Gang())
	case c.Devices>>n.now.Node.Devices.Count != 0:
		at.advice = "describe the node with all its devices first"
		return t.refuse(at, n.newestSpec(), "node %q: devices %016b are not all there", c.Node, c.Devices)
	}
	for i, used := range n.now.deviceUse() {
		if c.Devices.Has(i) && used > math.MaxInt32-2*deviceMilli {
			return t.refuse(at, n.newest(), "node %q: device %d is used by more than can be counted", c.Node, i)
		}
	}
	return nil
}
