package place

import (
	"math"

	"github.com/google/btree"

	"github.com/orbitsched/orbit"
)

// idOrder numbers nodes so that the numbers are in the order of the ids, and comparing two nodes is
// comparing numbers. A node that joins gets one between those of its neighbours; others keep theirs.
type idOrder struct {
	byID *btree.BTreeG[numbered]
}

type numbered struct {
	id     orbit.NodeID
	number uint64
}

// renumber starts afresh with the nodes of a state, spaced evenly. It calls put for each.
func (o *idOrder) renumber(state *orbit.State, put func(n *orbit.NodeState, number uint64)) {
	o.byID = btree.NewG(32, func(a, b numbered) bool { return a.id < b.id })
	gap, number := math.MaxUint64/(uint64(state.NodeCount())+1), uint64(0)
	for n := range state.Nodes() {
		number += gap
		o.byID.ReplaceOrInsert(numbered{n.Node.ID, number})
		put(n, number)
	}
}

// number returns the number of a node, which it gives one if it has none; false: there is none left between
// its neighbours'.
func (o *idOrder) number(id orbit.NodeID) (uint64, bool) {
	if known, ok := o.byID.Get(numbered{id: id}); ok {
		return known.number, true
	}
	low, high := uint64(0), uint64(math.MaxUint64)
	o.byID.DescendLessOrEqual(numbered{id: id}, func(n numbered) bool { low = n.number; return false })
	o.byID.AscendGreaterOrEqual(numbered{id: id}, func(n numbered) bool { high = n.number; return false })
	if high-low < 2 {
		return 0, false
	}
	if high == math.MaxUint64 { // at the end: leave most of the space to those that follow
		high = low + min(high-low, 1<<32)
	}
	number := low + (high-low)/2
	o.byID.ReplaceOrInsert(numbered{id, number})
	return number, true
}

// drop forgets a node that has left.
func (o *idOrder) drop(id orbit.NodeID) { o.byID.Delete(numbered{id: id}) }
