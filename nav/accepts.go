package nav

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// accepts reports whether a node is one that capsules of the spec may be on, whatever is free there.
func accepts(n *orbit.Node, spec *orbit.Spec) bool {
	return !n.Unschedulable && hasDevice(n, &spec.Devices) && unmet(n, spec) == nil
}

// unmet returns the first requirement that the labels of a node do not meet, nil if they meet all.
func unmet(n *orbit.Node, spec *orbit.Spec) *orbit.Predicate {
	for i := range spec.Require {
		if !spec.Require[i].Matches(n.Labels) {
			return &spec.Require[i]
		}
	}
	return nil
}

// hasDevice reports whether a node has a device of a model that the request accepts, if it asks for any.
func hasDevice(n *orbit.Node, q *orbit.DeviceRequest) bool {
	return q.Count == 0 || n.Devices.Count > 0 && ofModel(n, q)
}

// ofModel reports whether what devices a node has are of a model that the request accepts.
func ofModel(n *orbit.Node, q *orbit.DeviceRequest) bool {
	return len(q.Models) == 0 || slices.Contains(q.Models, n.Devices.Model)
}

// objection says why a node is not one that capsules of the spec may be on, whatever is free there; "" if it is. It
// completes "n nodes ..." and says what placement engines say.
func objection(n *orbit.Node, spec *orbit.Spec) string {
	switch r := unmet(n, spec); {
	case n.Unschedulable:
		return "are unschedulable"
	case r != nil:
		return "do not meet " + r.String()
	case !hasDevice(n, &spec.Devices):
		return noModel(&spec.Devices)
	}
	return ""
}

// noModel completes "n nodes ..." for those without a device of a model that the request accepts.
func noModel(q *orbit.DeviceRequest) string { return "have no device of model " + anyOf(q.Models) }

// anyOf names the models of a request.
func anyOf(models []string) string {
	if len(models) == 0 {
		return "any kind"
	}
	names := make([]string, len(models))
	for i, model := range models {
		names[i] = plain(model)
	}
	return strings.Join(names, ", ")
}

// shortage says what one more capsule of the spec lacks in a room, likewise; "" if it fits.
func shortage(r *nodeRoom, spec *orbit.Spec, state *orbit.State) string {
	q := &spec.Devices
	if _, ok := r.tightest(q); !ok {
		return noDevices(q)
	}
	if d := r.short(&spec.Envelope.Reservation); d >= 0 {
		return "lack " + state.DimensionName(orbit.Dimension(d))
	}
	return ""
}

// noDevices completes "n nodes ..." for those whose devices have too little free.
func noDevices(q *orbit.DeviceRequest) string {
	if q.Count == 1 {
		return fmt.Sprintf("lack a device with %d milli free", q.Milli)
	}
	return fmt.Sprintf("lack %d devices with %d milli free each", q.Count, q.Milli)
}

// reasonsOf lists counts of nodes by why they do not take a capsule, most frequent first.
func reasonsOf(counts map[string]int) (out []orbit.Reason) {
	for why, n := range counts {
		out = append(out, orbit.Reason{Nodes: n, Why: why})
	}
	slices.SortFunc(out, func(a, b orbit.Reason) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Why, b.Why))
	})
	return out
}
