// Package kd keeps points with integer coordinates in a forest of k-d trees. Every box of a tree knows the
// extremes of the points in it, exactly, so that a search can bound what it may find there. A point that
// moves goes to the box where it now belongs; boxes are never widened for it.
//
//	tree ─► box ─► two boxes, cut at a coordinate or at a rank
//	          └──► leaf: up to LeafSize points, more only if they cannot be told apart
//
// The shape follows the points: a leaf that is full is cut in two, one that is empty goes, two that are
// nearly empty become one, and a tree that has grown too deep is built anew.
package kd

// Dims is the number of coordinates of a point.
const Dims = 20

// byRank is the dimension of a cut that divides points by rank, because their coordinates are equal.
const byRank = Dims

// LeafSize is how many points a leaf has before it is cut in two.
const LeafSize = 16

// Vector is the place of a point.
type Vector [Dims]int64

// Point is one point. Points that are alike in all coordinates differ in rank, or share a leaf.
type Point struct {
	At   Vector
	Rank uint64
	// Dense and not negative.
	ID int32
}

// Probe rates a box by its extremes, higher where nothing worth finding can be. Trees are cut where that
// tells most.
type Probe func(tree int, least, most *Vector) float64

// Box is a set of points, divided between two others or, in a leaf, listed.
type Box struct {
	// The extremes of its points, in each coordinate.
	Least, Most Vector
	// The smallest rank of its points.
	Rank uint64
	Size int32
	// 0 in a leaf.
	Left, Right int32
	Tree        int32
	// 0 in a root.
	parent int32
	// Points below the cut are on the left.
	dim     uint8
	cut     int64
	cutRank uint64

	// Of a leaf, in parallel: the points.
	IDs   []int32
	Ranks []uint64
	At    []Vector
}

// Leaf reports whether the box lists its points.
func (b *Box) Leaf() bool { return b.Left == 0 }

// Forest is a number of trees with points of different ids. The zero value is empty and ready.
type Forest struct {
	// Boxes by number; 0 is none.
	boxes []Box
	free  []int32
	trees []state
	// The leaf of a point; 0: not in the forest.
	leaf []int32
	// The coordinates that are not 0 everywhere, and the others.
	live, dead []uint8
	// Room for building.
	points []Point
	sample []int64
	ranks  []uint64
}

// state is where a tree begins.
type state struct {
	root int32
	// Points put in since it was built.
	puts int32
}

// Clear takes all points out and makes room for a number of trees.
func (f *Forest) Clear(trees int) {
	f.boxes = append(f.boxes[:0], Box{})
	f.free = f.free[:0]
	f.trees = append(f.trees[:0], make([]state, trees)...)
	clear(f.leaf)
	f.live, f.dead = f.live[:0], f.dead[:0]
	for d := range uint8(Dims) {
		f.dead = append(f.dead, d)
	}
}

// Trees returns the number of trees.
func (f *Forest) Trees() int { return len(f.trees) }

// Root returns the root of a tree; 0: the tree is empty.
func (f *Forest) Root(tree int) int32 { return f.trees[tree].root }

// Box returns a box by its number. It is good until the forest changes.
func (f *Forest) Box(number int32) *Box { return &f.boxes[number] }

// Has reports whether a point is in the forest.
func (f *Forest) Has(id int32) bool { return int(id) < len(f.leaf) && f.leaf[id] != 0 }

// Put puts a point into a tree, or moves it there.
func (f *Forest) Put(tree int, p *Point, probe Probe) {
	f.reach(p)
	if old := f.leaf[p.ID]; old != 0 {
		b := &f.boxes[old]
		i := b.index(p.ID)
		if int(b.Tree) == tree && b.Ranks[i] == p.Rank {
			if b.At[i] == p.At {
				return
			}
			if f.belongs(old, p) {
				b.At[i] = p.At
				f.tighten(old)
				if len(b.IDs) > LeafSize { // they were all alike
					f.cutLeaf(old, probe)
				}
				f.age(tree, probe)
				return
			}
		}
		f.Remove(p.ID)
	}
	f.insert(tree, p, probe)
}

