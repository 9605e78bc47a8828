package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// boxIndex is a k-d tree over what is free and used on the nodes, which all specs share. A node that changes is noted,
// and moved in the tree when the next search begins; a search that continues adds it to its heap instead.
type boxIndex struct {
	rater   *rater
	bounded score.Bounded
	kinds   nodeKinds
	order   idOrder
	tree    kd.Tree
	// What breaks ties, by node index: the order of the ids for seed 0, else the rater's hashes.
	ranks []uint64
	// Position in the draft's journal; 0: the index has to be built anew.
	cursor uint64
	// Nodes that have changed since they were put into the tree, each once; and whether a node is one of them.
	moved   []int32
	isMoved []bool
	// The number of changes so far, and the number of each node's last: what was computed before it is out of date.
	clock   uint64
	changed []uint64
	// Rises when the nodes are divided into kinds anew.
	division int
	points   []kd.Point
	live     int

	// Since the last Sync.
	moves, builds int
}

// follow notes the nodes that have changed since the last call, and returns them, some of them twice. If all is true the
// index has to be built anew.
func (x *boxIndex) follow() (touched []int32, all bool) {
	touched, x.cursor, all = x.rater.draft.Changed(x.cursor)
	if all {
		return nil, true
	}
	x.makeRoom()
	for _, slot := range touched {
		x.clock++
		x.changed[slot] = x.clock
		if !x.isMoved[slot] {
			x.isMoved[slot] = true
			x.moved = append(x.moved, slot)
		}
	}
	return touched, false
}

func (x *boxIndex) makeRoom() {
	if n := x.rater.draft.Bound() - len(x.changed); n > 0 {
		x.changed = append(x.changed, make([]uint64, n)...)
		x.isMoved = append(x.isMoved, make([]bool, n)...)
		x.ranks = append(x.ranks, make([]uint64, n)...)
	}
}

// settle moves the nodes that have changed to where they belong in the tree.
func (x *boxIndex) settle(probe kd.Probe) {
	for _, slot := range x.moved {
		if !x.register(slot) {
			x.build(probe)
			return
		}
	}
	if len(x.moved) > x.live/2+64 { // moving one costs about twice as much as planting it
		clear(x.isMoved)
		x.plant(probe)
	} else {
		for _, slot := range x.moved {
			x.isMoved[slot] = false
			if n := x.rater.node(slot); n != nil {
				p := x.point(n)
				x.moves += btoi(x.tree.Put(&p, probe))
			}
		}
	}
	x.moved = x.moved[:0]
}

// register takes note of a node that may have joined, left, or changed its kind. It reports false if the index has
// to be built anew for that.
func (x *boxIndex) register(slot int32) bool {
	n := x.rater.node(slot)
	was := x.kinds.seenAt(slot)
	if was != nil && (n == nil || n.Node.ID != was.ID) {
		x.forget(slot, was.ID)
		was = nil
	}
	if n == nil {
		return true
	}
	if was == nil {
		rank, ok := x.rank(n)
		if !ok {
			return false
		}
		x.ranks[slot] = rank
		x.live++
	}
	x.kinds.assign(int(slot), n.Node)
	return !x.kinds.outgrown()
}

// forget takes out a node that has left its slot.
func (x *boxIndex) forget(slot int32, id orbit.NodeID) {
	x.tree.Remove(slot)
	x.live--
	x.kinds.seen[slot] = nil
	if x.rater.seed == 0 && x.rater.draft.View().State().Node(id) == nil {
		x.order.drop(id)
	}
}

// rank returns what breaks ties; false: the numbers of the ids have run out.
func (x *boxIndex) rank(n *orbit.NodeState) (uint64, bool) {
	if x.rater.seed != 0 {
		return x.rater.ranks[n.Index()], true
	}
	return x.order.number(n.Node.ID)
}

// point is where a node belongs.
func (x *boxIndex) point(n *orbit.NodeState) kd.Point {
	return kd.Point{At: kd.Vector(score.ExtentOf(n)), Rank: x.ranks[n.Index()], ID: int32(n.Index()), Kind: x.kinds.of[n.Index()]}
}

// build makes the index from all nodes, and divides them anew.
func (x *boxIndex) build(probe kd.Probe) {
	x.division++
	x.makeRoom()
	clear(x.isMoved)
	x.moved = x.moved[:0]
	if x.rater.seed != 0 {
		copy(x.ranks, x.rater.ranks)
	} else {
		x.order.renumber(x.rater.draft.View().State(), func(n *orbit.NodeState, number uint64) { x.ranks[n.Index()] = number })
	}
	x.kinds.divide(x.rater.draft)
	x.plant(probe)
	x.live = len(x.points)
}

// plant makes the tree from all nodes.
func (x *boxIndex) plant(probe kd.Probe) {
	x.builds++
	x.points = x.points[:0]
	for n := range x.rater.draft.Nodes() {
		x.points = append(x.points, x.point(n))
	}
	x.tree.Build(x.points, probe)
}
