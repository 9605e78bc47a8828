package orbit

import (
	"cmp"
	"math"
	"slices"
)

// This file has the rules for capsules that are found running (Adopt), that get another size (Resize), and that are
// protected from eviction (Protect).

// anotherID is the advice if an id is taken: planning again on a newer view does not make it free.
const anotherID = "choose another id"

// adopt records that a capsule runs on a node. Room is not judged, nor any other rule that a proposer could only meet
// by planning another node: the capsule runs there already.
func (t *tx) adopt(c *Adopt) (NodeID, error) {
	if e := t.capsule(c.Capsule); e == nil {
		if c.Spec == nil {
			return "", t.refuse(Rejection{Capsule: c.Capsule, Node: c.Node, advice: "say with which Spec it runs"}, t.s.left.Capsules, "there is no capsule %q", c.Capsule)
		}
		if err := t.submit([]CapsuleID{c.Capsule}, Capsule{Spec: c.Spec}); err != nil {
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
		t.gang(e.now.Gang()).adopts = true
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
	case e.evicted:
		return t.refuse(at, 0, "capsule %q is evicted by this proposal", c.Capsule)
	case e.now.Placed():
		at.advice = "it is known there; adopt what is not"
		if e.now.Node != c.Node {
			at.advice = "stop it on one of the two nodes; if it is to stay where it was found, release the placement in the same proposal"
		}
		return t.refuse(at, e.newest(), "capsule %q is placed on node %q since revision %d", c.Capsule, e.now.Node, e.now.PlacedAt)
	case r != nil:
		t.node(r.Node) // its remains may end meanwhile
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

// resize replaces the spec of a capsule, placed or pending. Room is judged later, on the sum of all commitments
// (judgeTotals).
func (t *tx) resize(c *Resize) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	if err := t.mayResize(c, e); err != nil {
		return "", err
	}
	was, own := e.now, e.now.grown(c.Spec)
	e.now.Spec, e.now.Respecified, e.now.Changed, e.dirty = c.Spec, true, t.rev, true
	if !e.now.Placed() {
		if e.now.Nomination().Lives() { // the nomination was made for the old size and rank
			e.now.setNomination(e.now.Nomination().ended())
			t.nominates = true
		}
		return "", nil
	}
	n, shrinks := t.node(e.now.Node), Resources{}
	e.grows = *own.room
	for d, x := range c.Spec.Envelope.Reservation {
		shrinks[d] = max(0, was.Spec.Envelope.Reservation[d]-x)
	}
	n.asks = max(n.asks, e.newestSpec())
	if err := t.take(n, &e.grows, 0, 0); err != nil {
		return "", err
	}
	n.now.used = n.now.used.minus(shrinks)
	n.now.reborrow(&was, c.Spec)
	return e.now.Node, nil
}

// mayResize checks everything about a resize except room.
func (t *tx) mayResize(c *Resize, e *txCapsule) error {
	at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
	switch {
	case e.now.released:
		return t.refuseEnded(e)
	case c.Since != 0 && (!e.now.Placed() || !t.madeAt(e.now.PlacedAt, c.Since)):
		return t.refuse(at, e.newest(), "capsule %q has no placement made at revision %d", c.Capsule, c.Since)
	case c.Since == 0 && e.now.Placed():
		at.advice = "to resize it there, say Since when it is placed"
		return t.refuse(at, e.newest(), "capsule %q waits no more: it is placed on node %q since revision %d", c.Capsule, e.now.Node, e.now.PlacedAt)
	case c.Since == 0 && e.now.Gang() != "":
		at.advice = "release the gang for good and submit it again, or resize members when they are placed"
		return t.refuse(at, e.newest(), "capsule %q waits as a member of gang %q, whose roles say what it asks for", c.Capsule, e.now.Gang())
	}
	if why := e.now.Spec.resizes(c.Spec, c.Since == 0); why != "" {
		at.advice = "copy the spec of its record and change only that; for anything else submit another capsule"
		return t.refuse(at, e.newestSpec(), "capsule %q %s", c.Capsule, why)
	}
	if t.replays {
		return nil
	}
	if e.now.Begun && !c.Applied && !e.now.Spec.Envelope.Reservation.Within(c.Spec.Envelope.Reservation) {
		at.advice = "let its agent lower what it takes first, and say Applied then"
		return t.refuse(at, e.newest(), "capsule %q has begun on node %q and would shrink while it still takes more", c.Capsule, e.now.Node)
	}
	if c.Since != 0 {
		if n := t.node(e.now.Node); n.now.Node.State == Lost {
			return t.refuse(at, n.newestSpec(), "capsule %q is on node %q, which is lost", c.Capsule, e.now.Node)
		}
	}
	return nil
}

// settleGrowth judges that each capsule that grows fits beside all remains on its node. It may use its new size at
// once, so it cannot wait for the remains to end.
func (t *tx) settleGrowth() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.grows == (Resources{}) {
			continue
		}
		n := t.nodes.find(e.now.Node)
		d, r := n.now.lacksBeside(&e.grows)
		if r == nil {
			continue
		}
		t.at = -1
		free := max(0, n.now.Node.Capacity[d]-n.now.used[d]+e.grows[d])
		at := Rejection{Capsule: e.now.ID, Node: e.now.Node, Dimension: t.s.names.name(d), Want: e.grows[d], Free: max(0, free-r.Spec.Envelope.Reservation[d]), advice: "wait until that has stopped"}
		return t.refuse(at, max(n.newest(), e.newest()),
			"capsule %q cannot grow on node %q while capsule %q, which has left it, has not stopped", e.now.ID, e.now.Node, r.Capsule)
	}
	return nil
}

