package orbit

import "fmt"

// A capsule gets another size in place, where it fits.

// check implements [Commitment]. A resize is kept with the shared copy of its spec.
func (c Resize) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	if c.Spec == nil {
		v.fail("resize of capsule %q needs a spec", c.Capsule)
		return nil
	}
	c.Spec = v.spec(c.Spec)
	return c
}

// execute implements [Commitment].
func (c Resize) execute(t *tx) (NodeID, error) {
	return t.resize(&c)
}

func (c Resize) subject() CapsuleID { return c.Capsule }

func (c Resize) effect() effect {
	f := effect{resizes: c.Capsule, nominee: Nominee{Capsule: c.Capsule}, gives: true}
	if c.Since == 0 {
		f.waits = c.Capsule // it is in another class now
	}
	return f
}

// offence implements [planCheck.offence]. A plan may neither change the priority nor report that the new size has been
// applied.
func (c Resize) offence(t *planCheck) (CapsuleID, string) {
	if own := t.s.Capsule(c.Capsule); c.Applied || own != nil && c.Spec != nil && own.Spec.Priority != c.Spec.Priority {
		return c.Capsule, fmt.Sprintf("says that capsule %q takes less already, or changes its priority, which is not for a plan", c.Capsule)
	}
	return c.Capsule, t.foreign(c.Capsule, "resizes")
}

// beside asks for besideResize, once for all resizes of the proposal.
func (c Resize) beside(v *validator, _ []Commitment) {
	v.resizes = v.resizes || v.limits != &noLimits
}

// own implements [cloner.own].
func (c Resize) own(copies *cloner) Commitment {
	c.Spec = copies.spec(c.Spec)
	return c
}

// resize replaces the spec of a capsule, placed or pending. Room is judged later, on the sum of all commitments
// (judgeCapacity).
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

// judgeGrowth judges that each capsule that grows fits beside all remains on its node. It may use its new size at
// once, so it cannot wait for the remains to end.
func (t *tx) judgeGrowth() error {
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

// asks adds the growth of the capsule to the asks on its node.
func (c Resize) asks(t *tx, asked map[uint32]*nodeAsks, at int) {
	e := t.capsules.find(c.Capsule)
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

// besideResize refuses a proposal in which any other commitment names a capsule that is resized.
func (v *validator) besideResize(do []Commitment) {
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
		if r, ok := c.(Resize); ok && named[r.Capsule] > 1 {
			v.at = i
			v.fail("capsule %q is resized, and named by another commitment; propose them apart", r.Capsule)
		}
	}
}
