package orbit

import (
	"cmp"
	"math"
	"slices"
)

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
	return d.leave(c, act, r)
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
		return d.leave(c, draftEvicted, e)
	case !c.Spec.Movable && d.view.state.Node(c.Node).Node.Schedulable() && !d.view.state.isCovered(c.Spec):
		return d.refuse(e.Capsule, nil, "capsule %q is not movable, and node %q is ready", e.Capsule, c.Node)
	}
	return d.leave(c, draftReleased, e)
}

// keepsBudgets judges what the plan leaves of the groups and modules of a capsule with one step more, where the proposal in the
// making has wishes. What the plan takes off its nodes counts as missing, in earlier proposals too.
func (d *Draft) keepsBudgets(c *Capsule, do Commitment) error {
	s := d.view.state
	for of := range c.Spec.memberships {
		covers := s.coverage(of)
		if covers == nil {
			continue
		}
		healthy := covers.healthy
		steps := slices.Concat(d.log, []Commitment{do})
		for _, step := range steps {
			if left := s.Capsule(leaves(step)); left != nil && left.Spec.isMember(of) && s.isHealthy(left) {
				healthy--
			}
		}
		for _, step := range steps[d.open:] {
			left := s.Capsule(leaves(step))
			if left == nil || !left.Spec.isMember(of) {
				continue
			}
			evictor, wish := d.wishes(left, step)
			for _, b := range covers.budgets {
				if wish && !b.passes(evictor) && healthy < b.needed() {
					return d.refuseWish(c.ID, b, healthy)
				}
			}
		}
	}
	return nil
}

// refuseWish is refuse for a budget that would be broken.
func (d *Draft) refuseWish(id CapsuleID, b *budgetRecord, healthy int) error {
	return &Rejection{
		Kind: ErrInfeasible, Do: len(d.log) - d.open, Capsule: id, At: d.view.Revision(), Budget: b.ID,
		Want: int64(b.needed()), Free: int64(healthy), Reason: b.refusal(healthy),
	}
}

// wishes reports whether a step takes a capsule off its node because somebody wants that, and for which priority; nil: none.
func (d *Draft) wishes(c *Capsule, do Commitment) (evictor *int32, is bool) {
	switch do := do.(type) {
	case Release:
		return nil, !do.Final && d.view.state.isHealthy(c)
	case Evict:
		if do.For == "" && do.ForGang == "" {
			return nil, d.view.state.isHealthy(c)
		}
		if priority := d.view.state.evictor(&do); priority < math.MaxInt32 {
			return &priority, true
		}
		return nil, true // it is for what the plan submits, which is not looked for
	}
	return nil, false
}

// leave takes a capsule of the view off its node, if it is on one.
func (d *Draft) leave(c *Capsule, act draftAct, do Commitment) error {
	if d.view.state.isCovered(c.Spec) {
		if err := d.keepsBudgets(c, do); err != nil {
			return err
		}
	}
	use := d.capsules[c.ID]
	if d.capsules == nil {
		d.capsules = map[CapsuleID]draftUse{}
	}
	d.capsules[c.ID] = draftUse{act, len(d.log)}
	if !c.Placed() {
		d.step(draftStep{use: use}, nil, do)
		return nil
	}
	n := d.nodes[d.view.state.Node(c.Node).index]
	left := d.copies.New(*n)
	left.gives(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
	left.Capsules--
	d.step(draftStep{node: n, use: use}, left, do)
	return nil
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
