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

// Bound is the mean of the least parts.
func (LeastAllocated) Bound(spec *orbit.Spec, _ *orbit.Node) func(least, most *Extent) (value, tie float64) {
	list := wantedOf(spec)
	return func(least, most *Extent) (value, tie float64) {
		sum := 0.0
		for i := range list {
			sum += list[i].least(least, most)
		}
		return sum / float64(max(len(list), 1)), 0
	}
}

// MostAllocated packs: it is 1 less [LeastAllocated]. 0: the node would be full.
type MostAllocated struct{}

// Score returns the mean of the parts that would still be free.
func (MostAllocated) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	mean, _ := fill(node, spec)
	return 1 - mean, 0
}

// Bound is 1 less the mean of the largest parts.
func (MostAllocated) Bound(spec *orbit.Spec, _ *orbit.Node) func(least, most *Extent) (value, tie float64) {
	list := wantedOf(spec)
	return func(least, most *Extent) (value, tie float64) {
		sum := 0.0
		for i := range list {
			sum += list[i].most(least, most)
		}
		return 1 - sum/float64(max(len(list), 1)), 0
	}
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

// Bound is a lower bound of the difference: the largest part is at least every part's minimum, and the smallest part is
// at most every part's maximum.
func (Balance) Bound(spec *orbit.Spec, _ *orbit.Node) func(least, most *Extent) (value, tie float64) {
	list := wantedOf(spec)
	return func(least, most *Extent) (value, tie float64) {
		low, high := 1.0, 0.0
		for i := range list {
			if part := list[i].most(least, most); part < low {
				low = part
			}
			if part := list[i].least(least, most); part > high {
				high = part
			}
		}
		if high < low {
			return 0, 0
		}
		return high - low, 0
	}
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
		capacity := wholeDevice * int64(node.Node.Devices.Count)
		note(capacity-freeDevices(node)+wantedDevices(spec), capacity)
	}
	if n == 0 {
		return 0, 0
	}
	return sum / float64(n), high - low
}

// wanted is how much a spec asks for of a dimension.
type wanted struct {
	dim  int
	want int64
}

// allDevices stands for all devices of a node together, in milli.
const allDevices = -1

// wantedOf lists what the spec asks for.
func wantedOf(spec *orbit.Spec) (list []wanted) {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			list = append(list, wanted{d, want})
		}
	}
	if spec.Devices.Count > 0 {
		list = append(list, wanted{allDevices, wantedDevices(spec)})
	}
	return list
}

func (w wanted) free(e *Extent) int64 {
	if w.dim == allDevices {
		return e.DevicesFree()
	}
	return e.Free(w.dim)
}

func (w wanted) capacity(e *Extent) int64 {
	if w.dim == allDevices {
		return wholeDevice * int64(e.Devices())
	}
	return e.Capacity(w.dim)
}

// Up to here integers are exact as floats, and so the quotients keep their order. Beyond, a little is allowed
// for rounding.
const (
	exactFloat = 1 << 53
	rounding   = 1e-9
)

// least is the smallest part that can be taken after placing on a node that fits: the node has the most free capacity
// possible, and is no larger than that requires.
func (w wanted) least(least, most *Extent) float64 {
	free := w.free(most)
	capacity := max(w.capacity(least), free)
	part := float64(capacity-free+w.want) / float64(capacity)
	if w.capacity(most) > exactFloat {
		part -= rounding
	}
	return part
}

// most is the largest part that can be taken after placing: as little is free as can be, on the largest node.
func (w wanted) most(least, most *Extent) float64 {
	capacity := w.capacity(most)
	part := float64(capacity-max(w.free(least), w.want)+w.want) / float64(capacity)
	if capacity > exactFloat {
		part += rounding
	}
	return part
}
