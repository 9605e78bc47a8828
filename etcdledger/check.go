package etcdledger

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// check looks whether the records fit each other. What does not is marked as damaged; a node that is concerned is
// closed. What is left adds up.
func (t *tables) check() {
	t.sort()
	t.trim()
	t.checkGangs()
	onNode := t.checkCapsules()
	t.checkHolds(onNode)
	t.checkNodes(onNode)
}

// spoil marks a record as damaged.
func (t *tables) spoil(r ref, format string, args ...any) {
	if _, known := t.bad[r]; !known {
		t.bad[r] = fmt.Sprintf(format, args...)
	}
}

// sort takes out what speaks of something that is gone: it is litter.
func (t *tables) sort() {
	for id, u := range t.uses {
		if u.Gone {
			delete(t.uses, id)
			t.litter.add(kindUse, string(id))
		}
	}
	for id, c := range t.capsules {
		if c.Spec == nil {
			delete(t.capsules, id)
			t.litter.add(kindCapsule, string(id))
		}
	}
	for id, g := range t.gangs {
		if g.Gang == nil {
			delete(t.gangs, id)
			t.litter.add(kindGang, string(id))
		}
	}
	for id, h := range t.holds {
		if h.Hold == nil {
			delete(t.holds, id)
			t.litter.add(kindHold, string(id))
		}
	}
	for key, m := range t.marks {
		if m.Value == "" {
			delete(t.marks, key)
			t.litter.add(kindMark, key)
		}
	}
}

// trim takes out released capsules beyond those that are kept: they are litter, and the gang of which they were
// the last.
func (t *tables) trim() {
	released := t.released()
	for _, id := range released[:max(0, len(released)-t.terminal)] {
		t.litter.add(kindCapsule, string(id))
		if gang := t.capsules[id].Gang; gang != "" {
			t.litter.add(kindGang, string(gang))
		}
		delete(t.capsules, id)
	}
}

// checkGangs marks gangs of whose members one is damaged: nobody can say how much of such a gang is placed.
func (t *tables) checkGangs() {
	listed := map[listing]bool{} // several gangs may list an id that was used again
	for id, g := range t.gangs {
		for i := range g.Gang.Roles {
			for _, member := range g.Gang.Roles[i].Members {
				listed[listing{id, member}] = true
				if r := (ref{kindCapsule, string(member)}); t.bad[r] != "" {
					t.spoil(ref{kindGang, string(id)}, "its member %q is damaged", member)
				}
			}
		}
	}
	living := map[orbit.GangID]bool{}
	for id, c := range t.capsules {
		if c.Gang == "" {
			continue
		}
		if !listed[listing{c.Gang, id}] {
			t.spoil(ref{kindCapsule, string(id)}, "gang %q does not list it", c.Gang)
			delete(t.capsules, id)
			continue
		}
		living[c.Gang] = true
	}
	for id := range t.gangs {
		if !living[id] { // its last member's record was dropped
			delete(t.gangs, id)
			t.litter.add(kindGang, string(id))
		}
	}
}

// listing is a member of a gang.
type listing struct {
	gang   orbit.GangID
	member orbit.CapsuleID
}

// tally is what the records say is on a node.
type tally struct {
	capsules, holds int
	used            orbit.Resources
	devices         [orbit.MaxDevices]int
	// The newest that takes something of a dimension, or of a device.
	newest  [orbit.Dimensions]orbit.Revision
	claimed [orbit.MaxDevices]orbit.Revision
	// More than can be counted.
	overflow bool
}

// add counts what takes this much.
func (n *tally) add(room orbit.Resources, set orbit.DeviceSet, milli int, at orbit.Revision) {
	used, ok := n.used.Add(room)
	n.used, n.overflow = used, n.overflow || !ok
	for d := range room {
		if room[d] > 0 {
			n.newest[d] = max(n.newest[d], at)
		}
	}
	for i := range n.devices {
		if set.Has(i) {
			n.devices[i] += milli
			n.claimed[i] = max(n.claimed[i], at)
		}
	}
}

// excess says what the node is short of, if it took that on after it was described; empty: nothing. What was there
// before may be more than there is room for: capacity may shrink.
func (n *tally) excess(node *nodeRecord) string {
	if n.overflow {
		return "what is on it cannot be counted"
	}
	for d := range n.used {
		if n.used[d] > node.Node.Capacity[d] && n.newest[d] > node.at {
			return fmt.Sprintf("what is on it takes %d of dimension %d, of which it has %d", n.used[d], d, node.Node.Capacity[d])
		}
	}
	for i, milli := range n.devices {
		room := 0
		if i < node.Node.Devices.Count && !node.Node.Devices.Unhealthy.Has(i) {
			room = 1000
		}
		if milli > room && (milli > 1000 || n.claimed[i] > node.at) {
			return fmt.Sprintf("what is on it takes %d milli of device %d, of which it has %d", milli, i, room)
		}
	}
	return ""
}

// checkCapsules counts what is on each node.
func (t *tables) checkCapsules() map[orbit.NodeID]tally {
	on := map[orbit.NodeID]tally{}
	for _, c := range t.capsules {
		if c.Node != "" {
			n := on[c.Node]
			n.capsules++
			n.add(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli, c.placedAt())
			on[c.Node] = n
		}
	}
	return on
}

// checkHolds counts those too.
func (t *tables) checkHolds(on map[orbit.NodeID]tally) {
	for _, h := range t.holds {
		n := on[h.Hold.Node]
		n.holds++
		n.add(h.Hold.Room, h.Hold.Devices, h.Hold.Milli, h.at)
		on[h.Hold.Node] = n
	}
}

// checkNodes closes nodes whose description or count is damaged or missing, and nodes that only capsules or holds
// speak of.
func (t *tables) checkNodes(on map[orbit.NodeID]tally) {
	for id := range on {
		if _, known := t.uses[id]; !known {
			t.spoil(ref{kindUse, string(id)}, "it is missing, and there are capsules or holds on the node")
		}
	}
	for id := range t.nodes {
		if _, known := t.uses[id]; !known {
			t.spoil(ref{kindUse, string(id)}, "it is missing, and the node is described")
		}
	}
	for id, u := range t.uses {
		if _, known := t.nodes[id]; !known {
			t.spoil(ref{kindNode, string(id)}, "it is missing, and the node is in use")
		}
		got := on[id]
		switch {
		case got.capsules != u.Capsules || got.holds != u.Holds:
			t.spoil(ref{kindUse, string(id)}, "it counts %d capsules and %d holds; %d and %d can be read", u.Capsules, u.Holds, got.capsules, got.holds)
		case got.used != u.Used:
			t.spoil(ref{kindUse, string(id)}, "it counts %v in use; what can be read uses %v", u.Used, got.used)
		case t.nodes[id] != nil && got.excess(t.nodes[id]) != "":
			t.spoil(ref{kindUse, string(id)}, "%s; delete the records of what does not run there", got.excess(t.nodes[id]))
		}
	}
	for r := range t.bad {
		if r.kind == kindNode || r.kind == kindUse {
			t.closed[orbit.NodeID(r.id)] = true
		}
	}
}
