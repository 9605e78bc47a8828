package nav

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// What is counted of nodes and specs alike: the dimensions of [orbit.Resources], and after those all devices of a
// node together, in milli.
const (
	devicesDim = orbit.Dimensions
	allDims    = devicesDim + 1
)

// quantities has an amount of each dimension of [orbit.Resources], and of all devices together.
type quantities [allDims]int64

// wantOf is how much a spec asks for of a dimension.
func wantOf(spec *orbit.Spec, d int) int64 {
	if d == devicesDim {
		return int64(spec.Devices.Count) * int64(spec.Devices.Milli)
	}
	return spec.Envelope.Reservation[d]
}

// measureFree returns how much of everything is free on a node, nothing below zero.
func measureFree(n *orbit.NodeState) (free quantities) {
	for d, left := range n.Free() {
		free[d] = max(left, 0)
	}
	for i := range n.Node.Devices.Count {
		free[devicesDim] += int64(n.DeviceFree(i))
	}
	return free
}

// addFree adds what is free, of which nothing counts below zero, up to the largest number there is.
func addFree(sum, free int64) int64 {
	if free = max(free, 0); free > math.MaxInt64-sum {
		return math.MaxInt64
	}
	return sum + free
}

// suits reports whether a node's labels, and the model of what devices it has, are what the spec asks for.
func suits(n *orbit.Node, spec *orbit.Spec) bool {
	return n.Admits(spec) && (spec.Devices.Count == 0 || spec.Devices.Accepts(n.Devices.Model)) &&
		!slices.ContainsFunc(spec.Require, func(p orbit.Predicate) bool { return !p.On(n) })
}
