// Package kd keeps points with integer coordinates in a k-d tree. Every box of the tree knows the extremes of
// the points in it, exactly, and of which kinds they are, so that a search can bound what it may find there. A
// point that moves goes to the box where it now belongs; boxes are never widened for it.
//
//	box ─► two boxes, cut at a coordinate, at a rank, or between kinds
//	 └───► leaf: up to LeafSize points, more only if they cannot be told apart
//
// The shape follows the points: a leaf that is full is cut in two, one that is empty goes, two that are
// nearly empty become one. When as many points have moved as there are and it is searched much, the tree is built anew; in
// any case after four times as many.
package kd

// Dims is the number of coordinates of a point.
const Dims = 21

// LeafSize is how many points a leaf has before it is cut in two.
const LeafSize = 16

// Vector is the place of a point.
type Vector [Dims]int64

// Point is one point, in three cache lines. Points that are alike in all coordinates differ in rank, or share a leaf.
type Point struct {
	// Rank orders points that are equal in all coordinates.
	Rank uint64
	// ID identifies the point; ids are dense and not negative.
	ID int32
	// Kind is the equivalence class of the point, for Kinds.
	Kind int32
	// At holds the coordinates.
	At Vector
	_  uint64
}

// Kinds is a set of kinds of points, by number modulo 64: a set that has one may have others with it.
type Kinds uint64

// KindsOf returns the set of one kind.
func KindsOf(kind int32) Kinds { return 1 << (uint32(kind) % 64) }

// Probe rates a box by its kinds and extremes, higher where nothing worth finding can be. The tree is cut
// where that tells most.
type Probe func(kinds Kinds, least, most *Vector) float64

// Tree is a set of points of different ids. The zero value is empty and ready.
type Tree struct {
	// Boxes by number; 0 is none.
	boxes []Box
	free  []int32
	root  int32
	size  int32
	// Where a point is, by its id.
	where []place
	// Points put in since the tree was built.
	puts int32
	// Boxes looked into since then.
	opened int
	// One of the points. In most coordinates all others are as it is.
	base Vector
	// The coordinates in which points differ, and the others.
	live, dead []uint8
	// Arrays for the points of leaves.
	spare [][]Point
	// Room for building.
	points []Point
	order  []int32
	sample []int32
	values []int64
	ranks  []uint64
}

// place is a leaf, 0 for none, and a position in it.
type place struct{ leaf, at int32 }

// Clear takes all points out.
func (t *Tree) Clear() {
	for i := range t.boxes {
		t.empty(&t.boxes[i])
	}
	t.boxes = append(t.boxes[:0], Box{})
	t.free = t.free[:0]
	t.root, t.size = 0, 0
	clear(t.where)
}

// Root returns the box that has all points; 0: there is none. It sets right what boxes say of their points.
func (t *Tree) Root() int32 {
	if t.root != 0 {
		t.freshen(t.root)
	}
	return t.root
}

// Box returns a box by its number. It is good until the tree changes.
func (t *Tree) Box(number int32) *Box { return &t.boxes[number] }

// Has reports whether a point is in the tree.
func (t *Tree) Has(id int32) bool { return int(id) < len(t.where) && t.where[id].leaf != 0 }

// Put puts a point in, or moves it to where it belongs now. It reports whether that changed anything.
func (t *Tree) Put(p *Point, probe Probe) bool {
	t.reach(p.ID)
	if old := t.where[p.ID]; old.leaf != 0 {
		was := &t.boxes[old.leaf].Points[old.at]
		if *was == *p {
			return false
		}
		if was.Kind == p.Kind && was.Rank == p.Rank && t.belongs(old.leaf, p) {
			t.admit(p)
			was.At = p.At
			t.stain(old.leaf)
			if len(t.boxes[old.leaf].Points) > LeafSize { // they were all alike
				t.cutLeaf(old.leaf, probe)
			}
			t.age(probe)
			return true
		}
		t.Remove(p.ID)
	}
	t.insert(p, probe)
	return true
}

// reach makes room for a point's id.
func (t *Tree) reach(id int32) {
	for int(id) >= len(t.where) {
		t.where = append(t.where, make([]place, max(64, len(t.where)))...)
	}
}

// begin makes the tree one of points like this.
func (t *Tree) begin(p *Point) {
	t.puts, t.opened, t.base = 0, 0, p.At
	t.live, t.dead = t.live[:0], t.dead[:0]
	for d := range uint8(Dims) {
		t.dead = append(t.dead, d)
	}
}

// admit notes in which coordinates a point differs. In all boxes there are, they are as in the base, which is
// what the boxes say.
func (t *Tree) admit(p *Point) {
	for i := 0; i < len(t.dead); i++ {
		if d := t.dead[i]; p.At[d] != t.base[d] {
			t.live = append(t.live, d)
			t.dead[i] = t.dead[len(t.dead)-1]
			t.dead = t.dead[:len(t.dead)-1]
			i--
		}
	}
}

// belongs reports whether a point that is in a leaf would be put there again.
func (t *Tree) belongs(leaf int32, p *Point) bool {
	for at := leaf; ; {
		up := t.boxes[at].parent
		if up == 0 {
			return true
		}
		if b := &t.boxes[up]; b.cut().below(p) != (b.Left == at) {
			return false
		}
		at = up
	}
}

