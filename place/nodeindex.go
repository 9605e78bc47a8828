package place

import (
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cow"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// nodeIndex is an index of all nodes: a k-d tree over their free capacity and use, their division into kinds, the order
// of their ids, and lists of them by labels. It is persistent (copy-on-write): fork takes no time, and from then on
// each of the two indexes copies what it changes.
//
// register notes the description of a node when it joins, changes or leaves. settle puts a registered node into the
// tree, or moves it there, when its free capacity has changed.
type nodeIndex struct {
	tree    kd.Tree
	members cow.Array[[memberChunk]member]
	kinds   nodeKinds
	order   idOrder
	labels  labelIndex
	owner   cow.Owner
	// The number of registered nodes, and an exclusive upper bound of their indices.
	live  int
	bound int32
	// What arrange and settle have to do: divide the nodes into kinds anew (divides), number them anew (renumbers), or
	// build the tree from all nodes (plants).
	divides, renumbers, plants bool
	// Whether this is a fork that holds the changes of one plan alone.
	private bool
	// Whether only the lists by labels are kept, because the score has no bounds.
	unbounded bool
	// A number that is another one whenever the tree has been built anew; 0: it has never been.
	built uint64
	// The number of nodes moved in the tree, and of trees built from a list of all nodes.
	moves, builds int
}

// member is a node in the index.
type member struct {
	// Nil: no node has this index.
	node *orbit.Node
	// The state with which the tree has the node; nil: the tree does not have it.
	in *orbit.NodeState
	// What breaks ties: with seed 0 a number in the order of the ids, with other seeds the hash of the id.
	number, hash uint64
	kind         int32
}

// memberChunk is the number of members that are copied together when one of them changes.
const memberChunk = 8

// unique returns a number that no other call in this process returns.
func unique() uint64 { return uint64(cow.NewOwner()) }

// at returns a member for reading.
func (x *nodeIndex) at(slot int32) *member {
	if chunk := x.members.At(uint32(slot) / memberChunk); chunk != nil {
		return &chunk[slot%memberChunk]
	}
	return &noMember
}

// noMember is what at returns for an index without a node.
var noMember member

// own returns a member for writing.
func (x *nodeIndex) own(slot int32) *member {
	x.bound = max(x.bound, slot+1)
	return &x.members.Own(uint32(slot)/memberChunk, x.owner)[slot%memberChunk]
}

// fork returns a second index. Nothing may write to either index during the call.
func (x *nodeIndex) fork() nodeIndex {
	tree := x.tree.Fork()
	x.owner = cow.NewOwner()
	f := *x
	f.tree, f.owner, f.moves, f.builds = tree, cow.NewOwner(), 0, 0
	return f
}

// begin registers the nodes of a state in an index that is otherwise empty. The tree is built later; byHash says
// whether it is to be cut by hash or by number where nodes are equal. The index keeps the labels that specs have named.
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

// register notes the description of a node that may have joined or changed, or nil if it may have left. It takes the
// node out of the tree until settle puts it back.
func (x *nodeIndex) register(slot int32, n *orbit.Node) {
	was := x.at(slot).node
	if was == n {
		return
	}
	// The tree has the node at the point of its old kind and number. A tree that is to be built anew is left as it is,
	// because kinds and numbers have changed since it was built.
	if in := x.at(slot).in; in != nil && !x.plants {
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
	// The old node has left, even if another node has its index now.
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
		if x.private { // in another index the same number may stand for another kind
			x.kinds.division = unique()
		}
	}
	return kind
}

// arrange numbers and divides the nodes anew if necessary.
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

// divide finds the kind of each node, leaving out labels until there are few enough kinds. The tree has to be built
// anew afterwards.
func (x *nodeIndex) divide() {
	x.plants = true
	x.kinds.own(x.owner)
	x.labels.own(x.owner)
	x.kinds.divide(x)
	for key := range x.kinds.leftOut {
		x.labels.add(key, x)
	}
}

// point returns the point in the tree for the state of a registered node.
func (x *nodeIndex) point(n *orbit.NodeState) kd.Point {
	return x.at(int32(n.Index())).point(n)
}

func (m *member) point(n *orbit.NodeState) (p kd.Point) {
	p.At = kd.Vector(score.ExtentOf(n))
	p.Rank, p.Hash, p.ID, p.Kind = m.number, m.hash, int32(n.Index()), m.kind
	return p
}

// says reports whether the index has a node in this state; nil: whether the index has no such node.
func (x *nodeIndex) says(slot int32, n *orbit.NodeState) bool {
	m := x.at(slot)
	if n == nil || m.in == nil || m.node != n.Node {
		return n == nil && m.node == nil
	}
	return m.in == n || score.ExtentOf(m.in) == score.ExtentOf(n)
}

// moveTo puts nodes at the points of the tree that their states call for. The nodes must be registered.
func (x *nodeIndex) moveTo(slots []int32, node func(slot int32) *orbit.NodeState, probe kd.Probe) {
	if x.plants || len(slots) > x.live/2+64 { // moving a node costs about twice as much as building it in
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
	if !x.private && x.tree.Age(probe) {
		x.built = unique()
	}
}

// points recycles the slices that plant sorts.
var points sync.Pool

// plant builds the tree from all nodes.
func (x *nodeIndex) plant(node func(slot int32) *orbit.NodeState, probe kd.Probe) {
	x.builds++
	all, _ := points.Get().(*[]kd.Point)
	if all == nil {
		all = &[]kd.Point{}
	}
	*all = (*all)[:0]
	x.plants = true // if a score panics, it stays so, and the next call builds the tree again
	x.nodes(func(slot int32, _ *member) bool {
		n := node(slot)
		*all = append(*all, x.point(n))
		x.own(slot).in = n
		return true
	})
	x.tree.Build(*all, probe)
	x.built = unique()
	points.Put(all)
	x.plants = false
}
