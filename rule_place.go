package orbit

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// The way of a capsule: submitted, placed on a node that it fits by labels, taints and devices, released.

// check implements [Commitment]. A Submit is kept with the shared copy of its spec, and so are the roles of a gang.
func (c Submit) check(v *validator) Commitment {
	v.text("owner", c.Owner, v.limits.IDBytes)
	v.carried("submission", c.At, c.Labels)
	if c.Gang != nil && (len(c.IDs) > 0 || c.Spec != nil) {
		v.fail("submit names a gang and also capsules; it needs exactly one of them")
		return nil // no more faults: what the gang lacks may be in the fields that do not belong to it
	}
	if v.labelsOf(&c); c.Gang != nil {
		v.gang(c.Gang)
		v.failAll(c.Gang.shortages(c.Join, v.limits.GangMembers))
		return nil
	}
	if c.Join {
		v.fail("submit joins no gang: Join is for the members of Gang")
	}
	v.capsuleIDs(c.IDs)
	if c.Spec == nil && len(c.IDs) > 0 {
		v.fail("submit of %d capsules needs a spec", len(c.IDs))
		return nil
	}
	if c.Spec == nil {
		c.Spec = &Spec{} // so that readers of the history need not check
	}
	c.Spec = v.spec(c.Spec)
	return c
}

// execute implements [Commitment].
func (c Submit) execute(t *tx) (NodeID, error) {
	switch {
	case c.Join:
		return "", t.joinGang(&c)
	case c.Gang != nil:
		return "", t.submitGang(&c)
	}
	return "", t.submit(&c, c.IDs, Capsule{Spec: c.Spec, common: t.share(common{owner: c.Owner, labels: c.Labels, time: c.At})})
}

func (Submit) subject() CapsuleID { return "" }

// work yields the capsules that are submitted, by their spec.
func (c *Submit) work(yield func(*Spec, []CapsuleID) bool) {
	if c.Gang == nil {
		yield(c.Spec, c.IDs)
		return
	}
	for i := range c.Gang.Roles {
		if role := &c.Gang.Roles[i]; !yield(role.Spec, role.Members) {
			return
		}
	}
}

// labelsOf returns the labels of one of the capsules that has labels of its own.
func (c *Submit) labelsOf(id CapsuleID) map[string]string {
	all := maps.Clone(c.LabelsOf[id])
	for key, value := range c.Labels {
		if _, own := all[key]; !own {
			all[key] = value
		}
	}
	return all
}

func (c Submit) effect() effect {
	if c.Join && c.Gang != nil { // the gang's nomination ends
		return effect{nominee: Nominee{Gang: c.Gang.ID}}
	}
	return effect{}
}

// offence implements [planCheck.offence].
func (Submit) offence(*planCheck) (CapsuleID, string) {
	return "", "submits work, which its owner does, not a plan"
}

// own implements [cloner.own].
func (c Submit) own(copies *cloner) Commitment {
	c.IDs, c.Spec, c.Labels = slices.Clone(c.IDs), copies.spec(c.Spec), maps.Clone(c.Labels)
	if c.LabelsOf = maps.Clone(c.LabelsOf); c.LabelsOf != nil {
		for id, labels := range c.LabelsOf {
			c.LabelsOf[id] = maps.Clone(labels)
		}
	}
	if c.Gang != nil {
		c.Gang = copies.gang(c.Gang)
	}
	return c
}

// dated implements [timeless].
func (c Submit) dated(at Instant) Commitment {
	c.At = at
	return c
}

// check implements [Commitment].
func (c Place) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	v.ref("node id", string(c.Node))
	if c.Note != "" {
		v.text("note", c.Note, v.limits.ValueBytes)
	}
	v.carried("placement", c.At, nil)
	return nil
}

// execute implements [Commitment].
func (c Place) execute(t *tx) (NodeID, error) {
	return t.place(&c)
}

func (c Place) subject() CapsuleID { return c.Capsule }

