package etcdledger

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// check looks whether the records fit each other. What does not is marked as damaged; a node that is concerned is closed. What
// is left adds up.
func (t *tables) check() {
	t.sort()
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

// checkGangs marks gangs of whose members one is damaged: nobody can say how much of such a gang is placed.
func (t *tables) checkGangs() {
	members := map[orbit.CapsuleID]orbit.GangID{}
	for id, g := range t.gangs {
		for i := range g.Gang.Roles {
			for _, member := range g.Gang.Roles[i].Members {
				members[member] = id
			}
		}
	}
	for r := range t.bad {
		if gang, ok := members[orbit.CapsuleID(r.id)]; ok && r.kind == kindCapsule {
			t.spoil(ref{kindGang, string(gang)}, "its member %q is damaged", r.id)
		}
	}
	living := map[orbit.GangID]bool{}
	for id, c := range t.capsules {
		if c.Gang == "" {
			continue
		}
		if members[id] != c.Gang {
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

// tally is what the records say is on a node.
type tally struct{ capsules, holds int }

// checkCapsules counts what is on each node.
func (t *tables) checkCapsules() map[orbit.NodeID]tally {
	on := map[orbit.NodeID]tally{}
	for _, c := range t.capsules {
		if c.Node != "" {
			n := on[c.Node]
			n.capsules++
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
		on[h.Hold.Node] = n
	}
}

// checkNodes closes nodes whose description or count is damaged or missing, and nodes that only capsules or holds speak of.
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
		if got, want := on[id], (tally{u.Capsules, u.Holds}); got != want {
			t.spoil(ref{kindUse, string(id)}, "it counts %d capsules and %d holds; %d and %d can be read", want.capsules, want.holds, got.capsules, got.holds)
		}
	}
	for r := range t.bad {
		if r.kind == kindNode || r.kind == kindUse {
			t.closed[orbit.NodeID(r.id)] = true
		}
	}
}
