package place

import (
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cow"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// nodeIndex is what is known of all nodes: a k-d tree over what is free and used on them, the kinds into which they are
// divided, the order of their ids, and lists of them by labels. It is persistent: fork takes no time, and what either of
// the two changes from then on it copies first.
//
// A node is registered when it joins and when its description changes, and settled, which puts it into the tree, when
// what is free on it has changed.
type nodeIndex struct {
	tree    kd.Tree
	members cow.Array[[memberChunk]member]
	kinds   nodeKinds
	order   idOrder
	labels  labelIndex
	owner   cow.Owner
	// How many nodes are registered, and an upper bound of their indices.
	live  int
	bound int32
	// The nodes have to be divided into kinds anew, or numbered; or the tree has to be built from all of them.
	divides, renumbers, plants bool
	// It has gone off from another for the changes of one plan.
	private bool
	// Only lists by labels matter, because the score has no bounds.
	unbounded bool
	// Nodes moved in the tree, and trees built.
	moves, builds int
}

// member is a node in the index.
type member struct {
	// Nil: no node has this index.
	node *orbit.Node
	// What the tree says of it; nil: it is not in the tree.
	in *orbit.NodeState
	// What breaks ties: a number in the order of the ids for seed 0, and the hash of the id for other seeds.
	number, hash uint64
	kind         int32
}

// memberChunk is how many members are copied when one of them changes.
const memberChunk = 8

// unique returns a number that nothing else in this process has.
func unique() uint64 { return uint64(cow.NewOwner()) }

// at returns a member for reading.
func (x *nodeIndex) at(slot int32) *member {
	if chunk := x.members.At(uint32(slot) / memberChunk); chunk != nil {
		return &chunk[slot%memberChunk]
	}
	return &noMember
}

var noMember member

// own returns a member for writing.
func (x *nodeIndex) own(slot int32) *member {
	x.bound = max(x.bound, slot+1)
	return &x.members.Own(uint32(slot)/memberChunk, x.owner)[slot%memberChunk]
}

// fork returns a second index. Both must not be written to while that happens.
func (x *nodeIndex) fork() nodeIndex {
	tree := x.tree.Fork()
	x.owner = cow.NewOwner()
	f := *x
	f.tree, f.owner, f.moves, f.builds = tree, cow.NewOwner(), 0, 0
	return f
}

// begin makes the index one of the nodes of a state, less what is in the tree, which is to cut by hash or by number. It
// keeps in mind of which labels specs speak.
func (x *nodeIndex) begin(state *orbit.State, byHash bool) {
	*x = nodeIndex{kinds: x.kinds, labels: x.labels.empty(), owner: cow.NewOwner(), private: x.private, unbounded: x.unbounded,
		moves: x.moves, builds: x.builds, plants: true}
	x.tree.ByHash = byHash
	x.kinds.own(x.owner)
	join := func(n *orbit.NodeState, number uint64) {
		slot := int32(n.Index())
		*x.own(slot) = member{node: n.Node, number: number, hash: nodeHash(n.Node.ID)}
		x.labels.update(slot, nil, n.Node)
		x.live++
	}
	if x.unbounded {
		for n := range state.Nodes() {
			join(n, 0)
		}
		return
	}
	x.order.owner = x.owner
	x.order.renumber(state, join)
	x.divide()
}

// nodes calls a function for each member.
func (x *nodeIndex) nodes(each func(slot int32, m *member) bool) {
	x.members.All(func(i uint32, chunk *[memberChunk]member) bool {
		for k := range chunk {
			if m := &chunk[k]; m.node != nil && !each(int32(int(i)*memberChunk+k), m) {
				return false
			}
		}
		return true
	})
}

// register takes note of a node that may have joined, changed its description, or left (nil).
func (x *nodeIndex) register(slot int32, n *orbit.Node) {
	was := x.at(slot).node
	if was == n {
		return
	}
	if in := x.at(slot).in; in != nil {
		p := x.point(in)
		x.tree.Remove(&p)
	}
	m := x.own(slot)
	if m.node, m.in = n, nil; n == nil {
		*m = member{}
	}
	x.labels.own(x.owner)
	x.labels.update(slot, was, n)
	if x.unbounded {
		return
	}
	if was != nil && (n == nil || n.ID != was.ID) {
		x.live--
		x.order.own(x.owner)
		x.order.drop(was.ID)
		was = nil
	}
	if n == nil {
		return
	}
	if was == nil {
		x.live++
		x.order.own(x.owner)
		number, ok := x.order.number(n.ID)
		m.number, m.hash, x.renumbers = number, nodeHash(n.ID), x.renumbers || !ok
	}
	m.kind = x.kindOf(n)
	x.divides = x.divides || x.kinds.outgrown()
}

// kindOf returns the kind of a node.
func (x *nodeIndex) kindOf(n *orbit.Node) int32 {
	kind, known := x.kinds.find(n)
	if !known {
		x.kinds.own(x.owner)
		kind = x.kinds.assign(n)
		if x.private { // another index may mean something else by that kind
			x.kinds.division = unique()
		}
	}
	return kind
}

// arrange divides and numbers the nodes anew if that has to be.
func (x *nodeIndex) arrange() {
	if x.renumbers {
		x.order.own(x.owner)
		x.order.spread()
		x.nodes(func(slot int32, m *member) bool {
			number, _ := x.order.known(m.node.ID)
			x.own(slot).number = number
			return true
		})
		x.plants = true
	}
	if x.divides {
		x.divide()
	}
	x.renumbers, x.divides = false, false
}

// divide finds the kind of every node, leaving out labels until there are few enough kinds. Then the tree has to be
// built anew.
func (x *nodeIndex) divide() {
	x.plants = true
	x.kinds.own(x.owner)
	x.labels.own(x.owner)
	x.kinds.divide(x)
	for key := range x.kinds.leftOut {
		x.labels.add(key, x)
	}
}

// point is where a node belongs that is registered.
func (x *nodeIndex) point(n *orbit.NodeState) kd.Point {
	return x.at(int32(n.Index())).point(n)
}

func (m *member) point(n *orbit.NodeState) (p kd.Point) {
	p.At = kd.Vector(score.ExtentOf(n))
	p.Rank, p.Hash, p.ID, p.Kind = m.number, m.hash, int32(n.Index()), m.kind
	return p
}

// says reports whether the tree has a node as it is; nil: there is no node.
func (x *nodeIndex) says(slot int32, n *orbit.NodeState) bool {
	m := x.at(slot)
	if n == nil || m.in == nil || m.node != n.Node {
		return n == nil && m.node == nil
	}
	return m.in == n || score.ExtentOf(m.in) == score.ExtentOf(n)
}

// settle moves nodes, which must be registered, to where they belong in the tree.
func (x *nodeIndex) settle(slots []int32, node func(slot int32) *orbit.NodeState, probe kd.Probe) {
	if x.plants || len(slots) > x.live/2+64 { // moving one costs about twice as much as planting it
		x.plant(node, probe)
		return
	}
	for _, slot := range slots {
		n := node(slot)
		if n == nil || n == x.at(slot).in {
			continue
		}
		m := x.own(slot)
		p, moved := m.point(n), true
		if m.in == nil {
			x.tree.Put(&p, probe)
		} else {
			was := m.point(m.in)
			moved = x.tree.Move(&was, &p, probe)
		}
		x.moves += btoi(moved)
		m.in = n
	}
}

// points are arrays that plant has used.
var points sync.Pool

// plant builds the tree from all nodes.
func (x *nodeIndex) plant(node func(slot int32) *orbit.NodeState, probe kd.Probe) {
	x.builds++
	all, _ := points.Get().(*[]kd.Point)
	if all == nil {
		all = &[]kd.Point{}
	}
	*all = (*all)[:0]
	x.plants = true // if a score panics, begin afresh
	x.nodes(func(slot int32, _ *member) bool {
		n := node(slot)
		*all = append(*all, x.point(n))
		x.own(slot).in = n
		return true
	})
	x.tree.Build(*all, probe)
	points.Put(all)
	x.plants = false
}
