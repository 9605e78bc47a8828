package score

import "github.com/orbitsched/orbit"

// LeastAllocated spreads: it is the mean, over what the spec asks for, of the part of the node's capacity
// that would be taken after placing. All devices together count as one more dimension. 0: the node would
// still be empty; 1: it would be full.
type LeastAllocated struct{}

// Score returns the mean.
func (LeastAllocated) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	mean, _ := fill(node, spec)
	return mean, 0
}

// MostAllocated packs: it is 1 less [LeastAllocated]. 0: the node would be full.
type MostAllocated struct{}

// Score returns the mean of the parts that would still be free.
func (MostAllocated) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	mean, _ := fill(node, spec)
	return 1 - mean, 0
}

// Balance keeps the dimensions in step, so that none runs out while others are stranded: it is the largest
// less the smallest part of the node's capacity that would be taken after placing, of what the spec asks
// for, all devices together counting as one. 0: all would be taken alike; always so for a spec that asks
// for one dimension only.
type Balance struct{}

// Score returns the difference.
func (Balance) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	_, spread := fill(node, spec)
	return spread, 0
}

// fill looks at the parts of a node's capacity that would be taken after placing, one for each dimension
// that the spec asks for, and returns their mean and the difference of the largest and the smallest.
// Both are 0 for a spec that asks for nothing.
func fill(node *orbit.NodeState, spec *orbit.Spec) (mean, spread float64) {
	sum, n, low, high := 0.0, 0, 1.0, 0.0
	note := func(taken, capacity int64) {
		part := 1.0 // also where capacity has shrunk below what is taken, and where the sum overflows
		if 0 <= taken && taken < capacity {
			part = float64(taken) / float64(capacity)
		}
		sum, n = sum+part, n+1
		low, high = min(low, part), max(high, part)
	}
	want, used := &spec.Envelope.Reservation, node.Used()
	for d := range want {
		if want[d] > 0 {
			note(used[d]+want[d], node.Node.Capacity[d])
		}
	}
	if spec.Devices.Count > 0 {
		capacity := 1000 * int64(node.Node.Devices.Count)
		note(capacity-freeDevices(node)+wantedDevices(spec), capacity)
	}
	if n == 0 {
		return 0, 0
	}
	return sum / float64(n), high - low
}