// reach makes room for a point's id and notes which coordinates are in use.
func (f *Forest) reach(p *Point) {
	for int(p.ID) >= len(f.leaf) {
		f.leaf = append(f.leaf, make([]int32, max(64, len(f.leaf)))...)
	}
	for i := 0; i < len(f.dead); i++ {
		if d := f.dead[i]; p.At[d] != 0 { // it is 0 in all boxes there are, which is what they say
			f.live = append(f.live, d)
			f.dead[i] = f.dead[len(f.dead)-1]
			f.dead = f.dead[:len(f.dead)-1]
			i--
		}
	}
}

// belongs reports whether a point that is in a leaf would be put there again.
func (f *Forest) belongs(leaf int32, p *Point) bool {
	for at := leaf; ; {
		up := f.boxes[at].parent
		if up == 0 {
			return true
		}
		if b := &f.boxes[up]; b.below(p) != (b.Left == at) {
			return false
		}
		at = up
	}
}

// below reports whether a point is below the cut of an inner box.
func (b *Box) below(p *Point) bool {
	if b.dim == byRank {
		return p.Rank < b.cutRank
	}
	return p.At[b.dim] < b.cut
}

// index returns the position of a point in its leaf.
func (b *Box) index(id int32) int {
	for i, at := range b.IDs {
		if at == id {
			return i
		}
	}
	panic("kd: a point is not in its leaf")
}

// insert puts a point into the leaf where it belongs, widening the boxes on the way.
func (f *Forest) insert(tree int, p *Point, probe Probe) {
	t := &f.trees[tree]
	if t.root == 0 {
		t.root = f.newLeaf(tree, 0)
	}
	at, depth := t.root, 0
	for {
		b := &f.boxes[at]
		b.add(p, f.live)
		if b.Leaf() {
			break
		}
		if b.below(p) {
			at = b.Left
		} else {
			at = b.Right
		}
		depth++
	}
	b := &f.boxes[at]
	b.IDs, b.Ranks, b.At = append(b.IDs, p.ID), append(b.Ranks, p.Rank), append(b.At, p.At)
	f.leaf[p.ID] = at
	if len(b.IDs) > LeafSize {
		f.cutLeaf(at, probe)
	}
	f.age(tree, probe)
	_ = depth
}

// age counts a point that has moved. A tree is built anew when half of its points have.
func (f *Forest) age(tree int, probe Probe) {
	t := &f.trees[tree]
	if t.puts++; t.puts > f.boxes[t.root].Size/2+LeafSize {
		f.rebuild(tree, probe)
	}
}

// add counts a point in and widens the extremes for it.
func (b *Box) add(p *Point, live []uint8) {
	if b.Size++; b.Size == 1 {
		b.Least, b.Most, b.Rank = p.At, p.At, p.Rank
		return
	}
	b.Rank = min(b.Rank, p.Rank)
	for _, d := range live {
		b.Least[d] = min(b.Least[d], p.At[d])
		b.Most[d] = max(b.Most[d], p.At[d])
	}
}

// Remove takes a point out, if it is in.
func (f *Forest) Remove(id int32) {
	if !f.Has(id) {
		return
	}
	leaf := f.leaf[id]
	f.leaf[id] = 0
	b := &f.boxes[leaf]
	i, last := b.index(id), len(b.IDs)-1
	b.IDs[i], b.Ranks[i], b.At[i] = b.IDs[last], b.Ranks[last], b.At[last]
	b.IDs, b.Ranks, b.At = b.IDs[:last], b.Ranks[:last], b.At[:last]
	for at := leaf; at != 0; at = f.boxes[at].parent {
		f.boxes[at].Size--
	}
	if last == 0 {
		leaf = f.dropLeaf(leaf)
	} else {
		leaf = f.join(leaf)
	}
	f.tighten(leaf)
}

