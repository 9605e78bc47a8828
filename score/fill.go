package score

import "github.com/orbitsched/orbit"

// LeastAllocated spreads work. For each dimension that the spec asks for it takes the fraction of the node's capacity
// that would be in use after placing, and rates the mean of these fractions. All devices together count as one more
// dimension. 0: the node would still be empty; 1: it would be full.
type LeastAllocated struct{}

// Score returns the mean.
func (LeastAllocated) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	mean, _ := fill(node, spec)
	return mean, 0
}

// Bound returns the mean of the least fractions.
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

// MostAllocated packs work: it is 1 minus [LeastAllocated]. 0: the node would be full.
type MostAllocated struct{}

// Score returns the mean of the fractions that would still be free.
func (MostAllocated) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	mean, _ := fill(node, spec)
	return 1 - mean, 0
}

// Bound returns 1 minus the mean of the largest fractions.
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

// Balance keeps the use of all dimensions in step, so that none runs out while others are stranded. Of the fractions of
// the node's capacity that would be in use after placing, it rates the largest minus the smallest. It considers the
// dimensions that the spec asks for, and all devices together as one. 0: all would be used alike; always so for a spec
// that asks for one dimension only.
type Balance struct{}

// Score returns the difference.
func (Balance) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	_, spread := fill(node, spec)
	return spread, 0
}

// Bound returns a lower bound of the difference: the largest fraction is at least every fraction's minimum, and the
// smallest fraction is at most every fraction's maximum.
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

// fill computes the fractions of a node's capacity that would be in use after placing, one for each dimension that the
// spec asks for. It returns their mean, and the largest minus the smallest. Both are 0 for a spec that asks for
// nothing.
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

// wanted is the amount that a spec asks for in one dimension.
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

// Up to exactFloat, integers are exact as floats, and so the quotients keep their order. Beyond it, bounds are loosened
// by rounding.
const (
	exactFloat = 1 << 53
	rounding   = 1e-9
)

// least returns the smallest fraction that can be in use after placing on a node that fits. That is so on a node with
// the most free capacity that is no larger than necessary for it.
func (w wanted) least(least, most *Extent) float64 {
	free := w.free(most)
	capacity := max(w.capacity(least), free)
	part := float64(capacity-free+w.want) / float64(capacity)
	if w.capacity(most) > exactFloat {
		part -= rounding
	}
	return part
}

// most returns the largest fraction that can be in use after placing. That is so on the node with the largest capacity
// and the least free.
func (w wanted) most(least, most *Extent) float64 {
	capacity := w.capacity(most)
	part := float64(capacity-max(w.free(least), w.want)+w.want) / float64(capacity)
	if capacity > exactFloat {
		part += rounding
	}
	return part
}
