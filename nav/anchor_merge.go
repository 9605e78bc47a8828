package nav

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// anchorMerge puts a plan of the wrapped navigator and the anchors of this one beside each other. The wrapped
// navigator does not know of the anchors. What it has placed of higher priority goes before a group; of the rest
// what does not fit beside the anchors is left out.
type anchorMerge struct {
	*anchorPass
	theirs *orbit.Plan
	// Positions of its proposals, highest priority first, of which those before next have been applied.
	order    []int
	priority []int32
	next     int
	// Those left out, by position.
	out []bool
	// A capsule of each group that it places.
	placed map[string]orbit.CapsuleID
}

// merge looks at what the wrapped navigator has planned.
func (p *anchorPass) merge(theirs *orbit.Plan) *anchorMerge {
	m := &anchorMerge{anchorPass: p, theirs: theirs, placed: map[string]orbit.CapsuleID{}}
	m.out = make([]bool, len(theirs.Proposals))
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
		m.admit()
	}
}

// admit takes what the next proposal asks for, or leaves it out if that does not fit beside the anchors so far.
// Without anchors everything does.
func (m *anchorMerge) admit() {
	i := m.order[m.next]
	m.next++
	p := &m.theirs.Proposals[i]
	if m.take(p, 1) || len(m.anchors) == 0 {
		return
	}
	m.take(p, -1)
	m.out[i] = true
	m.leftOut++
	for _, do := range p.Do {
		if place, ok := do.(orbit.Place); ok {
			m.leaveOut(place)
		}
	}
}

// settle takes all other proposals, and leaves the plan with those that fit.
func (m *anchorMerge) settle() {
	if len(m.anchors) == 0 {
		return
	}
	for m.next < len(m.order) {
		m.admit()
	}
	kept := m.theirs.Proposals[:0:0]
	for i, p := range m.theirs.Proposals {
		if !m.out[i] {
			kept = append(kept, p)
		}
	}
	m.theirs.Proposals = kept
}

// leaveOut says of a capsule why its proposal is left out.
func (m *anchorMerge) leaveOut(place orbit.Place) {
	if c := m.state.Capsule(place.Capsule); c != nil {
		m.leave(c, fmt.Errorf("node %q is taken by groups that start in this plan; the capsule is planned again", place.Node))
	}
}

// take takes from the rooms what a proposal asks for and gives back what it releases, or undoes that if by is -1.
// It reports whether all nodes that it asks have it.
func (m *anchorMerge) take(p *orbit.Proposal, by int) bool {
	fits := true
	for _, do := range p.Do {
		switch do := do.(type) {
		case orbit.Place:
			if c := m.state.Capsule(do.Capsule); c != nil {
				fits = m.move(do.Node, shapeOf(c.Spec), do.Devices, by) && fits
				m.hosts(do.Node, c.Spec)
			}
		case orbit.Hold:
			fits = m.move(do.Node, holdShape{do.Room, do.Devices.Len(), do.Milli}, do.Devices, by) && fits
		case orbit.Release:
			if c := m.state.Capsule(do.Capsule); c != nil && c.Placed() {
				m.move(c.Node, shapeOf(c.Spec), c.Devices, -by)
			}
			if h, ok := m.state.Hold(do.Hold); ok {
				m.move(h.Node, holdShape{h.Room, h.Devices.Len(), h.Milli}, h.Devices, -by)
			}
		}
	}
	return fits
}

// hosts notes that a node will host a capsule, which may be of a group.
func (m *anchorMerge) hosts(id orbit.NodeID, spec *orbit.Spec) {
	if n := m.state.Node(id); n != nil && spec.Group != "" {
		m.rooms.own(n.Index()).claim = claimHosted
	}
}

// move takes room from a node, or gives it back, and reports whether the node had it. What cannot be counted is left
// as it is.
func (m *anchorMerge) move(id orbit.NodeID, what holdShape, devices orbit.DeviceSet, by int) bool {
	n := m.state.Node(id)
	if n == nil {
		return true // the ledger will say so
	}
	room := m.rooms.own(n.Index())
	fits := room.short(&what.room) < 0 && room.covers(devices, what.milli)
	free, ok := room.free.Sub(what.room)
	if by < 0 {
		free, ok = room.free.Add(what.room)
	}
	if ok {
		room.free = free
	}
	room.shift(devices, -by*what.milli)
	return fits
}
