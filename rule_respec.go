package orbit

import (
	"fmt"
	"slices"
)

// A capsule gets another spec where it is: in the queue, or on its node. Only what it takes of the node is judged.

// check implements [Commitment]. A Respec is kept with the shared copy of its spec.
func (c Respec) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	if c.Spec == nil {
		v.fail("respec of capsule %q needs a spec", c.Capsule)
		return nil
	}
	if c.Stopping && (c.Since == 0 || c.Applied) {
		v.fail("respec of capsule %q, which stops, needs the revision of the placement that it has left, and no Applied", c.Capsule)
	}
	c.Spec = v.spec(c.Spec)
	return c
}

// execute implements [Commitment].
func (c Respec) execute(t *tx) (NodeID, error) {
	return t.respec(&c)
}

func (c Respec) subject() CapsuleID { return c.Capsule }

func (c Respec) effect() effect {
	if c.Stopping {
		return effect{stops: c.Capsule, gives: true} // it may be in the way of others no longer
	}
	f := effect{respecs: c.Capsule, nominee: Nominee{Capsule: c.Capsule}, gives: true}
	if c.Since == 0 {
		f.waits = c.Capsule // it is in another class now
	} else {
		f.heals, f.regroups = c.Capsule, true
	}
	return f
}

// offence implements [planCheck.offence]. A plan may change the envelope alone: the rest of a spec is said by the owner
// of the work, and what another party has done already by its agent.
func (c Respec) offence(t *planCheck) (CapsuleID, string) {
	if own := t.s.Capsule(c.Capsule); c.Applied || c.Stopping || own != nil && c.Spec != nil && !own.Spec.resizes(c.Spec) {
		return c.Capsule, fmt.Sprintf("says that another spec of capsule %q is applied already or that it stops, or changes more of the spec than the envelope, which is not for a plan", c.Capsule)
	}
	return c.Capsule, t.foreign(c.Capsule, "changes the spec of")
}

// beside asks for besideRespec, once for all Respecs of the proposal.
func (c Respec) beside(v *validator, _ []Commitment) {
	v.respecs = v.respecs || v.limits != &noLimits
}

// own implements [cloner.own].
func (c Respec) own(copies *cloner) Commitment {
	c.Spec = copies.spec(c.Spec)
	return c
}

// respec replaces the spec of a capsule, placed or pending. What it takes more of its node is judged later, on the sum
// of all commitments (judgeCapacity, judgeGrowth).
func (t *tx) respec(c *Respec) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	if c.Stopping {
		return t.respecStopping(c, e)
	}
	if err := t.mayRespec(c, e); err != nil {
		return "", err
	}
	was := e.now
	e.now.Spec, e.now.Respecified, e.now.Changed, e.dirty = c.Spec, true, t.rev, true
	if e.now.Placed() {
		return e.now.Node, t.respecPlaced(c, e, &was)
	}
	if e.now.Nomination().Lives() { // it was made for what the capsule asked for before
		e.now.setNomination(e.now.Nomination().ended())
		t.nominates = true
	}
	if g := t.gang(e.now.Gang()); g != nil {
		own := t.ownGang(g)
		if own.varies, own.Changed = true, t.rev; own.Nomination.Lives() {
			own.Nomination, t.nominates = own.Nomination.ended(), true
		}
	}
	return "", nil
}

// respecPlaced brings the books of the node up to date for a capsule on it whose record was replaced. What was applied
// by another party is a fact, so the capsule asks for nothing.
func (t *tx) respecPlaced(c *Respec, e *txCapsule, was *Capsule) error {
	n, more, shrinks := t.node(e.now.Node), was.grown(c.Spec), Resources{}
	e.node = n.now.index
	for d, x := range c.Spec.Envelope.Reservation {
		shrinks[d] = max(0, was.Spec.Envelope.Reservation[d]-x)
	}
	asked, asker := n.asked, n.asker
	n.asks = max(n.asks, e.newestSpec())
	if err := t.take(n, &more.Envelope.Reservation, 0, 0); err != nil {
		return err
	}
	n.now.used = n.now.used.minus(shrinks)
	n.now.reborrow(was, c.Spec)
	if g := t.gang(e.now.Gang()); g != nil {
		t.ownGang(g).varies = true
	}
	switch {
	case !more.takesMore():
	case c.Applied:
		n.asked, n.asker, e.now.Adopted = asked, asker, true
	default:
		e.grows = more
	}
	return nil
}