func (c Place) effect() effect {
	return effect{arrives: c.Capsule, heals: c.Capsule, nominee: Nominee{Capsule: c.Capsule}, node: c.Node, takes: true}
}

// offence implements [planCheck.offence].
func (c Place) offence(t *planCheck) (CapsuleID, string) {
	if t.moved[c.Capsule] {
		return "", ""
	}
	return c.Capsule, t.foreign(c.Capsule, "places")
}

// dated implements [timeless].
func (c Place) dated(at Instant) Commitment {
	c.At = at
	return c
}

// stamped returns the placement with the time at which an engine sends it; ok is false if it has one.
func (c Place) stamped(now Instant) (_ Commitment, ok bool) {
	if c.At != 0 {
		return nil, false
	}
	c.At = now
	return c, true
}

// check implements [Commitment]. A release names exactly one capsule or hold, and its flags go together.
func (c Release) check(v *validator) Commitment {
	if (c.Capsule == "") == (c.Hold == "") {
		v.fail("release names capsule %q and hold %q; it needs exactly one", c.Capsule, c.Hold)
	}
	if c.Hold != "" && (c.From != "" || c.Final || c.Stopped) {
		v.fail("release of a hold takes neither From nor Final nor Stopped")
	}
	v.carried("release", c.At, nil)
	if c.At != 0 && (c.Hold != "" || c.Final && !c.Stopped) {
		v.fail("release of a hold, or for good without Stopped, takes no At")
	}
	v.text("capsule id", string(c.Capsule), v.limits.IDBytes)
	v.text("hold id", string(c.Hold), v.limits.IDBytes)
	v.text("node id", string(c.From), v.limits.IDBytes)
	return nil
}

// execute implements [Commitment].
func (c Release) execute(t *tx) (NodeID, error) {
	if c.Hold != "" {
		return t.endHold(c.Hold)
	}
	return t.release(&c)
}

func (c Release) subject() CapsuleID { return c.Capsule }

func (c Release) effect() effect {
	f := effect{leaves: c.Capsule, gives: true}
	if c.Final {
		f.nominee.Capsule = c.Capsule
	} else {
		f.waits = c.Capsule
	}
	return f
}

// offence implements [planCheck.offence].
func (c Release) offence(t *planCheck) (CapsuleID, string) {
	switch {
	case c.Hold != "":
		return "", notForPlans("releases hold", string(c.Hold), "make and release only holds whose id")
	case c.Stopped:
		return c.Capsule, fmt.Sprintf("says that capsule %q has stopped, which the agent of its node would say", c.Capsule)
	}
	return c.Capsule, t.foreign(c.Capsule, "releases")
}

// stamped returns the release with the time at which an engine sends it; ok is false if it has one or takes none.
func (c Release) stamped(now Instant) (_ Commitment, ok bool) {
	if c.At != 0 || c.Hold != "" || c.Final && !c.Stopped {
		return nil, false
	}
	c.At = now
	return c, true
}

// lives reports whether the hold that c ends still exists, and ends then.
func (c Release) lives(s *State, ends time.Time) bool {
	h, ok := s.Hold(c.Hold)
	return ok && h.Ends.Equal(ends)
}

// wish reports whether c is a wish to take the capsule off its node.
func (c Release) wish(s *State, of *Capsule) bool { return !c.Final && s.misses(of) }

// beside refuses what may not stand beside a Stopped release.
func (c Release) beside(v *validator, all []Commitment) {
	if c.Stopped && v.limits != &noLimits {
		v.besideReport(all)
	}
}

