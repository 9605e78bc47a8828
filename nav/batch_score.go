package nav

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// packScore is the score of [Batch]. Lower is better. The share of a dimension is the part of the free capacity that
// the capsule takes:
//
//	1 - (smallest share / largest share), over the scarce dimensions
//	+ tight · mean of free/capacity, over the same dimensions
//
// The first term is 0 where the capsule has the proportions of the free capacity, and near 1 where one dimension would
// run out long before the others. So the remaining capacity of a node stays useful. Alone, this term spreads every
// class over all nodes that suit it. The second term fills nodes one after another; it is used when there is room for
// all.
//
// A dimension of which the capsule wants nothing counts as if it wanted a thousandth of the capacity: so work that
// needs no devices avoids nodes with free devices. A dimension of which nothing is free cannot be influenced, and does
// not count. All devices of a node together are one dimension.
type packScore struct {
	scarce []int
	tight  float64
	// version changes whenever the fields above do.
	version uint64
}

// unwanted is the part of the capacity that a capsule is taken to want of a dimension of which it wants nothing.
const unwanted = 1e-3

// set sets the scarce dimensions and how tightly to pack.
func (s *packScore) set(scarce []int, tight float64) {
	if s.tight != tight || !slices.Equal(s.scarce, scarce) {
		s.scarce, s.tight = slices.Clone(scarce), tight
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
		r.add(wantOf(spec, d), free, free, capacity, capacity)
	}
	return r.value(s), 0
}

// Bound returns a lower bound of the score over a range of nodes. For the largest share it takes each share at its
// minimum, and for the smallest share each at its maximum. Every step is monotone in its inputs, rounding included, so
// the bound needs no margin for rounding.
func (s *packScore) Bound(spec *orbit.Spec, _ *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	scarce, frozen := s.scarce, *s
	wants := make([]int64, len(scarce))
	for i, d := range scarce {
		wants[i] = wantOf(spec, d)
	}
	return func(least, most *score.Extent) (value, tie float64) {
		r := rating{least: math.Inf(1)}
		for i, d := range scarce {
			lowFree, lowCapacity := extentOf(least, d)
			highFree, highCapacity := extentOf(most, d)
			r.add(wants[i], lowFree, highFree, lowCapacity, highCapacity)
		}
		return r.value(&frozen), 0
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
	if d != devicesDim {
		return n.Node.Capacity[d] - n.Used()[d]
	}
	free := 0
	for i := range n.Node.Devices.Count {
		free += n.DeviceFree(i)
	}
	return int64(free)
}

func capacityIn(n *orbit.NodeState, d int) int64 {
	if d == devicesDim {
		return wholeDevice * int64(n.Node.Devices.Count)
	}
	return n.Node.Capacity[d]
}

func extentOf(e *score.Extent, d int) (free, capacity int64) {
	if d == devicesDim {
		return e.DevicesFree(), wholeDevice * int64(e.Devices())
	}
	return e.Free(d), e.Capacity(d)
}
