package nav

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// accepts reports whether a node is one that capsules of the spec may be on, whatever is free there.
func accepts(n *orbit.Node, spec *orbit.Spec) bool {
	q := &spec.Devices
	return !n.Unschedulable && (q.Count == 0 || n.Devices.Count > 0) && suits(n, spec)
}

// suits reports whether a node's labels, and the model of what devices it has, are what the spec asks for.
func suits(n *orbit.Node, spec *orbit.Spec) bool {
	return (spec.Devices.Count == 0 || spec.Devices.Accepts(n.Devices.Model)) &&
		!slices.ContainsFunc(spec.Require, func(p orbit.Predicate) bool { return !p.Matches(n.Labels) })
}
