package place

import (
	"math"

	"github.com/google/btree"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cow"
)

// idOrder gives each node a number so that numbers are in the order of the ids, and comparing two nodes is comparing
// numbers. A node that joins gets a number between those of its neighbours; other nodes keep theirs.
type idOrder struct {
	byID  *btree.BTreeG[numbered]
	owner cow.Owner
}

type numbered struct {
	id     orbit.NodeID
	number uint64
	// How many indices have this id. It is 2 for a moment when a node moves to another index.
	times int
}

func newOrder() *btree.BTreeG[numbered] {
	return btree.NewG(32, func(a, b numbered) bool { return a.id < b.id })
}

// own makes the order writable for an owner, as a copy-on-write clone unless the owner has it already. Cloning writes
// to the order that others read, so two calls on one order must not run at the same time.
func (o *idOrder) own(owner cow.Owner) {
	if o.owner != owner {
		o.byID, o.owner = o.byID.Clone(), owner
	}
}

// renumber numbers the nodes of a state afresh, spaced evenly, and calls put for each.
func (o *idOrder) renumber(state *orbit.State, put func(n *orbit.NodeState, number uint64)) {
	o.byID = newOrder()
	gap, number := math.MaxUint64/(uint64(state.NodeCount())+1), uint64(0)
	for n := range state.Nodes() {
		number += gap
		o.byID.ReplaceOrInsert(numbered{n.Node.ID, number, 1})
		put(n, number)
	}
}

// spread numbers the known nodes again, spaced evenly, after number has found no free number between two neighbours.
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

// known returns the number of a node; false: the node has none.
func (o *idOrder) known(id orbit.NodeID) (uint64, bool) {
	n, ok := o.byID.Get(numbered{id: id})
	return n.number, ok
}

// number returns the number of a node, and gives it one if it has none. False: no number was left between those of its
// neighbours, so two nodes have the same until spread is called.
func (o *idOrder) number(id orbit.NodeID) (uint64, bool) {
	if known, ok := o.byID.Get(numbered{id: id}); ok {
		known.times++
		o.byID.ReplaceOrInsert(known)
		return known.number, true
	}
	// Take the middle between the numbers of the neighbours in id order.
	low, high := uint64(0), uint64(math.MaxUint64)
	o.byID.DescendLessOrEqual(numbered{id: id}, func(n numbered) bool { low = n.number; return false })
	o.byID.AscendGreaterOrEqual(numbered{id: id}, func(n numbered) bool { high = n.number; return false })
	ok := high-low >= 2
	if high == math.MaxUint64 { // the last id: leave most of the space to the ids that follow
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
