package orbit

import (
	"iter"
	"slices"
)

// Ask makes the draft show its nodes as they are for one capsule, until the next Ask, Propose or Sync: if it is nominated, or
// its gang is, with the room that is nominated for it and for those that it outranks. Nil, as for any other capsule: with what
// is nominated for those of at least its priority taken off. PlaceBest asks by itself; a caller of
// [PlacementEngine.Best] or [NodeState.Fits] who plans for one that may be nominated calls Ask first. Place and Hold judge
// by rank in any case.
func (d *Draft) Ask(c *Capsule) {
	for _, i := range d.askedNodes {
		if n := d.Node(int(i)); n != nil && n.nominated != nil && n.nominated.asker != nil {
			d.show(n, nil)
		}
	}
	if c == nil || c.Spec == nil || d.view == nil {
		return
	}
	asker := d.nominationOf(c.ID)
	if asker == nil {
		return
	}
	d.view.state.nominations.AscendGreaterOrEqual(asker, func(of *Nomination) bool {
		for i := range of.Parts {
			if n := d.view.state.Node(of.Parts[i].Node); n != nil && d.Node(int(n.index)).nominated != nil {
				d.show(d.Node(int(n.index)), asker)
			}
		}
		return of.OutranksPriority(c.Spec.Priority)
	})
}

// show makes a node one that shows its room to an asker.
func (d *Draft) show(n *NodeState, asker *Nomination) {
	if asker != nil && d.asked.Add(int32(n.index)) {
		d.askedNodes = append(d.askedNodes, int32(n.index))
	}
	shown := d.copies.New(*n)
	shown.nominated = n.nominated.copy()
	shown.nominated.asker = asker
	d.replace(n, shown)
}

// replace makes a node another one without a commitment.
func (d *Draft) replace(n, now *NodeState) {
	d.push(draftStep{node: n, log: len(d.log), open: d.open}, now)
}

// nominationOf returns the living nomination of a capsule or of its gang, as the view shows it; nil: there is none, or the
// plan has changed it, or an earlier proposal of the plan ends it because it places one of them, or releases one for good.
func (d *Draft) nominationOf(id CapsuleID) *Nomination {
	if d.view.state.nominations.Len() == 0 {
		return nil
	}
	c := d.view.state.Capsule(id)
	if c == nil {
		return nil
	}
	of := c.Nomination
	if !of.Lives() && c.Gang != "" {
		if g := d.view.state.Gang(c.Gang); g != nil {
			of = g.Nomination
		}
	}
	if !of.Lives() || d.changes(of) {
		return nil
	}
	return of
}

// changes reports whether the plan makes another nomination for the same capsule or gang, or ends it.
func (d *Draft) changes(of *Nomination) bool {
	for i, c := range d.log {
		ends := CapsuleID("")
		switch c := c.(type) {
		case Nominate:
			if c.Capsule == of.Capsule && c.Gang == of.Gang {
				return true
			}
		case Place:
			ends = c.Capsule
		case Release:
			if c.Final {
				ends = c.Capsule
			}
		}
		if ends == "" || i >= d.open {
			continue // in one proposal all ask as before it
		}
		if known := d.view.state.Capsule(ends); ends == of.Capsule || known != nil && of.Gang != "" && known.Gang == of.Gang {
			return true
		}
	}
	return false
}

// yields reports whether what the next proposal would ask for on a node, with one ask more or none, leaves free what is
// nominated there for others. The node is as it would be then, and loses what of its spare room is taken.
func (d *Draft) yields(id CapsuleID, n *NodeState, own *ask) error {
	var asks []ask
	var served []*Nomination
	ended, endedDevices := Resources{}, deviceUse{}
	if own != nil {
		asks, served = append(asks, *own), append(served, own.nomination)
	}
	for _, c := range d.log[d.open:] {
		switch c := c.(type) {
		case Hold:
			if c.Node == n.Node.ID {
				asks = append(asks, ask{room: &c.Room, devices: c.Devices, milli: c.Milli, hold: true})
			}
		case Release:
			if h, ok := d.view.state.Hold(c.Hold); ok && h.Node == n.Node.ID {
				ended = ended.plus(h.Room)
				endedDevices.add(h.Devices, int32(h.Milli))
			}
		}
	}
	for i := len(d.steps) - 1; i >= 0 && d.steps[i].open == d.open; i-- {
		s := &d.steps[i]
		if s.spec == nil {
			continue // it places nothing
		}
		c, _ := d.log[s.log].(Place)
		at := ask{room: &s.spec.Envelope.Reservation, devices: c.Devices, milli: s.spec.Devices.Milli, priority: s.spec.Priority, nomination: d.nominationOf(c.Capsule)}
		served = append(served, at.nomination)
		if c.Node == n.Node.ID {
			asks = append(asks, at)
		}
	}
	parts := slices.DeleteFunc(slices.Clone(n.nominated.parts), func(p nominatedPart) bool {
		return slices.Contains(served, p.of) || p.of.Made <= d.view.Revision() && slices.ContainsFunc(d.log[d.open:], func(c Commitment) bool {
			other, ok := c.(Nominate) // takes the place of it, or ends it
			return ok && other.Capsule == p.of.Capsule && other.Gang == p.of.Gang
		})
	})
	if e := n.encroaches(parts, asks, &ended, &endedDevices); e.of != nil {
		return d.refuse(id, n, "node %q is nominated for %s", n.Node.ID, e.of.nominee())
	}
	if own != nil {
		n.spend(own)
	}
	return nil
}

