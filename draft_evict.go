package orbit

import "cmp"

// What a plan takes off its nodes.

// Release ends a placement or a hold of the view, as a commitment of the next proposal, whose later steps may use
// the room. What the plan itself has placed is undone with Rollback. Errors are those of Place.
func (d *Draft) Release(r Release) error {
	switch {
	case d.view == nil:
		return d.refuse(r.Capsule, nil, "the draft is empty; call Sync first")
	case r.Hold != "":
		return d.endHold(r)
	}
	c := d.view.state.Capsule(r.Capsule)
	use := d.capsules[r.Capsule]
	switch {
	case c == nil:
		return d.refuse(r.Capsule, nil, "there is no capsule %q in the view", r.Capsule)
	case use.what != draftUntouched:
		return d.refuse(r.Capsule, nil, "capsule %q is %s by this plan already", r.Capsule, use.what)
	case r.From != "" && r.From != c.Node:
		return d.refuse(r.Capsule, nil, "capsule %q is on node %q, not on %q", r.Capsule, c.Node, r.From)
	case c.Released() || !c.Placed() && !r.Final:
		return d.refuse(r.Capsule, nil, "capsule %q is not placed", r.Capsule)
	case r.Stopped:
		return d.refuse(r.Capsule, nil, "that capsule %q has stopped is for the agent of its node to say, not for a plan", r.Capsule)
	case !r.Final && c.Gang == "" && d.view.state.Node(c.Node).Node.Schedulable():
		return d.refuse(r.Capsule, nil, "capsule %q is on node %q, which is ready; use Evict to move it", r.Capsule, c.Node)
	}
	act := draftReleased
	if r.Final {
		act = draftEnded
	}
	d.leave(c, act, r)
	return nil
}

// Evict takes a capsule of the view off its node, as a commitment of the next proposal. With For or ForGang a step of that
// proposal, before it or after it, places what it makes way for; without, a later step places the capsule again. From and Since
// are filled in where they are empty. The room serves later steps of the same proposal, and what they leave of it is
// unavailable until the next Sync. Whether the ledger takes it depends on the whole proposal; the step checks what the view
// shows of the two. Errors are those of Place.
func (d *Draft) Evict(e Evict) error {
	if d.view == nil {
		return d.refuse(e.Capsule, nil, "the draft is empty; call Sync first")
	}
	c := d.view.state.Capsule(e.Capsule)
	if c == nil {
		return d.refuse(e.Capsule, nil, "there is no capsule %q in the view", e.Capsule)
	}
	e.From, e.Since = cmp.Or(e.From, c.Node), cmp.Or(e.Since, c.PlacedAt)
	switch use := d.capsules[e.Capsule]; {
	case use.what != draftUntouched:
		return d.refuse(e.Capsule, nil, "capsule %q is %s by this plan already", e.Capsule, use.what)
	case !c.Placed() || e.From != c.Node || e.Since != c.PlacedAt:
		return d.refuse(e.Capsule, nil, "capsule %q is not on node %q since revision %d", e.Capsule, e.From, e.Since)
	case e.For != "" || e.ForGang != "":
		if why := d.view.state.outranked(&e, c); why != "" {
			return d.refuse(e.Capsule, nil, "capsule %q of priority %d does not make way for %s: %s", e.Capsule, c.Spec.Priority, e.cause(), why)
		}
		d.leave(c, draftEvicted, e)
		return nil
	case !c.Spec.Movable && d.view.state.Node(c.Node).Node.Schedulable():
		return d.refuse(e.Capsule, nil, "capsule %q is not movable, and node %q is ready", e.Capsule, c.Node)
	}
	d.leave(c, draftReleased, e)
	return nil
}

// leave takes a capsule of the view off its node, if it is on one.
func (d *Draft) leave(c *Capsule, act draftAct, do Commitment) {
	use := d.capsules[c.ID]
	if d.capsules == nil {
		d.capsules = map[CapsuleID]draftUse{}
	}
	d.capsules[c.ID] = draftUse{act, len(d.log)}
	if !c.Placed() {
		d.step(draftStep{use: use}, nil, do)
		return
	}
	n := d.nodes[d.view.state.Node(c.Node).index]
	left := d.copies.New(*n)
	left.gives(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
	left.Capsules--
	d.step(draftStep{node: n, use: use}, left, do)
}

// endHold is Release for a hold.
func (d *Draft) endHold(r Release) error {
	h, lives := d.view.state.Hold(r.Hold)
	use := d.holds[r.Hold]
	if !lives || use.what != draftUntouched {
		return d.refuse("", nil, "there is no hold %q in the view, or this plan has ended it already", r.Hold)
	}
	n := d.nodes[d.view.state.Node(h.Node).index]
	left := d.copies.New(*n)
	left.gives(h.Room, h.Devices, h.Milli)
	left.holds--
	left.spares(&h)
	if d.holds == nil {
		d.holds = map[HoldID]draftUse{}
	}
	d.holds[r.Hold] = draftUse{draftReleased, len(d.log)}
	d.step(draftStep{node: n, use: use}, left, r)
	return nil
}