// respecStopping replaces the spec with which a capsule counts on a node that it has left, and nothing in the capsule's own record.
func (t *tx) respecStopping(c *Respec, e *txCapsule) (NodeID, error) {
	r, err := t.remainsSince(e, c.Since, "propose it without Stopping")
	if err != nil {
		return "", err
	}
	at := Rejection{Capsule: c.Capsule, Node: r.Node}
	switch {
	case r.Surge:
		at.advice = "wait until it is ready, or release it, which undoes the surge"
		return "", t.refuse(at, e.newest(), "capsule %q surges from node %q, where it runs with the spec that it has", c.Capsule, r.Node)
	case !c.Spec.takesAs(r.Spec):
		at.advice = "copy the envelope, the devices and the extras of Remains.Spec"
		return "", t.refuse(at, r.Left, "capsule %q has left node %q, and takes there what it took until it has stopped", c.Capsule, r.Node)
	}
	now := *r
	now.Spec = c.Spec
	n := t.node(r.Node) // not nil: a node with remains cannot leave
	n.now.remains = remainsWithout(n.now.remains, r)
	t.setRemains(n, n.now.withRemains(&now))
	e.now.replaced(r, &now)
	e.dirty = true
	return r.Node, nil
}

// mayRespec checks everything about a Respec except what the capsule takes more.
func (t *tx) mayRespec(c *Respec, e *txCapsule) error {
	at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
	switch {
	case e.now.released:
		return t.refuseEnded(e)
	case c.Since != 0 && (!e.now.Placed() || !t.madeAt(e.now.PlacedAt, c.Since)):
		return t.refuse(at, e.newest(), "capsule %q has no placement made at revision %d", c.Capsule, c.Since)
	case t.breaks(e.now.surging() != nil):
		at.advice = "wait until it is ready, or release it, which undoes the surge"
		return t.refuse(at, e.newest(), "capsule %q surges from node %q, where it runs with the spec that it has", c.Capsule, e.now.surging().Node)
	case c.Since == 0 && e.now.Placed():
		at.advice = "to change its spec there, say Since when it is placed"
		return t.refuse(at, e.newest(), "capsule %q waits no more: it is placed on node %q since revision %d", c.Capsule, e.now.Node, e.now.PlacedAt)
	case t.breaks(c.Spec.Backfills && e.now.Gang() != ""):
		at.advice = "name a spec that does not backfill"
		return t.refuse(at, e.newest(), "capsule %q is a member of gang %q, so it cannot backfill", c.Capsule, e.now.Gang())
	case c.Since == 0:
		return nil
	case c.Spec.Devices.Count != e.now.Spec.Devices.Count || c.Spec.Devices.Milli != e.now.Spec.Devices.Milli:
		at.advice = "copy the devices of the spec in its record; for others release it and place it again"
		return t.refuse(at, e.newestSpec(), "capsule %q holds %d devices on node %q, %d milli of each, and keeps them as long as it is there", c.Capsule, e.now.Spec.Devices.Count, e.now.Node, e.now.Spec.Devices.Milli)
	case e.now.Borrows() != nil && !c.Spec.Backfills:
		at.advice = "let it backfill until it has left"
		return t.refuse(at, e.newest(), "capsule %q borrows nominated room on node %q, and cannot withdraw the consent to give it back", c.Capsule, e.now.Node)
	}
	if t.replays {
		return nil
	}
	return t.mayRespecThere(c, e)
}

// mayRespecThere is mayRespec for the rules about a placed capsule by which a committed history is not judged.
func (t *tx) mayRespecThere(c *Respec, e *txCapsule) error {
	at, n := Rejection{Capsule: c.Capsule, Node: e.now.Node}, t.node(e.now.Node)
	switch {
	case c.Spec.Backfills && t.s.Protected(c.Capsule) != 0:
		at.advice = "end its protection first"
		return t.refuse(at, e.newest(), "capsule %q is protected on node %q, so it cannot backfill", c.Capsule, e.now.Node)
	case e.now.Begun && !c.Applied && c.Spec.takesLess(e.now.Spec):
		at.advice = "let its agent lower what it takes first, and say Applied then"
		return t.refuse(at, e.newest(), "capsule %q has begun on node %q and would shrink while it still takes more", c.Capsule, e.now.Node)
	case n.now.Node.State == Lost:
		return t.refuse(at, n.newestSpec(), "capsule %q is on node %q, which is lost", c.Capsule, e.now.Node)
	}
	return nil
}