// submit adds a pending record for each of some ids of a Submit, all alike but for labels of their own. An id may be that
// of a capsule that has been released for good, also by this proposal. The id of a capsule that has not ended is refused.
func (t *tx) submit(c *Submit, ids []CapsuleID, like Capsule) error {
	for _, id := range ids {
		e := t.capsule(id)
		switch {
		case e == nil:
			e = t.capsules.add(id)
			e.now = like
		case !e.now.released:
			return t.refuse(Rejection{Capsule: id, advice: anotherID + ", or release the capsule for good first"}, e.newest(), "there is a capsule %q already", id)
		default:
			if _, err := t.meant(id); err != nil {
				return err
			}
			former := e.now
			former.remember(t.s.limits.PlacementIDs)
			e.anew, e.former, e.now = e.was != nil, e.slot, like
			e.now.setRare(uncommon{remains: former.Remains(), surge: former.Surge(), earlier: former.rare().earlier})
			e.arrives, e.adopted, e.after, e.ends, e.protects, e.failures = false, false, false, false, 0, nil
		}
		t.order = max(t.order, t.s.order).next(t.rev) // now, not in publish: a reused id has an entry that may stand before earlier submissions
		e.now.ID, e.now.Submitted, e.now.Changed, e.dirty = id, uint64(t.order), t.rev, true
		if len(c.LabelsOf[id]) > 0 {
			own := *like.inCommon()
			own.labels = c.labelsOf(id)
			e.now.common = &own
		}
		e.slot = t.vacantCapsule()
	}
	return nil
}

// share returns c for the records of a submission, or what those of the last one refer to if it is equal.
func (t *tx) share(c common) *common {
	p := c.shared(t.common)
	if p != nil {
		t.common = p
	}
	return p
}

// place puts a pending capsule on a node. Everything except room is checked at once. Room is judged when all
// commitments are known, so that a release may come after the placement it makes way for. The record
// remembers which proposal placed it: so a proposal that is sent twice is recognised without a side table.
func (t *tx) place(c *Place) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	n := t.node(c.Node)
	if n == nil {
		return "", t.refuse(Rejection{Capsule: c.Capsule, Node: c.Node}, t.s.left.Nodes, "node %q is not a member", c.Node)
	}
	if err := t.mayPlace(c, e, n); err != nil {
		return "", err
	}
	spec := e.now.Spec
	n.asks = max(n.asks, e.newestSpec())
	if err := t.take(n, &spec.Envelope.Reservation, c.Devices, spec.Devices.Milli); err != nil {
		return "", err
	}
	n.now.Capsules++
	e.dirty = true
	e.now.remember(t.s.limits.PlacementIDs)
	e.now.Node, e.node, e.arrives = n.now.Node.ID, n.now.index, true
	e.now.Devices, e.now.PlaceTime = c.Devices, c.At
	e.now.Changed, e.now.PlacedAt, e.now.PlacedBy = t.rev, t.rev, t.p.ID
	e.after, e.adopted, e.now.Adopted = c.After, false, false
	t.enter(e, c.Note)
	return n.now.Node.ID, nil
}

// mayPlace checks everything about a placement except room and the rules that judge the sum of all commitments.
func (t *tx) mayPlace(c *Place, e *txCapsule, n *txNode) error {
	node, spec := n.now.Node, e.now.Spec
	switch {
	case e.now.released:
		return t.refuseEnded(e)
	case e.evicted || e.ends:
		return t.refusePlace(c, 0, "capsule %q is evicted or ends by this proposal", c.Capsule)
	case e.now.Placed():
		return t.refusePlace(c, e.newest(), "capsule %q is placed on node %q", c.Capsule, e.now.Node)
	case node.State == Lost || t.breaks(!node.Schedulable()):
		return t.refusePlace(c, n.newestSpec(), "node %q is unschedulable", c.Node)
	}
	for i := range spec.Require {
		if t.breaks(!spec.Require[i].On(node)) {
			return t.refusePlace(c, max(n.newestSpec(), e.newestSpec()), "node %q does not meet %s", c.Node, spec.Require[i])
		}
	}
	if taint := node.keptOff(spec); t.breaks(taint != nil) {
		return t.refusePlace(c, max(n.newestSpec(), e.newestSpec()), "node %q has the taint %s, which capsule %q does not tolerate", c.Node, taint, c.Capsule)
	}
	r := &spec.Devices
	switch {
	case c.Devices.Len() != r.Count:
		return t.refusePlace(c, e.newestSpec(), "capsule %q asks for %d devices, the placement names %d", c.Capsule, r.Count, c.Devices.Len())
	case t.breaks(r.Count > 0 && !r.Accepts(node.Devices.Model)):
		return t.refusePlace(c, max(n.newestSpec(), e.newestSpec()), "node %q has devices of model %q, not %s", c.Node, node.Devices.Model, joinWords(r.Models))
	}
	return t.mayUse(n, c.Devices, c.Capsule)
}

