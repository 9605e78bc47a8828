package navtest

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// This file draws what other parties do beside the engines, which a ledger takes as facts or judges by itself.

// befriend gives some specs further co-locations, if the story has facts.
func (w *world) befriend(spec *orbit.Spec) {
	for w.facts != nil && w.facts.chance(15) {
		spec.Nears = append(spec.Nears, orbit.Near{Group: pick(*w.facts, "g1", "g1", "g2", "g3"), Level: pick(*w.facts, "rack", "block", orbit.NodeKey)})
	}
}

// fact makes a random change that another party makes. The ledger may refuse it.
func (w *world) fact(d dice) {
	s := w.state()
	nodes := slices.Collect(s.Nodes())
	if len(nodes) == 0 {
		return
	}
	n := pick(d, nodes...)
	switch d.IntN(6) {
	case 0: // the node is gone with all on it, and comes back in most cases
		if d.chance(40) && w.attempt(orbit.RemoveNode{Node: n.Node.ID, Gone: true}) == nil && d.chance(70) {
			w.put(d.node(n.Node.ID))
		}
	case 1:
		w.adopt(d, n)
	case 2, 3:
		w.respec(d)
	case 4:
		w.grow(d)
	}
}

// adopt lets a capsule run on a node that nobody has placed there, whether the node has the room or not: one that is
// pending, or a new one.
func (w *world) adopt(d dice, n *orbit.NodeState) {
	pending := w.state().Pending()
	if len(pending) > 0 && d.chance(40) {
		c := pick(d, pending...)
		_ = w.attempt(orbit.Adopt{Capsule: c.ID, Node: n.Node.ID, Devices: orbit.DeviceSet(1)<<c.Spec.Devices.Count - 1})
		return
	}
	p := pick(d, w.t.mine...)
	if p.class == orbit.GangClass {
		return // it would be in no gang
	}
	spec := w.adapt(d.spec(p))
	_ = w.attempt(orbit.Adopt{Capsule: w.ids(1)[0], Spec: spec, Node: n.Node.ID, Devices: orbit.DeviceSet(1)<<spec.Devices.Count - 1})
}

// respec gives a capsule of the navigator another spec, placed or pending: another size, other groups, or another
// priority.
func (w *world) respec(d dice) {
	var all []*orbit.Capsule
	for c := range w.state().Capsules() {
		if !c.Released() && c.Spec.Module != other {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, bySubmission)
	c := pick(d, all...)
	drawn := d.spec(pair{c.Spec.Module, c.Spec.Class})
	w.befriend(drawn)
	do := orbit.Respec{Capsule: c.ID, Spec: w.adapt(drawn).Clone()}
	if c.Placed() {
		do.Since, do.Applied, do.Spec.Devices = c.PlacedAt, d.chance(50), c.Spec.Devices
	}
	_ = w.attempt(do)
}

// grow adds members to a gang of the navigator, with a role of their own or one that there is.
func (w *world) grow(d dice) {
	gangs := slices.Collect(w.state().Gangs())
	if len(gangs) == 0 {
		return
	}
	g := pick(d, gangs...).Gang
	role := g.Roles[d.IntN(len(g.Roles))]
	if role.Spec.Module == other {
		return
	}
	more := orbit.Role{Name: role.Name, Spec: role.Spec}
	if d.chance(50) {
		more = orbit.Role{Name: "more", Spec: w.adapt(d.spec(pair{role.Spec.Module, role.Spec.Class})), Min: d.IntN(2)}
	}
	more.Members = w.ids(1 + d.IntN(2))
	_ = w.attempt(orbit.Submit{Gang: &orbit.Gang{ID: g.ID, Roles: []orbit.Role{more}}, Join: true})
}
