package orbit

import (
	"fmt"
	"slices"
)

// This file has the rules for capsules that were taken off their node and still run there (Remains), for placements
// that wait until remains end, and for ids that are submitted again.

// confirm executes a Confirm: the capsule has begun to run, is ready, is ready no more, or has stopped.
func (t *tx) confirm(c *Confirm) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	if c.Stopped {
		return t.confirmStopped(c, e)
	}
	at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
	switch {
	case !e.now.Placed() || !t.madeAt(e.now.PlacedAt, c.Since):
		return "", t.refuse(at, e.newest(), "capsule %q has no placement made at revision %d", c.Capsule, c.Since)
	case t.replays:
	case c.NotReady && !e.now.Ready:
		return "", t.refuse(at, e.newest(), "capsule %q was not ready on node %q", c.Capsule, e.now.Node)
	case c.Begun && e.now.Begun || c.Ready && e.now.Ready:
		return "", t.refuse(at, e.newest(), "capsule %q has already begun on node %q; ready: %v", c.Capsule, e.now.Node, e.now.Ready)
	}
	n := t.node(e.now.Node)
	if t.breaks(!n.now.Node.Confirms || n.now.Node.State == Lost) {
		return "", t.refuse(at, max(n.newestSpec(), e.newest()),
			"nothing is confirmed of capsule %q on node %q: the node is lost, or does not confirm",
			c.Capsule, e.now.Node)
	}
	if seen := t.p.View; !e.now.Begun && seen != 0 && e.was != nil && e.newestSpec() > seen { // the agent would start it with an old spec
		at.advice = "start it with the spec that its record has now"
		return "", t.refuse(at, e.newestSpec(), "capsule %q has got another spec since the view, with which it was about to begin", c.Capsule)
	}
	if r := t.waitsFor(e, n); r != nil { // never if it has begun
		return "", t.refuse(at, max(r.Left, e.newest()),
			"capsule %q may not begin on node %q yet: capsule %q, which left node %q at revision %d, has not stopped",
			c.Capsule, e.now.Node, r.Capsule, r.Node, r.Left)
	}
	e.now.Begun, e.now.Ready, e.now.Waits, e.now.Changed, e.dirty = true, c.Ready, false, t.rev, true
	return e.now.Node, nil
}

// waitsFor returns the first remains that have to end before a placed capsule begins on its node; nil: it may begin.
func (t *tx) waitsFor(e *txCapsule, n *txNode) *Remains {
	if r := e.now.Remains(); r != nil {
		t.node(r.Node) // makes that node part of what the proposal has read: its remains may end meanwhile
		return r
	}
	if e.now.Waits && n.now.remains != nil {
		if r := (*n.now.remains)[0]; r.Left <= e.now.PlacedAt {
			return r
		}
	}
	return nil
}

// confirmStopped ends the remains of a placement. Nothing else in the capsule's record changes.
func (t *tx) confirmStopped(c *Confirm, e *txCapsule) (NodeID, error) {
	r := e.now.Remains()
	if r == nil || !t.madeAt(r.Since, c.Since) {
		at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
		if e.now.Placed() && e.now.PlacedAt == c.Since {
			at.advice = "release it with Stopped"
		}
		return "", t.refuse(at, max(e.newest(), t.s.left.Remains),
			"nothing remains of capsule %q from a placement at revision %d: it was not taken off its node, or has stopped there",
			c.Capsule, c.Since)
	}
	n := t.node(r.Node) // not nil: a node with remains cannot leave
	kept := slices.DeleteFunc(slices.Clone(*n.now.remains), func(o *Remains) bool { return o == r })
	t.setRemains(n, kept)
	e.now.setRemains(nil)
	return r.Node, nil
}

// setRemains replaces the remains on a node.
func (t *tx) setRemains(n *txNode, list []*Remains) {
	n.now.remains, n.dirty, n.stops = nil, true, true
	if len(list) > 0 {
		n.now.remains = &list
	}
}

// remain clears Begun, Ready, Waits and Adopted in the record of a capsule that is taken off its node. If the capsule
// had begun to run there, and the node is not lost, remain also puts remains on the node.
func (t *tx) remain(e *txCapsule, n *txNode) {
	if e.now.Begun && n.now.Node.State != Lost {
		r := &Remains{Capsule: e.now.ID, Spec: e.now.Spec, Node: n.now.Node.ID, Devices: e.now.Devices, Since: e.now.PlacedAt, Left: t.rev, Adopted: e.now.Adopted}
		e.now.setRemains(r)
		t.setRemains(n, n.now.withRemains(r))
	}
	e.now.Begun, e.now.Ready, e.now.Waits, e.now.Adopted = false, false, false, false
}

// endAllRemains ends all remains on a node that is lost, because nothing runs there any more.
func (t *tx) endAllRemains(n *txNode) {
	if n.now.remains == nil {
		return
	}
	for _, r := range *n.now.remains {
		if e := t.capsules.find(r.Capsule); e != nil {
			e.now.setRemains(nil)
		}
	}
	t.setRemains(n, nil)
}

