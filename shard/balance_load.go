package shard

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// quantities is how many numbers a node is weighed by: its capacity in every dimension and in healthy devices, and then
// what is free of each.
const (
	kinds      = int(orbit.Dimensions) + 1
	quantities = 2 * kinds
)

// load is what one node counts for; never negative.
type load [quantities]int64

// loadOf weighs a node. What is over its capacity counts as nothing free.
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

// tally is a sum of loads. Each quantity has 128 bits, so that no sum wraps and what is taken out again leaves nothing
// behind.
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

// levels divide what is free of a quantity: nothing, all, and eight parts in between.
const levels = 8

// shape is what nodes of a cell have in common: their capacity, and about how much of it is free. Nodes of a cell are
// rated together.
type shape struct {
	capacity [kinds]int64
	level    [kinds]uint8
	// They have no owner yet, or none that lives: giving them to another group is no move.
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

// bounds returns the least and the most that a node of the shape has of a quantity.
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
	default: // a little wider, for what rounding does
		return c * (float64(l-1)/levels - 1e-9), c * (float64(l)/levels + 1e-9)
	}
}

// largest knows the most that any node has of a capacity. It counts nodes by capacity, and looks at the counts again
// only when the last one of the largest has gone.
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

// value returns the most of each capacity.
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