// beside adds to the claims beside a victim the load of the capsules that still stop on its node (stoppingBeside), and
// returns claimed.
func (s *sparing) beside(n *sparedNode, victim *txCapsule, claimed *load) *load {
	for _, r := range s.stoppingBeside(n, victim) {
		for d, x := range r.Spec.Envelope.Reservation {
			claimed.room[d] = min(claimed.room[d], math.MaxInt64-x) + x
		}
		for i := range claimed.devices {
			claimed.devices[i] += int32(btoi(r.Devices.Has(i)) * r.Spec.Devices.Milli)
		}
	}
	return claimed
}

// stoppingBeside returns the remains on a node if no capsule waits there for them to end ([NodeState.Free]); else nil.
// The remains of the victim itself and of spared victims are left out, because these run on.
func (s *sparing) stoppingBeside(n *sparedNode, victim *txCapsule) []*Remains {
	if !n.n.now.stops() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*n.n.now.remains), func(r *Remains) bool {
		e := s.t.capsules.find(r.Capsule)
		return e != nil && e.was != nil && e.was.PlacedAt == r.Since && (e == victim || e.stays)
	})
}

// besideResize refuses a proposal in which any other commitment names a capsule that is resized.
func (v *validator) besideResize(do []Commitment) {
	named := map[CapsuleID]int{}
	for _, c := range do {
		switch c := c.(type) {
		case Submit:
			for _, id := range c.IDs {
				named[id]++
			}
			for i := 0; c.Gang != nil && i < len(c.Gang.Roles); i++ {
				for _, id := range c.Gang.Roles[i].Members {
					named[id]++
				}
			}
		default:
			named[c.subject()]++
		}
	}
	for i, c := range do {
		if r, ok := c.(Resize); ok && named[r.Capsule] > 1 {
			v.at = i
			v.fail("capsule %q is resized, and named by another commitment; propose them apart", r.Capsule)
		}
	}
}

// addGrowth adds the growth of a resized capsule to the asks on its node; at is the position of the commitment.
func (t *tx) addGrowth(asked map[uint32]*nodeAsks, at int, e *txCapsule) {
	if e == nil || e.grows == (Resources{}) {
		return
	}
	if a := asked[t.nodes.find(e.now.Node).now.index]; a != nil {
		own := ask{room: &e.grows, priority: e.now.Spec.Priority, lender: e.now.Borrows()}
		a.newest, a.at, a.asks = max(a.newest, e.newest()), at, append(a.asks, own)
	}
}

// sizes checks everything about a resize except room, and returns it with the shared copy of its spec.
func (s *State) sizes(r Resize, view Revision) (Resize, error) {
	p := Proposal{View: view, Do: []Commitment{r}}.Clone()
	if err := p.check(&s.limits); err != nil {
		return r, err
	}
	r, _ = p.Do[0].(Resize)
	var t tx
	t.begin(s, s.rev+1, &p)
	_, err := t.resize(&r)
	return r, err
}

// noCapsule refuses a commitment that names a capsule of which there is no record.
func (t *tx) noCapsule(id CapsuleID) error {
	return t.refuse(Rejection{Capsule: id}, t.s.left.Capsules, "there is no capsule %q", id)
}

// refuseEnded returns the error of any commitment about a capsule that has been released for good.
func (t *tx) refuseEnded(e *txCapsule) error {
	return t.refuse(Rejection{Capsule: e.now.ID, advice: "submit it again if it is to run again"}, e.newest(),
		"capsule %q has been released for good", e.now.ID)
}

// protect notes that the placement of a capsule by this proposal is protected, or ends the protection of an older one.
func (t *tx) protect(c *Protect) error {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return err
	}
	switch {
	case c.For > 0 && e.now.Spec.Backfills:
		return t.refuse(Rejection{Capsule: c.Capsule, Node: e.now.Node}, e.newestSpec(), "capsule %q backfills, so it cannot be protected", c.Capsule)
	case c.For > 0:
		e.protects = c.For
		return nil
	}
	p, _ := t.s.protected.Get(protection{capsule: c.Capsule})
	if p.since != c.Since || !e.now.Placed() || !t.madeAt(e.now.PlacedAt, c.Since) || e.unprotects {
		return t.refuse(Rejection{Capsule: c.Capsule, Node: e.now.Node}, e.newest(),
			"capsule %q has no protected placement made at revision %d", c.Capsule, c.Since)
	}
	e.unprotects, e.now.Changed, e.dirty = true, t.rev, true
	return nil
}

// settleProtection judges that no wish takes a capsule off its node that was protected before the proposal.
func (t *tx) settleProtection() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.wished || e.was == nil || t.s.protected.Len() == 0 {
			continue
		}
		if r := t.s.shielded(e.was); r != nil {
			t.at = -1
			return t.refuse(*r, e.newest(), "%s", r.Reason)
		}
	}
	return nil
}