// insert puts a point into the leaf where it belongs.
func (t *Tree) insert(p *Point, probe Probe) {
	if t.root == 0 {
		if len(t.boxes) == 0 {
			t.Clear()
		}
		t.root = t.newLeaf(0)
		t.boxes[t.root].Least, t.boxes[t.root].Most = p.At, p.At
		t.begin(p)
	}
	t.admit(p)
	at := t.root
	for !t.boxes[at].Leaf() {
		if b := &t.boxes[at]; b.cut().below(p) {
			at = b.Left
		} else {
			at = b.Right
		}
	}
	t.size++
	t.list(at, p)
	t.stain(at)
	if len(t.boxes[at].Points) > LeafSize {
		t.cutLeaf(at, probe)
	}
	t.age(probe)
}

// stain notes that what a box says is to be set right, and on which side of those above it that is.
func (t *Tree) stain(at int32) {
	if at == 0 {
		return
	}
	t.boxes[at].stale |= itself
	for up := t.boxes[at].parent; up != 0; at, up = up, t.boxes[up].parent {
		b, side := &t.boxes[up], right
		if b.Left == at {
			side = left
		}
		known := b.stale != 0
		if b.stale |= side; known {
			return
		}
	}
}

// list adds a point to a leaf.
func (t *Tree) list(leaf int32, p *Point) {
	b := &t.boxes[leaf]
	if b.Points == nil {
		b.Points = t.array()
	}
	t.where[p.ID] = place{leaf, int32(len(b.Points))}
	b.Points = append(b.Points, *p)
}

// age counts a point that has moved. When all of the points may have, cuts elsewhere would tell more; that is worth
// building the tree anew if it is searched much, and in the end in any case.
func (t *Tree) age(probe Probe) {
	if t.puts++; t.puts > t.size+LeafSize && t.opened > int(t.size) || t.puts > 4*t.size+LeafSize {
		t.Rebuild(probe)
	}
}

// Opened notes that so many boxes have been looked into.
func (t *Tree) Opened(boxes int) { t.opened += boxes }

// Remove takes a point out, if it is in.
func (t *Tree) Remove(id int32) {
	if !t.Has(id) {
		return
	}
	leaf, at := t.where[id].leaf, t.where[id].at
	t.where[id] = place{}
	b := &t.boxes[leaf]
	last := len(b.Points) - 1
	if int(at) < last {
		b.Points[at] = b.Points[last]
		t.where[b.Points[at].ID].at = at
	}
	b.Points = b.Points[:last]
	t.size--
	if last == 0 {
		leaf = t.dropLeaf(leaf)
	} else {
		leaf = t.join(leaf)
	}
	t.stain(leaf)
}

// dropLeaf removes an empty leaf, whose sibling takes the place of their parent, and returns the sibling's
// new parent.
func (t *Tree) dropLeaf(leaf int32) int32 {
	up := t.boxes[leaf].parent
	t.release(leaf)
	if up == 0 {
		t.root = 0
		return 0
	}
	p := &t.boxes[up]
	sibling, over := p.Left+p.Right-leaf, p.parent
	t.boxes[sibling].parent = over
	switch {
	case over == 0:
		t.root = sibling
	case t.boxes[over].Left == up:
		t.boxes[over].Left = sibling
	default:
		t.boxes[over].Right = sibling
	}
	t.release(up)
	return over
}

// join makes one leaf of two that are half empty together, and returns the leaf that is left.
func (t *Tree) join(leaf int32) int32 {
	up := t.boxes[leaf].parent
	if up == 0 {
		return leaf
	}
	p := &t.boxes[up]
	left, right := p.Left, p.Right
	l, r := &t.boxes[left], &t.boxes[right]
	if !l.Leaf() || !r.Leaf() || len(l.Points)+len(r.Points) > LeafSize/2 {
		return leaf
	}
	p.Left, p.Right = 0, 0
	for _, part := range [][]Point{l.Points, r.Points} {
		for i := range part {
			t.list(up, &part[i])
		}
	}
	t.release(left)
	t.release(right)
	return up
}

// freshen sets right what a box and those below it say. It reports whether that has changed.
func (t *Tree) freshen(at int32) bool {
	b := &t.boxes[at]
	was := b.stale
	b.stale = 0
	if b.Leaf() {
		return was != 0 && b.measure(t.live)
	}
	changed := was&itself != 0
	if was&left != 0 {
		changed = t.freshen(b.Left) || changed
	}
	if was&right != 0 {
		changed = t.freshen(b.Right) || changed
	}
	return changed && b.combine(&t.boxes[b.Left], &t.boxes[b.Right], t.live)
}

// newLeaf returns an empty leaf.
func (t *Tree) newLeaf(parent int32) int32 {
	var at int32
	if n := len(t.free); n > 0 {
		at = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		at = int32(len(t.boxes))
		t.boxes = append(t.boxes, Box{})
	}
	t.boxes[at] = Box{parent: parent}
	return at
}

// release gives a box back.
func (t *Tree) release(at int32) {
	t.empty(&t.boxes[at])
	t.free = append(t.free, at)
}

// empty takes the array of a leaf away, to be used again, if it is not an uncommonly large one.
func (t *Tree) empty(b *Box) {
	if cap(b.Points) == leafRoom {
		t.spare = append(t.spare, b.Points[:0])
	}
	b.Points = nil
}

// A leaf has one point too many before it is cut. Arrays are made so many at a time.
const (
	leafRoom = LeafSize + 1
	arrays   = 64
)

// array returns room for the points of a leaf.
func (t *Tree) array() []Point {
	if len(t.spare) == 0 {
		all := make([]Point, arrays*leafRoom)
		for i := range arrays {
			t.spare = append(t.spare, all[i*leafRoom:i*leafRoom:(i+1)*leafRoom])
		}
	}
	last := len(t.spare) - 1
	out := t.spare[last]
	t.spare = t.spare[:last]
	return out
}