// judgeGrowth judges that each capsule that grows fits beside all remains on its node. It may use its new size at
// once, so it cannot wait for the remains to end.
func (t *tx) judgeGrowth() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.grows == nil || !e.now.Placed() { // it grows, and its node has gone
			continue
		}
		n, room := t.nodes.find(e.now.Node), &e.grows.Envelope.Reservation
		d, r := n.now.lacksBeside(room)
		if r == nil {
			continue
		}
		t.at = -1
		free := max(0, n.now.Node.Capacity[d]-n.now.used[d]+room[d])
		at := Rejection{Capsule: e.now.ID, Node: e.now.Node, Dimension: t.s.names.name(d), dimension: uint8(d + 1), Want: room[d], Free: max(0, free-r.Spec.Envelope.Reservation[d]), advice: "wait until that has stopped"}
		return t.refuse(at, max(n.newest(), e.newest()),
			"capsule %q cannot grow on node %q while capsule %q, which has left it, has not stopped", e.now.ID, e.now.Node, r.Capsule)
	}
	return nil
}

// asks adds the growth of the capsule to the asks on its node.
func (c Respec) asks(t *tx, asked map[uint32]*nodeAsks, at int) {
	e := t.capsules.find(c.Capsule)
	if e == nil || e.grows == nil || !e.now.Placed() {
		return
	}
	if a := asked[t.nodes.find(e.now.Node).now.index]; a != nil {
		a.newest, a.at, a.asks = max(a.newest, e.newest()), at, append(a.asks, e.grows.growth(&e.now))
	}
}

// sizes checks everything about a Respec except room, and returns it with the shared copy of its spec.
func (s *State) sizes(r Respec, view Revision) (Respec, error) {
	p := Proposal{View: view, Do: []Commitment{r}}.Clone()
	if err := p.check(&s.limits); err != nil {
		return r, err
	}
	r, _ = p.Do[0].(Respec)
	var t tx
	t.begin(s, s.rev+1, &p)
	_, err := t.respec(&r)
	return r, err
}

// besideRespec refuses a proposal in which any other commitment names a capsule that gets another spec. An eviction may
// name it as the one for which a victim makes way.
func (v *validator) besideRespec(do []Commitment) {
	named := map[CapsuleID]int{}
	for _, c := range do {
		named[c.subject()]++
		if c, ok := c.(Submit); ok {
			for _, ids := range c.work {
				for _, id := range ids {
					named[id]++
				}
			}
		}
	}
	for i, c := range do {
		if r, ok := c.(Respec); ok && named[r.Capsule] > 1 {
			v.at = i
			v.fail("capsule %q gets another spec, and is named by another commitment; propose them apart", r.Capsule)
		}
	}
}

// grown returns what a placed capsule takes more once it has another spec, as a spec of its own: the growth in each
// dimension and of each extra. It has no rules.
func (c *Capsule) grown(to *Spec) *Spec {
	more := &Spec{Priority: to.Priority}
	for d, x := range to.Envelope.Reservation {
		more.Envelope.Reservation[d] = max(0, x-c.Spec.Envelope.Reservation[d])
	}
	for _, x := range to.Extras {
		if x.Amount -= amountOf(c.Spec.Extras, x.Name); x.Amount > 0 {
			more.Extras = append(more.Extras, x)
		}
	}
	return more
}

// takesMore reports whether a growth ([Capsule.grown]) is more than nothing.
func (s *Spec) takesMore() bool { return s.Envelope.Reservation != (Resources{}) || len(s.Extras) > 0 }

// takesLess reports whether a capsule of the spec takes less in some dimension, or of some extra, than one of the other.
func (s *Spec) takesLess(than *Spec) bool {
	return !than.Envelope.Reservation.Within(s.Envelope.Reservation) ||
		slices.ContainsFunc(than.Extras, func(x Extra) bool { return amountOf(s.Extras, x.Name) < x.Amount })
}

// takesAs reports whether capsules of both specs take the same of a node.
func (s *Spec) takesAs(o *Spec) bool {
	return !s.takesLess(o) && !o.takesLess(s) && s.Devices.Count == o.Devices.Count && s.Devices.Milli == o.Devices.Milli
}

// growth returns the ask of a placed capsule that grows by the spec.
func (s *Spec) growth(of *Capsule) ask {
	return ask{room: &s.Envelope.Reservation, priority: s.Priority, lender: of.Borrows()}
}

// resizes reports whether another spec, a shared one, differs from s in the envelope at most.
func (s *Spec) resizes(to *Spec) bool {
	like := *s
	like.Envelope = to.Envelope
	return string(like.appendKey(nil)) == to.key
}
