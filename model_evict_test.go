package orbit

// What the model says of wishes: who may be taken off a node because somebody wants that.

// modelWishes is what one proposal wishes.
type modelWishes struct {
	readied   map[NodeID]bool       // nodes that it makes ready, at some point
	moved     map[CapsuleID]bool    // taken off their nodes to be placed again
	gangs     map[GangID]bool       // gangs that it takes members from
	drained   map[GangID]bool       // those of which a member leaves a cordoned node
	displaced map[GangID][]*refusal // those of which members leave ready nodes
}

func newModelWishes() modelWishes {
	return modelWishes{readied: map[NodeID]bool{}, moved: map[CapsuleID]bool{}, gangs: map[GangID]bool{},
		drained: map[GangID]bool{}, displaced: map[GangID][]*refusal{}}
}

// drains reports whether a node takes no work, before the proposal and all through it.
func (r *modelRound) drains(id NodeID) bool {
	was, ok := r.was.nodes[id]
	return ok && was.State != Ready && !r.wishes.readied[id]
}

// mayReturn says why a placed capsule may not be released back to pending.
func (r *modelRound) mayReturn(id CapsuleID, c modelCapsule) *refusal {
	w := &r.wishes
	if r.was.capsules[id].node == "" || r.now.nodes[c.node].State == Lost {
		return nil
	}
	specified := r.was.nodes[c.node].spec
	switch {
	case c.gang == "" && r.drains(c.node):
		return nil
	case c.gang == "":
		return lostTo(max(specified, r.was.capsules[id].changed))
	}
	w.gangs[c.gang] = true
	if r.drains(c.node) {
		w.drained[c.gang] = true
	} else {
		w.displaced[c.gang] = append(w.displaced[c.gang], lostTo(max(specified, r.was.gangs[c.gang].changed)))
	}
	return nil
}

// evict takes a capsule off its node for another place.
func (r *modelRound) evict(e Evict) *refusal {
	c, ok := r.now.capsules[e.Capsule]
	if !ok {
		return lostTo(r.was.left.Capsules)
	}
	if c.node != e.From || c.placedAt != e.Since {
		return lostTo(r.was.capsules[e.Capsule].changed)
	}
	if !c.spec.Movable && !r.drains(e.From) {
		return lostTo(max(r.was.nodes[e.From].spec, r.was.capsules[e.Capsule].specified))
	}
	r.now.touchNode(c.node)
	r.now.touchGang(c.gang)
	c.node, c.devices, c.note, c.changed = "", 0, "", r.now.rev
	r.now.capsules[e.Capsule] = c
	r.wishes.moved[e.Capsule] = true
	if c.gang != "" {
		r.wishes.gangs[c.gang] = true
	}
	return nil
}

// unkind judges what the wishes of a proposal leave.
func (r *modelRound) unkind() (out []*refusal) {
	w := &r.wishes
	for id := range w.moved {
		if r.now.capsules[id].node == "" {
			out = append(out, lostTo(0))
		}
	}
	for id, why := range w.displaced {
		if !w.drained[id] || !r.emptied[id] {
			out = append(out, why...)
		}
	}
	for id := range w.gangs {
		g, was := r.now.gangs[id], r.was.placed(id)
		if was == nil {
			continue
		}
		short, fewer, any := false, false, false
		for i, placed := range r.now.placed(id) {
			short = short || placed < g.Roles[i].minimum()
			fewer = fewer || placed < was[i]
			any = any || placed > 0
		}
		if short && fewer && any {
			out = append(out, lostTo(r.was.gangs[id].changed))
		}
	}
	return out
}

// mixesStopped reports whether a proposal says that something has stopped and does anything else but end capsules.
func mixesStopped(do []Commitment) bool {
	stops, other := false, false
	for _, c := range do {
		r, ok := c.(Release)
		stops = stops || r.Stopped
		other = other || !ok || r.Stopped == r.Final
		if r.Stopped && r.Final {
			return true
		}
	}
	return stops && other
}