// dropLeaf removes an empty leaf, whose sibling takes the place of their parent, and returns the sibling's
// new parent.
func (f *Forest) dropLeaf(leaf int32) int32 {
	b := &f.boxes[leaf]
	up := b.parent
	f.release(leaf)
	if up == 0 {
		f.trees[b.Tree].root = 0
		return 0
	}
	p := &f.boxes[up]
	sibling := p.Left + p.Right - leaf
	over := p.parent
	f.boxes[sibling].parent = over
	switch {
	case over == 0:
		f.trees[b.Tree].root = sibling
	case f.boxes[over].Left == up:
		f.boxes[over].Left = sibling
	default:
		f.boxes[over].Right = sibling
	}
	f.release(up)
	return over
}

// join makes one leaf of two that are half empty together, and returns the leaf that is left.
func (f *Forest) join(leaf int32) int32 {
	up := f.boxes[leaf].parent
	if up == 0 {
		return leaf
	}
	p := &f.boxes[up]
	l, r := &f.boxes[p.Left], &f.boxes[p.Right]
	if !l.Leaf() || !r.Leaf() || len(l.IDs)+len(r.IDs) > LeafSize/2 {
		return leaf
	}
	p.IDs = append(append(p.IDs[:0], l.IDs...), r.IDs...)
	p.Ranks = append(append(p.Ranks[:0], l.Ranks...), r.Ranks...)
	p.At = append(append(p.At[:0], l.At...), r.At...)
	for _, id := range p.IDs {
		f.leaf[id] = up
	}
	left, right := p.Left, p.Right
	p.Left, p.Right = 0, 0
	f.release(left)
	f.release(right)
	return up
}

// tighten sets the extremes of a box right, and of those above it as far as they change.
func (f *Forest) tighten(at int32) {
	for at != 0 {
		b := &f.boxes[at]
		changed := false
		if b.Leaf() {
			changed = b.measure(f.live)
		} else {
			changed = b.combine(&f.boxes[b.Left], &f.boxes[b.Right], f.live)
		}
		if !changed {
			return
		}
		at = b.parent
	}
}

// measure takes the extremes from the points of a leaf. It reports whether they have changed.
func (b *Box) measure(live []uint8) bool {
	changed := false
	rank := b.Ranks[0]
	for _, r := range b.Ranks[1:] {
		rank = min(rank, r)
	}
	if rank != b.Rank {
		b.Rank, changed = rank, true
	}
	for _, d := range live {
		least := b.At[0][d]
		most := least
		for i := 1; i < len(b.At); i++ {
			v := b.At[i][d]
			least, most = min(least, v), max(most, v)
		}
		if least != b.Least[d] || most != b.Most[d] {
			b.Least[d], b.Most[d], changed = least, most, true
		}
	}
	return changed
}

// combine takes the extremes from the two parts of a box. It reports whether they have changed.
func (b *Box) combine(l, r *Box, live []uint8) bool {
	changed := false
	if rank := min(l.Rank, r.Rank); rank != b.Rank {
		b.Rank, changed = rank, true
	}
	for _, d := range live {
		least, most := min(l.Least[d], r.Least[d]), max(l.Most[d], r.Most[d])
		if least != b.Least[d] || most != b.Most[d] {
			b.Least[d], b.Most[d], changed = least, most, true
		}
	}
	return changed
}

// newLeaf returns an empty leaf.
func (f *Forest) newLeaf(tree int, parent int32) int32 {
	if n := len(f.free); n > 0 {
		at := f.free[n-1]
		f.free = f.free[:n-1]
		b := &f.boxes[at]
		*b = Box{Tree: int32(tree), parent: parent, IDs: b.IDs[:0], Ranks: b.Ranks[:0], At: b.At[:0]}
		return at
	}
	if len(f.boxes) < cap(f.boxes) { // cleared, with arrays to use again
		f.boxes = f.boxes[:len(f.boxes)+1]
	} else {
		f.boxes = append(f.boxes, Box{})
	}
	at := int32(len(f.boxes) - 1)
	b := &f.boxes[at]
	*b = Box{Tree: int32(tree), parent: parent, IDs: b.IDs[:0], Ranks: b.Ranks[:0], At: b.At[:0]}
	return at
}

// release gives a box back.
func (f *Forest) release(at int32) { f.free = append(f.free, at) }
