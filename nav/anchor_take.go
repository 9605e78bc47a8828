package nav

import "github.com/orbitsched/orbit"

// anchorTake takes what proposals ask for from the rooms: all that one asks for, or nothing. It goes by the view: of
// what a proposal asks for itself the ledger will say whether it may be.
type anchorTake struct {
	*anchorPass
	// The rooms that the proposal has touched, as they were before it.
	was map[int]anchorRoom
	// Capsules and holds whose room has been given back: that happens once. Now are those of the proposal.
	released map[orbit.Release]bool
	now      []orbit.Release
}

// roomGain is what is released on a node.
type roomGain struct {
	at   int
	room nodeRoom
}

// newAnchorTake returns one for which the holds that members are placed in the stead of are gone.
func newAnchorTake(p *anchorPass) anchorTake {
	t := anchorTake{anchorPass: p, was: map[int]anchorRoom{}, released: map[orbit.Release]bool{}}
	for _, member := range p.members {
		for _, do := range member.Do {
			if release, ok := do.(orbit.Release); ok {
				t.released[release] = true
			}
		}
	}
	return t
}

// all gives back what a proposal releases and takes what it asks for, and reports whether all nodes have it. If not,
// the rooms are as they were. A proposal may release what makes room for it, in any order.
func (t *anchorTake) all(p *orbit.Proposal) bool {
	clear(t.was)
	t.now = t.now[:0]
	for _, do := range p.Do {
		if release, ok := do.(orbit.Release); ok {
			t.giveBack(release)
		}
	}
	for _, do := range p.Do {
		if !t.one(do) {
			t.undo()
			return false
		}
	}
	return true
}

// undo puts everything back.
func (t *anchorTake) undo() {
	for at, was := range t.was { // in any order
		t.rooms.nodes[at] = was
	}
	for _, release := range t.now {
		delete(t.released, release)
	}
}

// one takes what a commitment asks for.
func (t *anchorTake) one(do orbit.Commitment) bool {
	switch do := do.(type) {
	case orbit.Place:
		c := t.state.Capsule(do.Capsule)
		if c == nil {
			return true
		}
		room := t.room(do.Node)
		if room != nil && c.Spec.Group != "" {
			room.claim = claimHosted
		}
		return room.yield(&c.Spec.Envelope.Reservation, do.Devices, c.Spec.Devices.Milli)
	case orbit.Hold:
		return t.room(do.Node).yield(&do.Room, do.Devices, do.Milli)
	}
	return true
}

// giveBack returns what a capsule or a hold has.
func (t *anchorTake) giveBack(do orbit.Release) {
	h, live := t.state.Hold(do.Hold)
	if c := t.state.Capsule(do.Capsule); do.Hold == "" && c != nil && c.Placed() {
		h = orbit.Hold{Node: c.Node, Room: c.Spec.Envelope.Reservation, Devices: c.Devices, Milli: c.Spec.Devices.Milli}
		live = true
	}
	what := orbit.Release{Capsule: do.Capsule, Hold: do.Hold}
	if !live || t.released[what] {
		return
	}
	t.released[what] = true
	t.now = append(t.now, what)
	room := t.room(h.Node)
	room.give(&h, room.node.Node)
}

// room returns a node for the proposal to change, nil if there is no such node.
func (t *anchorTake) room(id orbit.NodeID) *anchorRoom {
	n := t.state.Node(id)
	if n == nil {
		return nil
	}
	room := t.rooms.own(n.Index())
	if _, touched := t.was[n.Index()]; !touched {
		t.was[n.Index()] = *room
	}
	return room
}

// gains takes away again, and returns, what the last proposal has released beyond what it asks for.
func (t *anchorTake) gains() (out []roomGain) {
	for at, was := range t.was { // in any order
		if gain := t.rooms.nodes[at].lower(&was.nodeRoom); gain != (nodeRoom{}) {
			out = append(out, roomGain{at, gain})
		}
	}
	return out
}

// credit gives what has been released to whoever comes next.
func (t *anchorTake) credit(gains []roomGain) {
	for i := range gains {
		t.rooms.own(gains[i].at).raise(&gains[i].room)
	}
}

// yield takes what is asked for, if it is there; nothing below zero is asked for. A node that there is not has
// everything.
func (r *anchorRoom) yield(want *orbit.Resources, set orbit.DeviceSet, milli int) bool {
	if r == nil {
		return true
	}
	if r.short(want) >= 0 || !r.covers(set, milli) {
		return false
	}
	for d := range want {
		r.free[d] -= max(want[d], 0)
	}
	r.shift(set, -max(milli, 0))
	return true
}
