package shard

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// quantities is the number of quantities in a load: first the capacity in every dimension and in healthy devices, then
// the free part of each.
const (
	kinds      = orbit.Dimensions + 1
	quantities = 2 * kinds
)

// load is the weight of one node; no quantity is negative.
type load [quantities]int64

// loadOf returns the load of a node. An overcommitted node has no free capacity.
func loadOf(n *orbit.NodeState) (out load) {
	free := n.Free()
	for d := range orbit.Dimensions {
		out[d] = n.Node.Capacity[d]
		out[kinds+d] = min(max(free[d], 0), out[d])
	}
	for i := range n.Node.Devices.Count {
		if !n.Node.Devices.Unhealthy.Has(i) {
			out[kinds-1] += 1000
			out[quantities-1] += int64(n.DeviceFree(i))
		}
	}
	return out
}

// tally is a sum of loads. Each quantity has 128 bits, so that no sum overflows, and subtracting a load undoes adding
// it exactly.
type tally [quantities]struct{ high, low uint64 }

func (t *tally) add(l *load) {
	for k, v := range l {
		var carry uint64
		t[k].low, carry = bits.Add64(t[k].low, uint64(v), 0)
		t[k].high += carry
	}
}

func (t *tally) sub(l *load) {
	for k, v := range l {
		var borrow uint64
		t[k].low, borrow = bits.Sub64(t[k].low, uint64(v), 0)
		t[k].high -= borrow
	}
}

// value returns a sum as a number.
func (t *tally) value(k int) float64 { return float64(t[k].high)*(1<<64) + float64(t[k].low) }

// levels is the number of parts into which the range of free capacity, from nothing to all, is divided.
const levels = 8

// shape is the capacity of a node and, roughly, the part of it that is free. All nodes of a cell have the same shape,
// so that one bound serves them all.
type shape struct {
	capacity [kinds]int64
	level    [kinds]uint8
	// fresh says that the nodes have no living owner: giving them to another group is not a move.
	fresh bool
}

// shapeOf returns the shape of a load.
func shapeOf(l *load, fresh bool) (s shape) {
	s.fresh = fresh
	for d := range kinds {
		s.capacity[d] = l[d]
		switch free := l[kinds+d]; free {
		case 0:
		case l[d]:
			s.level[d] = levels + 1
		default:
			s.level[d] = uint8(1 + min(levels-1, int(levels*(float64(free)/float64(l[d])))))
		}
	}
	return s
}

// bounds returns the smallest and the largest value that a node of the shape can have of a quantity.
func (s *shape) bounds(k int) (least, most float64) {
	if k < kinds {
		c := float64(s.capacity[k])
		return c, c
	}
	c := float64(s.capacity[k-kinds])
	switch l := s.level[k-kinds]; l {
	case 0:
		return 0, 0
	case levels + 1:
		return c, c
	default: // a little wider, because of rounding
		return c * (float64(l-1)/levels - 1e-9), c * (float64(l)/levels + 1e-9)
	}
}

// largest tracks the largest capacity of any node, for each dimension. It counts nodes by capacity, and searches the
// counts for a new maximum only when the last node with the largest capacity has gone.
type largest struct {
	counts map[[kinds]int64]int
	most   load
	stale  bool
}

func (l *largest) add(one *load) {
	if l.counts == nil {
		l.counts = map[[kinds]int64]int{}
	}
	capacity := [kinds]int64(one[:kinds])
	l.counts[capacity]++
	for k, v := range capacity {
		l.most[k] = max(l.most[k], v)
	}
}

func (l *largest) sub(one *load) {
	capacity := [kinds]int64(one[:kinds])
	if l.counts[capacity]--; l.counts[capacity] > 0 {
		return
	}
	delete(l.counts, capacity)
	for k, v := range capacity {
		l.stale = l.stale || v == l.most[k]
	}
}

// value returns the largest value of each capacity.
func (l *largest) value() *load {
	if l.stale {
		l.most, l.stale = load{}, false
		for capacity := range l.counts {
			for k, v := range capacity {
				l.most[k] = max(l.most[k], v)
			}
		}
	}
	return &l.most
}
