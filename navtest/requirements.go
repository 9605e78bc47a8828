package navtest

import (
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a capsule is placed only on a schedulable node whose labels meet all its requirements and whose taints it
// tolerates. If such nodes have enough free capacity, it is placed.

// demands are requirements, one for each operator. Each is met by one of the three kinds of nodes.
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
		spec := small(p)
		spec.Require = []orbit.Predicate{{Key: "reserved", Op: "Exists"}}
		spec.Tolerate = []orbit.Toleration{{Key: "reserved", Value: "t"}}
		ids = append(ids, w.submit(spec, 2)...)
	}
	w.passUntilPlaced("there are nodes that meet all requirements", ids, (*call).unmet)
}

// kinds adds nodes of three kinds, each kind in a rack of its own, with as many unschedulable nodes beside them. It
// also adds nodes with a taint, each of which meets the requirements of all kinds. The ids of these come first, so that
// a navigator that goes by id tries them first.
func (w *world) kinds(each int) {
	for i := range each {
		for _, kind := range []string{"a", "b", "c"} {
			for _, drained := range []bool{false, true} {
				n := large(fmt.Sprintf("node-%s-%02d-%v", kind, i, drained), "r"+kind, "b0")
				n.Labels["kind"] = kind
				n.Cordon(drained)
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
	for i := range each {
		n := large(fmt.Sprintf("node-0-reserved-%02d", i), "rb", "b0")
		n.Labels["kind"], n.Labels["gpu"], n.Labels["cores"], n.Labels["reserved"] = "b", "", "64", ""
		delete(n.Labels, "zone")
		n.Taints = []orbit.Taint{{Key: "reserved", Value: "t", Effect: "NoSchedule"}}
		w.put(n)
	}
	bare := large("node-bare", "", "")
	bare.Labels = nil
	w.put(bare)
}

// unmet returns an error for a placement that is infeasible on the plan's view.
func (c *call) unmet() error {
	if _, err := c.replay(); errors.Is(err, orbit.ErrInfeasible) {
		return err
	}
	return nil
}