// forgetEnded removes the remains from the record of a capsule that joins the write-set, if an earlier step of the
// proposal has ended them.
func (t *tx) forgetEnded(e *txCapsule) {
	if r := e.now.Remains(); r != nil {
		if n := t.nodes.find(r.Node); n != nil && (n.now.remains == nil || !slices.Contains(*n.now.remains, r)) {
			e.now.setRemains(nil)
		}
	}
}

// settleWaits decides which of the capsules that the proposal places have to wait before they begin. On a node that
// does not confirm there is no agent to end that wait, so the placement is refused there.
func (t *tx) settleWaits() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.arrives || e.adopted || !e.now.Placed() {
			continue
		}
		n := t.nodes.find(e.now.Node)
		e.now.Waits = n.now.remains != nil && (e.after || !n.now.fitsBeside(&e.now))
		if t.replays || n.now.Node.Confirms || !e.now.Waits && e.now.Remains() == nil {
			continue
		}
		r := e.now.Remains()
		if r == nil {
			r = (*n.now.remains)[0]
		} else {
			t.node(r.Node)
		}
		newest, leaves := max(e.newest(), t.nodes.find(e.now.Node).newest()), "leaves it by this proposal"
		if r.Left <= t.s.rev {
			newest, leaves = max(newest, r.Left), fmt.Sprintf("left it at revision %d", r.Left)
		}
		t.at = -1
		return t.refuse(Rejection{Capsule: e.now.ID, Node: e.now.Node}, newest,
			"capsule %q has to wait until capsule %q has stopped on node %q (it %s); node %q does not confirm, so nothing waits there",
			e.now.ID, r.Capsule, r.Node, leaves, e.now.Node)
	}
	return nil
}

// submit adds a pending record for each id, all alike. An id may be that of a capsule that has been released for good,
// also by this proposal. The id of a capsule that has not ended is refused.
func (t *tx) submit(ids []CapsuleID, like Capsule) error {
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
			e.now.setRare(uncommon{remains: former.Remains(), earlier: former.rare().earlier})
			e.arrives, e.adopted, e.after, e.protects, e.failures = false, false, false, 0, nil
		}
		t.order = max(t.order, t.s.order).next(t.rev) // now, not in publish: a reused id has an entry that may stand before earlier submissions
		e.now.ID, e.now.Submitted, e.now.Changed, e.dirty = id, uint64(t.order), t.rev, true
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

// submitGang adds a gang and all its members. The gang's record lives as long as the record of any member. While it
// lives, only a gang that includes all recorded members may use its id again, after these have been released for good.
func (t *tx) submitGang(c *Submit) error {
	g := t.gang(c.Gang.ID)
	if g == nil {
		g = t.gangs.add(c.Gang.ID)
	} else {
		if id, newest := t.outlives(g.now.Gang, c.Gang); id != "" {
			return t.refuse(Rejection{Capsule: id, advice: anotherID + ", or release its members for good and name them all again"}, max(g.newest(), newest),
				"there is a gang %q already, with capsule %q", c.Gang.ID, id)
		}
		t.nominates = t.nominates || g.now.Nomination != nil
		g.anew, g.wished, g.drains, g.adopts, g.displaced = true, false, false, false, nil
	}
	g.now = newGangState(c.Gang, t.rev)
	for i := range c.Gang.Roles {
		r := &c.Gang.Roles[i]
		g.now.records += len(r.Members)
		like := Capsule{Spec: r.Spec, common: t.share(common{c.Owner, c.Gang.ID, c.Labels, c.At, uint16(i)})}
		if err := t.submit(r.Members, like); err != nil {
			return err
		}
	}
	return nil
}

// outlives returns a member of g that prevents the other gang from using g's id, and the revision at which the member
// last changed. Such a member has not been released for good, or its record is kept and the other gang does not name
// it. Empty: there is none.
func (t *tx) outlives(g, other *Gang) (id CapsuleID, newest Revision) {
	members := map[CapsuleID]bool{}
	for i := range other.Roles {
		for _, member := range other.Roles[i].Members {
			members[member] = true
		}
	}
	for i := range g.Roles {
		for _, member := range g.Roles[i].Members {
			if e := t.capsule(member); e != nil && e.now.Gang() == g.ID && (!e.now.released || !members[member]) {
				return member, e.newest()
			}
		}
	}
	return "", 0
}

// besidePlace refuses the protection of a capsule that the proposal does not place, and a second protection of the same
// capsule.
func (v *validator) besidePlace(do []Commitment, id CapsuleID) {
	if v.placed == nil {
		v.placed = map[CapsuleID]bool{}
		for _, c := range do {
			if place, ok := c.(Place); ok {
				v.placed[place.Capsule] = true
			}
		}
	}
	if !v.placed[id] {
		v.fail("capsule %q is protected twice, or not placed by the proposal that protects it", id)
	}
	delete(v.placed, id)
}
