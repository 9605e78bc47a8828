package place

import (
	"math"

	"github.com/google/btree"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cow"
)

// idOrder numbers nodes so that the numbers are in the order of the ids, and comparing two nodes is
// comparing numbers. A node that joins gets one between those of its neighbours; others keep theirs.
type idOrder struct {
	byID  *btree.BTreeG[numbered]
	owner cow.Owner
}

type numbered struct {
	id     orbit.NodeID
	number uint64
	// How often it was asked for: an id that moves to another index has two for a moment.
	times int
}

func newOrder() *btree.BTreeG[numbered] {
	return btree.NewG(32, func(a, b numbered) bool { return a.id < b.id })
}

// own makes the order one that may be written to. It writes to the one that others read: they must not do the same at
// the same time.
func (o *idOrder) own(owner cow.Owner) {
	if o.owner != owner {
		o.byID, o.owner = o.byID.Clone(), owner
	}
}

// renumber starts afresh with the nodes of a state, spaced evenly. It calls put for each.
func (o *idOrder) renumber(state *orbit.State, put func(n *orbit.NodeState, number uint64)) {
	o.byID = newOrder()
	gap, number := math.MaxUint64/(uint64(state.NodeCount())+1), uint64(0)
	for n := range state.Nodes() {
		number += gap
		o.byID.ReplaceOrInsert(numbered{n.Node.ID, number, 1})
		put(n, number)
	}
}

// spread spaces the numbers evenly.
func (o *idOrder) spread() {
	spread := newOrder()
	gap, number := math.MaxUint64/(uint64(o.byID.Len())+1), uint64(0)
	o.byID.Ascend(func(n numbered) bool {
		number += gap
		spread.ReplaceOrInsert(numbered{n.id, number, n.times})
		return true
	})
	o.byID = spread
}

// known returns the number of a node that has one.
func (o *idOrder) known(id orbit.NodeID) (uint64, bool) {
	n, ok := o.byID.Get(numbered{id: id})
	return n.number, ok
}

// number returns the number of a node, which it gives one if it has none; false: there is none left between
// its neighbours'.
func (o *idOrder) number(id orbit.NodeID) (uint64, bool) {
	if known, ok := o.byID.Get(numbered{id: id}); ok {
		known.times++
		o.byID.ReplaceOrInsert(known)
		return known.number, true
	}
	low, high := uint64(0), uint64(math.MaxUint64)
	o.byID.DescendLessOrEqual(numbered{id: id}, func(n numbered) bool { low = n.number; return false })
	o.byID.AscendGreaterOrEqual(numbered{id: id}, func(n numbered) bool { high = n.number; return false })
	ok := high-low >= 2
	if high == math.MaxUint64 { // at the end: leave most of the space to those that follow
		high = low + min(high-low, 1<<32)
	}
	number := low + (high-low)/2
	o.byID.ReplaceOrInsert(numbered{id, number, 1})
	return number, ok
}

// drop forgets a node that has left.
func (o *idOrder) drop(id orbit.NodeID) {
	n, ok := o.byID.Get(numbered{id: id})
	if n.times--; ok && n.times > 0 {
		o.byID.ReplaceOrInsert(n)
	} else {
		o.byID.Delete(n)
	}
}
