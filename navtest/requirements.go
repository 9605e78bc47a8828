package navtest

import (
	"errors"
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
	w.passUntilPlaced("there are nodes that meet all requirements", ids, (*call).unmet)
}

// kinds makes nodes of three kinds, each in a rack of its own and so many drained ones beside.
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
	bare := large("node-bare", "", "")
	bare.Labels = nil
	w.put(bare)
}

// unmet says which placement does not hold in the plan's own view. Where other placements of the plan stand against it,
// the rule "capacity" says so.
func (c *call) unmet() error {
	if _, err := c.replay(); errors.Is(err, orbit.ErrInfeasible) {
		return err
	}
	return nil
}
