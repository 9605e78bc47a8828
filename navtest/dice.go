package navtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/orbitsched/orbit"
)

// dice draw random nodes and specs: with several dimensions, devices, missing or empty labels, and drained nodes. Many
// of the specs do not fit.
type dice struct{ *rand.Rand }

// own is a dimension of the importer that random worlds use.
const own = 5

// chance returns true with a probability in percent.
func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// pick returns one of the values.
func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// node draws a node.
func (d dice) node(id orbit.NodeID) orbit.Node {
	n := orbit.Node{ID: id, Labels: d.labels()}
	n.Cordon(d.chance(8))
	if d.chance(10) {
		n.Taints = []orbit.Taint{{Key: pick(d, "t", "u"), Effect: pick(d, "NoSchedule", "PreferNoSchedule", "NoExecute")}}
	}
	n.Capacity[orbit.CPU] = pick[int64](d, 0, 4, 8, 16, 16) * 1000
	n.Capacity[orbit.Memory] = pick[int64](d, 8, 16, 64) << 30
	n.Capacity[orbit.Slots] = pick[int64](d, 2, 8, 100)
	n.Capacity[own] = d.Int64N(6)
	if d.chance(40) {
		n.Devices = orbit.Devices{Model: pick(d, "m1", "m2"), Count: pick(d, 1, 2, 4, 8)}
		if d.chance(30) {
			n.Devices.Unhealthy = orbit.DeviceSet(1) << d.IntN(n.Devices.Count)
		}
	}
	return n
}

// labels draws the labels of a node: one of three racks in two blocks, and a few unusual labels.
func (d dice) labels() map[string]string {
	rack := d.IntN(3)
	labels := map[string]string{"rack": fmt.Sprint("r", rack), "block": fmt.Sprint("b", rack/2), "kind": pick(d, "a", "b")}
	if d.chance(15) {
		delete(labels, pick(d, "rack", "block", "kind"))
	}
	if d.chance(10) {
		labels[pick(d, "rack", "kind")] = ""
	}
	if d.chance(50) {
		labels["cores"] = pick(d, "4", "16", "many")
	}
	return labels
}

// spec draws the spec of a capsule of the pair.
func (d dice) spec(p pair) *orbit.Spec {
	s := &orbit.Spec{Module: p.module, Class: p.class, Priority: d.Int32N(4) - 1}
	want := &s.Envelope.Reservation
	want[orbit.CPU] = pick[int64](d, 0, 500, 1000, 3000, 6000)
	want[orbit.Memory] = pick[int64](d, 0, 1, 4, 12) << 30
	want[orbit.Slots] = 1
	if d.chance(25) {
		want[own] = 1 + d.Int64N(3)
	}
	if d.chance(25) {
		s.Devices = orbit.DeviceRequest{Count: pick(d, 1, 1, 2), Milli: pick(d, 300, 500, 1000)}
		if d.chance(50) {
			s.Devices.Models = []string{"m1"}
		}
	}
	if d.chance(35) {
		s.Require = append(s.Require, d.predicate())
		if d.chance(25) {
			s.Require = []orbit.Predicate{{Op: "AnyOf", Terms: [][]orbit.Predicate{{d.predicate()}, {d.predicate(), d.predicate()}}}}
		}
	}
	if d.chance(30) {
		s.Tolerate = append(s.Tolerate, orbit.Toleration{Key: "t", Op: "Exists"})
	}
	if d.chance(30) {
		s.Prefer = append(s.Prefer, orbit.Preference{Predicate: d.predicate(), Weight: float64(d.IntN(21) - 10)})
		if d.chance(25) {
			s.Prefer[0].Predicate = orbit.Predicate{Op: "AnyOf", Terms: [][]orbit.Predicate{{d.predicate(), d.predicate()}, {d.predicate()}}}
		}
	}
	if d.chance(20) {
		s.Spread = orbit.Domains{Level: "rack", Names: []string{"r0", "r2"}}
	}
	if d.chance(20) {
		s.Group = pick(d, "g1", "g2", "g3")
		s.Near = orbit.Near{Group: pick(d, s.Group, s.Group, "g1"), Level: "rack"}
		if d.chance(25) {
			s.Groups = []string{pick(d, "g1", "g2", "by the way")}
		}
		if s.Group == "g3" {
			s.Spread.Level = "rack"
			s.PreferCompany = []orbit.Company{{Group: "g1", Level: "rack", Weight: -2}, {Group: "g3", Level: orbit.NodeKey, Weight: 5}}
		}
	}
	return s
}

// predicate draws a condition on labels. All operators occur.
func (d dice) predicate() orbit.Predicate {
	if d.chance(15) {
		return orbit.Predicate{Key: orbit.NodeKey, Op: pick(d, "In", "NotIn"), Values: []string{"n0", "n1", "n2"}}
	}
	return pick(d,
		orbit.Predicate{Key: "kind", Op: "In", Values: []string{"a"}},
		orbit.Predicate{Key: "kind", Op: "NotIn", Values: []string{"a", ""}},
		orbit.Predicate{Key: "cores", Op: "Exists"},
		orbit.Predicate{Key: "cores", Op: "DoesNotExist"},
		orbit.Predicate{Key: "cores", Op: "Gt", Values: []string{"8"}},
		orbit.Predicate{Key: "cores", Op: "Lt", Values: []string{"8"}},
	)
}

// gang draws a gang of up to three roles, with or without minimums and levels. Its class is that of its specs.
func (d dice) gang(p pair) *orbit.Gang {
	g := &orbit.Gang{Loose: d.chance(25)}
	g.Levels = pick(d, nil, []string{"rack"}, []string{"rack", "block"})
	for i := range 1 + d.IntN(3) {
		role := orbit.Role{Name: fmt.Sprint("role", i), Spec: d.spec(p), Members: make([]orbit.CapsuleID, 1+d.IntN(4))}
		if d.chance(40) {
			role.Min = 1 + d.IntN(len(role.Members))
		}
		g.Roles = append(g.Roles, role)
	}
	if d.chance(20) {
		for i := range g.Roles {
			g.Min += 1 + d.IntN(len(g.Roles[i].Members))
		}
	}
	return g
}
