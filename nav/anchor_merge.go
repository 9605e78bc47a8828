package nav

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// anchorMerge puts a plan of the wrapped navigator and the anchors of this one beside each other. The wrapped
// navigator does not know of the anchors. What it has placed of higher priority goes before a group; of the rest
// what does not fit beside the anchors is left out. Invariants:
//
//   - Anchors are proposed before all that is merged, so they get nothing that it releases, and nothing that those
//     of its proposals ask for which have been admitted before them.
//   - What remains is proposed in the wrapped navigator's order. What one proposal releases serves itself and those
//     behind it, each part of it once, and nobody if it is left out or would be refused as the view stands.
//   - A proposal that is left out takes nothing and gives nothing.
type anchorMerge struct {
	*anchorPass
	theirs *orbit.Plan
	// Positions of its proposals, highest priority first, of which those before next have been looked at.
	order    []int
	priority []int32
	next     int
	// By position: whether what it asks for has been taken, and what it releases beyond that for those behind it.
	admitted []bool
	gains    [][]roomGain
	// A capsule of each group that it places.
	placed map[string]orbit.CapsuleID
	take   anchorTake
}

// merge looks at what the wrapped navigator has planned.
func (p *anchorPass) merge(theirs *orbit.Plan) *anchorMerge {
	n := len(theirs.Proposals)
	m := &anchorMerge{
		anchorPass: p, theirs: theirs, placed: map[string]orbit.CapsuleID{},
		admitted: make([]bool, n), gains: make([][]roomGain, n), take: newAnchorTake(p),
	}
	for i := range theirs.Proposals {
		priority := int32(math.MinInt32)
		for _, do := range theirs.Proposals[i].Do {
			place, ok := do.(orbit.Place)
			if !ok {
				continue
			}
			if c := p.state.Capsule(place.Capsule); c != nil {
				priority = max(priority, c.Spec.Priority)
				if m.placed[c.Spec.Group] == "" {
					m.placed[c.Spec.Group] = c.ID
				}
			}
		}
		m.order, m.priority = append(m.order, i), append(m.priority, priority)
	}
	slices.SortStableFunc(m.order, func(a, b int) int { return cmp.Compare(m.priority[b], m.priority[a]) })
	return m
}

// apply takes from the rooms what proposals of higher priority ask for.
func (m *anchorMerge) apply(priority int32) {
	for m.next < len(m.order) && m.priority[m.order[m.next]] > priority {
		m.admit(m.order[m.next])
		m.next++
	}
}

// admit takes what a proposal asks for, if it fits. What it releases is put aside.
func (m *anchorMerge) admit(i int) bool {
	p := &m.theirs.Proposals[i]
	if m.admitted[i] = m.take.all(p); m.admitted[i] {
		if gains := m.take.gains(); len(gains) > 0 && m.state.Check(*p) == nil {
			m.gains[i] = gains
		}
	}
	return m.admitted[i]
}

// settle looks at all other proposals, and leaves the plan with those that fit. Without anchors all stay.
func (m *anchorMerge) settle() {
	if len(m.anchors) == 0 {
		return
	}
	for ; m.next < len(m.order); m.next++ {
		m.admit(m.order[m.next])
	}
	left := false // something is; what is not good by itself may rest on it
	kept := m.theirs.Proposals[:0:0]
	for i, p := range m.theirs.Proposals {
		switch {
		case left && m.state.Check(p) != nil:
			m.leaveOut(&p, restsOnIt)
			continue
		case !m.admitted[i] && !m.admit(i): // now with what those before it have released
			m.leaveOut(&p, doesNotFit)
			left = true
			continue
		}
		m.take.credit(m.gains[i])
		kept = append(kept, p)
	}
	m.theirs.Proposals = kept
}

// Why a capsule is not placed on a node.
const (
	doesNotFit = "its place on node %q does not fit beside groups that start in this plan; the capsule is planned again"
	restsOnIt  = "its place on node %q rests on what is left out of this plan; the capsule is planned again"
)

// leaveOut says of a proposal's capsules why they are not placed, on which node.
func (m *anchorMerge) leaveOut(p *orbit.Proposal, why string) {
	m.leftOut++
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok {
			continue
		}
		c := m.state.Capsule(place.Capsule)
		if c == nil {
			continue
		}
		m.leave(c, fmt.Errorf(why, place.Node))
		if g := m.groups[c.Spec.Group]; g != nil && g.first != nil && g.first.ID == c.ID {
			g.first = nil
		}
	}
}

// unpark takes the finality from what was said beside proposals that are left out: there may be room after all, so the
// classes are not put aside.
func unpark(unplaced []orbit.Unplaced) {
	for i, u := range unplaced {
		if fit := (*orbit.NoFit)(nil); errors.As(u.Why, &fit) {
			unplaced[i].Why = errors.New(u.Why.Error() + "; that was beside what this plan leaves out, so the capsule is planned again")
		}
	}
}

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