// enter completes the record of a capsule that comes to a node: the capsule's nomination ends, and its gang counts it.
func (t *tx) enter(e *txCapsule, note string) {
	rare := *e.now.rare()
	t.nominates = t.nominates || rare.nomination != nil
	rare.nomination, rare.note = nil, note
	e.now.setRare(rare)
	t.countGang(&e.now, 1)
}

// release takes a capsule off its node, back to pending or for good. A second release of the same placement is refused.
// With From, a release that arrives late cannot undo a newer placement on another node either.
func (t *tx) release(c *Release) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
	switch {
	case e.now.released && c.Final:
		at.advice = "it has ended, so nothing is left to release"
		return "", t.refuse(at, e.newest(), "capsule %q has been released for good", c.Capsule)
	case e.now.released:
		return "", t.refuseEnded(e)
	case e.evicted:
		return "", t.refuse(at, 0, "capsule %q is evicted by this proposal", c.Capsule)
	case c.From != "" && c.From != e.now.Node:
		return "", t.refuse(at, e.newest(), "capsule %q is on node %q, not on %q", c.Capsule, e.now.Node, c.From)
	case !e.now.Placed() && (!c.Final || c.Stopped):
		return "", t.refuse(at, e.newest(), "capsule %q is not placed", c.Capsule)
	}
	from, surge := e.now.Node, e.now.surging()
	switch {
	case surge != nil && !c.Final: // it runs on where it surges from, so this is no disruption and no failed attempt
		t.countFailure(e, c.At, false)
	case c.Stopped:
		t.countFailure(e, c.At, true)
		t.endExhausted(e, c)
	case !c.Final:
		if err := t.mayReturn(e, c.At); err != nil {
			return "", err
		}
		e.ends = !e.arrives && t.node(from).now.Node.ends(&e.now)
	}
	e.now.Begun = e.now.Begun && !c.Stopped
	if e.now.Placed() {
		t.leave(e)
	}
	e.now.Changed, e.dirty = t.rev, true
	switch {
	case surge == nil:
	case c.Final:
		t.endSurge(e)
	default:
		t.resume(e)
	}
	if e.now.released = c.Final; c.Final {
		t.finals = true
		t.end(e)
	}
	return from, nil
}

// end completes a release for good: the gang counts the member as done, and the nominations of the capsule and of the gang
// end, because that of the gang includes room for the member. First is kept, so that the next nomination of the gang keeps its
// place among equal ranks.
func (t *tx) end(e *txCapsule) {
	t.nominates = t.nominates || e.now.Nomination() != nil
	e.now.setNomination(nil)
	if e.now.Gang() == "" {
		return
	}
	now := t.ownGang(t.gang(e.now.Gang()))
	now.Done[e.now.inCommon().role]++
	now.Changed = t.rev
	if now.Nomination.Lives() {
		now.Nomination, t.nominates = now.Nomination.ended(), true
	}
}

// leave takes a placed capsule off its node.
func (t *tx) leave(e *txCapsule) {
	n := t.node(e.now.Node) // is a member: nodes with capsules cannot leave
	n.now.used = n.now.used.minus(e.now.Spec.Envelope.Reservation)
	n.now.useDevices(e.now.Devices, -e.now.Spec.Devices.Milli)
	n.now.Capsules--
	n.now.Usage, n.dirty = t.rev, true
	t.countGang(&e.now, -1)
	t.remain(e, n)
	n.now.borrow(&e.now, -1)
	rare := *e.now.rare()
	rare.note, rare.borrows = "", nil
	e.now.setRare(rare)
	e.now.Node, e.now.Devices = "", 0
}
