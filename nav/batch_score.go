package nav

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/score"
)

// packScore is the score of [Batch]. Lower is better. The share of a dimension is the part of the free capacity that
// the capsule takes:
//
//	1 - (smallest share / largest share), over the scarce dimensions
//	+ tight · mean of free/capacity, over the same dimensions
//	+ 1,000 if spares is set, the node has devices and the capsule asks for none
//
// The first term is 0 where the capsule has the proportions of the free capacity, and near 1 where one dimension would
// run out long before the others. So the remaining capacity of a node stays useful. Alone, this term spreads every
// class over all nodes that suit it. The other terms are used when there is room for all. The second fills nodes one
// after another. The third keeps work without devices off nodes with devices while it fits on others; where there is
// not room for all, fewer capsules would be placed with it.
//
// A dimension of which the capsule wants nothing counts as if it wanted a thousandth of the capacity: so where devices
// are scarce, work without avoids nodes with free devices. A dimension of which nothing is free cannot be influenced,
// and does not count. All devices of a node together are one dimension.
type packScore struct {
	scarce []int
	tight  float64
	spares bool
	// version changes whenever the fields above do.
	version uint64
}

const (
	// unwanted is the part of the capacity that a capsule is taken to want of a dimension of which it wants nothing.
	unwanted = 1e-3
	// besideDevices is added for nodes with devices, for work without. It is more than the other terms together.
	besideDevices = 1e3
)

// set sets the scarce dimensions and the terms of an order.
func (s *packScore) set(scarce []int, order *batchOrder) {
	if s.tight != order.tight || s.spares != order.spares || !slices.Equal(s.scarce, scarce) {
		s.scarce, s.tight, s.spares = slices.Clone(scarce), order.tight, order.spares
		s.version++
	}
}

// Version implements [score.Versioned].
func (s *packScore) Version() uint64 { return s.version }

// Score returns the score of a node on which the capsule fits.
func (s *packScore) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	r := rating{least: math.Inf(1)}
	for _, d := range s.scarce {
		free, capacity := freeOf(node, d), capacityIn(node, d)
		r.add(seats.WantOf(spec, d), free, free, capacity, capacity)
	}
	value = r.value(s)
	if s.spares && spec.Devices.Count == 0 && node.Node.Devices.Count > 0 {
		value += besideDevices
	}
	return value, 0
}

// Bound returns a lower bound of the score over a range of nodes. For the largest share it takes each share at its
// minimum, and for the smallest share each at its maximum. Every step is monotone in its inputs, rounding included, so
// the bound needs no margin for rounding.
func (s *packScore) Bound(spec *orbit.Spec, _ *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	scarce, frozen := s.scarce, *s
	wants := make([]int64, len(scarce))
	for i, d := range scarce {
		wants[i] = seats.WantOf(spec, d)
	}
	return func(least, most *score.Extent) (value, tie float64) {
		r := rating{least: math.Inf(1)}
		for i, d := range scarce {
			lowFree, lowCapacity := extentOf(least, d)
			highFree, highCapacity := extentOf(most, d)
			r.add(wants[i], lowFree, highFree, lowCapacity, highCapacity)
		}
		value = r.value(&frozen)
		if frozen.spares && spec.Devices.Count == 0 && least.Devices() > 0 {
			value += besideDevices
		}
		return value, 0
	}
}

// rating has the parts of a score.
type rating struct {
	// most is the largest share if every share is at its minimum, least the smallest share if every share is at its
	// maximum.
	most, least float64
	// free is the sum of the free parts of the capacities.
	free float64
}

// add adds one dimension, whose free amount and capacity lie between the given bounds.
func (r *rating) add(want, lowFree, highFree, lowCapacity, highCapacity int64) {
	lowFree = max(lowFree, want, 0)
	if highCapacity > 0 {
		r.free += float64(lowFree) / float64(highCapacity)
	}
	if lowFree == 0 {
		return // on some of the nodes nothing is free, and the dimension does not count
	}
	highFree = max(highFree, lowFree)
	r.most = max(r.most, float64(float64(want)+float64(unwanted*float64(lowCapacity)))/float64(highFree))
	r.least = min(r.least, float64(float64(want)+float64(unwanted*float64(highCapacity)))/float64(lowFree))
}

// value combines the parts to the value of a score.
func (r *rating) value(s *packScore) float64 {
	apart := 0.0
	if r.most > 0 {
		apart = max(1-r.least/r.most, 0)
	}
	return apart + float64(s.tight*r.free)/float64(max(len(s.scarce), 1))
}

// freeOf returns the free amount of a dimension; it is negative if the capacity has shrunk below what is in use.
func freeOf(n *orbit.NodeState, d int) int64 {
	if d != seats.DevicesDim {
		return n.Node.Capacity[d] - n.Used()[d]
	}
	free := 0
	for i := range n.Node.Devices.Count {
		free += n.DeviceFree(i)
	}
	return int64(free)
}

func capacityIn(n *orbit.NodeState, d int) int64 {
	if d == seats.DevicesDim {
		return seats.WholeDevice * int64(n.Node.Devices.Count)
	}
	return n.Node.Capacity[d]
}

func extentOf(e *score.Extent, d int) (free, capacity int64) {
	if d == seats.DevicesDim {
		return e.DevicesFree(), seats.WholeDevice * int64(e.Devices())
	}
	return e.Free(d), e.Capacity(d)
}
