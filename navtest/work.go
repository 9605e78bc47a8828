package navtest

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file adds nodes and work to a world.

// put adds or changes nodes, each after Suite.Node has changed it.
func (w *world) put(nodes ...orbit.Node) {
	for _, n := range nodes {
		if w.t.suite.Node != nil {
			labels := make(map[string]string, len(n.Labels))
			for k, v := range n.Labels {
				labels[k] = v
			}
			n.Labels = labels
			w.t.suite.Node(&n)
		}
		w.commit(orbit.PutNode{Node: n})
	}
}

// large returns a node in a rack of a block, with 16 cores and 8 devices.
func large(id string, rack, block string) orbit.Node {
	n := orbit.Node{ID: orbit.NodeID(id), Labels: map[string]string{"rack": rack, "block": block, "zone": "z0", "kind": "a", "cores": "16"}}
	n.Capacity = orbit.Resources{orbit.CPU: 16_000, orbit.Memory: 64 << 30, orbit.Disk: 1 << 40, orbit.Slots: 1000, own: 100}
	n.Devices = orbit.Devices{Model: "m1", Count: 8}
	return n
}

// racks adds that many large nodes to each of the racks r0 to r2, not counting those that the navigator's filter refuses.
// Racks r0 and r1 are in block b0, r2 is in b1.
func (w *world) racks(each int) {
	for rack := range 3 {
		for i, use := 0, 0; use < each && i < 10*each; i++ {
			n := large(fmt.Sprintf("node-r%d-%02d", rack, i), fmt.Sprint("r", rack), fmt.Sprint("b", rack/2))
			w.put(n)
			if !w.t.refuses(w.state().Node(n.ID), w.adapt(small(w.t.mine[0]))) {
				use++
			}
		}
	}
}

// plenty returns how many large nodes a rack needs so that it has room for the work of all pairs, at up to 32 cores
// each.
func (t *trial) plenty() int { return 2*len(t.mine) + 2 }

// small returns a spec that fits easily: one core.
func small(p pair) *orbit.Spec {
	s := &orbit.Spec{Module: p.module, Class: p.class}
	s.Envelope.Reservation = orbit.Resources{orbit.CPU: 1000, orbit.Memory: 1 << 30}
	return s
}

// whole returns a spec that takes all cores of a large node.
func whole(p pair) *orbit.Spec {
	spec := small(p)
	spec.Envelope.Reservation[orbit.CPU] = 16_000
	return spec
}

// submit submits n capsules of a spec. If they are of GangClass, they are one gang of one role without levels.
func (w *world) submit(spec *orbit.Spec, n int) []orbit.CapsuleID { return w.submitTo("", spec, n) }

// submitTo submits as submit does, for an engine as owner.
func (w *world) submitTo(owner string, spec *orbit.Spec, n int) []orbit.CapsuleID {
	if spec.Class == orbit.GangClass {
		return w.submitGang(owner, &orbit.Gang{Roles: []orbit.Role{{Name: "all", Spec: spec, Members: make([]orbit.CapsuleID, n)}}})
	}
	ids := w.ids(n)
	w.commit(orbit.Submit{IDs: ids, Spec: w.adapt(spec), Owner: owner})
	return ids
}

// submitGang gives ids to a gang (unless it has one) and to its members, submits it, and returns the members.
func (w *world) submitGang(owner string, g *orbit.Gang) (all []orbit.CapsuleID) {
	w.made++
	if g.ID == "" {
		g.ID = orbit.GangID(fmt.Sprintf("gang-%04d", w.made))
	}
	for i := range g.Roles {
		role := &g.Roles[i]
		role.Members = w.ids(len(role.Members))
		role.Spec = w.adapt(role.Spec)
		all = append(all, role.Members...)
	}
	w.commit(orbit.Submit{Gang: g, Owner: owner})
	return all
}

// ids returns n new ids.
func (w *world) ids(n int) []orbit.CapsuleID {
	ids := make([]orbit.CapsuleID, n)
	for i := range ids {
		w.made++
		ids[i] = orbit.CapsuleID(fmt.Sprintf("capsule-%05d", w.made))
	}
	return ids
}

// adapt returns a copy of the spec that Suite.Spec has changed, or the spec itself if there is no Suite.Spec.
func (w *world) adapt(spec *orbit.Spec) *orbit.Spec {
	if w.t.suite.Spec == nil {
		return spec
	}
	s := *spec
	s.Require, s.Prefer = slices.Clone(s.Require), slices.Clone(s.Prefer)
	w.t.suite.Spec(&s)
	return &s
}

// easy submits work that fits easily on racks(plenty): for each pair two kinds of capsules, or two gangs of two roles
// that keep to a rack.
func (w *world) easy(pairs []pair) (ids []orbit.CapsuleID) {
	for _, p := range pairs {
		light := small(p)
		light.Envelope.Reservation[orbit.CPU] = 500
		if p.class != orbit.GangClass {
			ids = append(ids, w.submit(small(p), 6)...)
			ids = append(ids, w.submit(light, 6)...)
			continue
		}
		for range 2 {
			ids = append(ids, w.submitGang("", &orbit.Gang{Levels: []string{"rack"}, Roles: []orbit.Role{
				{Name: "worker", Spec: small(p), Members: make([]orbit.CapsuleID, 4), Min: 3},
				{Name: "server", Spec: light, Members: make([]orbit.CapsuleID, 2)},
			}})...)
		}
	}
	return ids
}

// tolerant is the toleration of the work of other engines: every taint.
var tolerant = []orbit.Toleration{{Op: "Exists"}}

// occupy submits a new capsule of another engine that takes room, and places it on a node in the same proposal. If
// group is not empty, the capsule is a member of it. It returns an error if the capsule does not fit.
func (w *world) occupy(node orbit.NodeID, room orbit.Resources, group string) (orbit.CapsuleID, error) {
	id := w.ids(1)[0]
	spec := &orbit.Spec{Module: other, Tolerate: tolerant, Group: group, Envelope: orbit.Envelope{Reservation: room}}
	return id, w.attempt(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec, Owner: other}, orbit.Place{Capsule: id, Node: node})
}
