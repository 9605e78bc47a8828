package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a capsule is placed on a node that takes new work and whose labels meet all of its requirements;
// and if there are such nodes with room it is placed.

// demands are requirements that one of three kinds of nodes meets, for every operator.
var demands = []orbit.Predicate{
	{Key: "kind", Op: "In", Values: []string{"x", "b"}},
	{Key: "kind", Op: "NotIn", Values: []string{"a", "c"}},
	{Key: "gpu", Op: "Exists"},
	{Key: "zone", Op: "DoesNotExist"},
	{Key: "cores", Op: "Gt", Values: []string{"32"}},
	{Key: "cores", Op: "Lt", Values: []string{"8"}},
}

func checkRequirements(t *trial) {
	w := t.world()
	w.kinds(t.plenty())
	var ids []orbit.CapsuleID
	for _, p := range t.mine {
		for _, demand := range demands {
			spec := small(p)
			spec.Require = []orbit.Predicate{{Key: "rack", Op: "Exists"}, demand}
			ids = append(ids, w.submit(spec, 2)...)
		}
	}
	w.settle("there are nodes that meet all requirements", ids, func(c *call) { t.Must(c.unmet()) })
}

// kinds makes nodes of three kinds, each in a rack of its own and so many drained ones beside.
func (w *world) kinds(each int) {
	for i := range each {
		for _, kind := range []string{"a", "b", "c"} {
			for _, drained := range []bool{false, true} {
				n := large(fmt.Sprintf("node-%s-%02d-%v", kind, i, drained), "r"+kind, "b0")
				n.Labels["kind"], n.Unschedulable = kind, drained
				switch kind {
				case "b":
					n.Labels["gpu"] = ""
					delete(n.Labels, "zone")
					n.Labels["cores"] = "64"
				case "c":
					n.Labels["cores"] = "4"
				}
				w.put(n)
			}
		}
	}
	bare := large("node-bare", "", "")
	bare.Labels = nil
	w.put(bare)
}

// unmet says which placement is on a node that does not take it.
func (c *call) unmet() error {
	for _, place := range c.places() {
		capsule, n := c.state.Capsule(place.Capsule), c.state.Node(place.Node)
		if capsule == nil || n == nil {
			return fmt.Errorf("plan on revision %d: Place %q on %q: there is no such capsule or node", c.state.Revision(), place.Capsule, place.Node)
		}
		if n.Node.Unschedulable {
			return fmt.Errorf("plan on revision %d: capsule %q is placed on node %q, which is unschedulable", c.state.Revision(), place.Capsule, place.Node)
		}
		for _, demand := range capsule.Spec.Require {
			if !demand.Matches(n.Node.Labels) {
				return fmt.Errorf("plan on revision %d: capsule %q requires %s and is placed on node %q, which has labels %v",
					c.state.Revision(), place.Capsule, demand, place.Node, n.Node.Labels)
			}
		}
	}
	return nil
}