// Nominate claims room for a capsule or a gang, as a commitment of the next proposal, and ends nominations of lower rank,
// lowest first, as far as that is needed to make way for it. What is nominated stands in the way of later steps of lower
// rank; what those had that end is still out of reach until the next Sync. A plan nominates each capsule or gang once, and
// none that it has ended. Errors are those of Place.
func (d *Draft) Nominate(c Nominate) error {
	if d.view == nil {
		return d.refuse(c.Capsule, nil, "the draft is empty; call Sync first")
	}
	for id := range d.members(c.Capsule, c.Gang) {
		if use := d.capsules[id]; use.what != draftUntouched {
			return d.refuse(id, nil, "capsule %q is %s by this plan already", id, use.what)
		}
	}
	if d.changes(&Nomination{Capsule: c.Capsule, Gang: c.Gang}) {
		return d.refuse(c.Capsule, nil, "%s is nominated by this plan already, or its nomination is ended", c.nominee())
	}
	p := Proposal{View: d.view.Revision(), Do: []Commitment{c}}.Clone()
	if err := p.check(&d.view.state.limits); err != nil {
		return err
	}
	var t tx
	t.begin(d.view.state, d.view.Revision()+1, &p)
	for i, earlier := range d.log {
		switch n, ok := earlier.(Nominate); {
		case !ok:
		case i >= d.open:
			_ = t.nominate(&n) // it could before
		default: // an earlier proposal may commit or not: what it makes counts, and so does what it ends
			t.beside = append(t.beside, &Nomination{Capsule: n.Capsule, Gang: n.Gang, Parts: n.Parts})
		}
	}
	c, _ = p.Do[0].(Nominate)
	if err := t.nominate(&c); err != nil {
		return err
	}
	ends, err := t.makeWay(&c, func(o *Nomination) bool { return !d.settles(o) })
	if err != nil {
		return err
	}
	start := d.Checkpoint()
	for _, end := range ends {
		d.step(draftStep{}, nil, end)
	}
	d.step(draftStep{}, nil, c)
	if len(c.Parts) > 0 {
		made := t.nominations[len(t.nominations)-1]
		for i := range made.Parts {
			n := d.nodes[d.view.state.Node(made.Parts[i].Node).index]
			claimed := d.copies.New(*n)
			claimed.nominated = n.nominated.copy()
			claimed.nominated.parts = append(slices.Clone(claimed.nominated.parts), nominatedPart{made, i})
			d.replace(n, claimed)
			if err := d.yields("", claimed, nil); err != nil { // an earlier step of the same proposal is in the way
				d.Rollback(start)
				return err
			}
		}
	}
	return nil
}

// members yields a capsule, or those of a gang.
func (d *Draft) members(capsule CapsuleID, gang GangID) iter.Seq[CapsuleID] {
	return func(yield func(CapsuleID) bool) {
		if gang == "" {
			yield(capsule)
			return
		}
		for c := range d.view.state.Members(gang) {
			if !yield(c.ID) {
				return
			}
		}
	}
}

// settles reports whether the plan does something with the capsule that is nominated, or with a member of the gang, that may
// end the nomination. What may have ended already is neither counted on nor ended again.
func (d *Draft) settles(of *Nomination) bool {
	for id := range d.members(of.Capsule, of.Gang) {
		if d.capsules[id].what != draftUntouched {
			return true
		}
	}
	return d.changes(of)
}
