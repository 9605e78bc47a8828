package seats

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// The dimensions that are counted for nodes and specs: those of [orbit.Resources], and then all devices of a node
// together, in milli.
const (
	DevicesDim = orbit.Dimensions
	AllDims    = DevicesDim + 1
)

// Quantities has an amount of each dimension of [orbit.Resources], and of all devices together.
type Quantities [AllDims]int64

// WantOf returns how much a spec asks for of a dimension.
func WantOf(spec *orbit.Spec, d int) int64 {
	if d == DevicesDim {
		return int64(spec.Devices.Count) * int64(spec.Devices.Milli)
	}
	return spec.Envelope.Reservation[d]
}

// MeasureFree returns the free amount of each dimension on a node; an overdrawn one counts as zero.
func MeasureFree(n *orbit.NodeState) (free Quantities) {
	for d, left := range n.Free() {
		free[d] = max(left, 0)
	}
	for i := range n.Node.Devices.Count {
		free[DevicesDim] += int64(n.DeviceFree(i))
	}
	return free
}

// AddFree returns the sum of both, or the largest int64 if that overflows. A negative free counts as zero.
func AddFree(sum, free int64) int64 {
	if free = max(free, 0); free > math.MaxInt64-sum {
		return math.MaxInt64
	}
	return sum + free
}

// Suits reports whether a node meets the spec's requirements and tolerations, and has devices of an accepted model if
// the spec wants any.
func Suits(n *orbit.Node, spec *orbit.Spec) bool {
	return n.Admits(spec) && (spec.Devices.Count == 0 || spec.Devices.Accepts(n.Devices.Model)) &&
		!slices.ContainsFunc(spec.Require, func(p orbit.Predicate) bool { return !p.On(n) })
}
