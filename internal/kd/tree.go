// Package kd keeps points with integer coordinates in a k-d tree. Each box of the tree has the exact extremes of its
// points in each coordinate, and the set of their kinds, so that a search can bound what it may find in the box. A
// point that moves goes to the box where it now belongs; a box is never widened to keep it.
//
//	box ─► two boxes, cut at a coordinate, at a rank, or between kinds
//	 └───► leaf: up to LeafSize points, more only if they cannot be told apart
//
// The shape follows the points: a full leaf is cut in two, an empty leaf is removed, two nearly empty leaves become one,
// and boxes above a leaf that has become too deep are rearranged. When as many points have moved as there are, Age
// builds the tree anew if searches open many boxes; when four times as many have moved, it does so in any case.
//
// Trees are persistent (copy-on-write): [Tree.Fork] takes no time, and makes two independent trees of one. A tree
// writes in place to the boxes that it has made since, and copies other boxes, with all boxes above them, before it
// changes them.
package kd

import "github.com/orbitsched/orbit/internal/cow"

// Dims is the number of coordinates of a point.
const Dims = 24

// LeafSize is the largest number of points in a leaf, except if the points cannot be told apart.
const LeafSize = 15

// Vector has the coordinates of a point.
type Vector [Dims]int64

// Point is one point, in four cache lines. Points that are equal in all coordinates differ in rank or hash, or else
// share a leaf.
type Point struct {
	// Rank orders points that are equal in all coordinates.
	Rank uint64
	// ID identifies the point; ids are not negative.
	ID int32
	// Kind is the equivalence class of the point, a number for [KindsOf].
	Kind int32
	// At holds the coordinates.
	At Vector
	// Hash is an alternative to Rank, see [Tree.ByHash].
	Hash uint64
	_    [5]uint64
}

// Kinds is a set of kinds of points, with one bit for each number modulo 64. Kinds 64 apart share a bit, so a set may
// hold more kinds than were added, but never fewer.
type Kinds uint64

// Apart is the number of kinds that a set tells apart: kinds below it share no bit.
const Apart = 64

// KindsOf returns the set of one kind.
func KindsOf(kind int32) Kinds { return 1 << (uint32(kind) % Apart) }

// Probe rates a box by its kinds and extremes. A higher rating means that the box is less worth searching. The tree is
// cut where the ratings of the two parts differ most.
type Probe func(kinds Kinds, least, most *Vector) float64

// Tree is a set of points with different ids. The zero value is empty and ready.
type Tree struct {
	// ByHash makes the tree cut points that are equal in all coordinates by Hash instead of Rank. Set it if searches
	// choose among equal points by Hash: the points that such a search finds in a row are then in the same boxes.
	ByHash bool
	// Nil: there are no points.
	root *Box
	size int32
	// The number of points put in or moved since the tree was built.
	puts int32
	// The number of boxes that searches have opened since then.
	opened int
	// How much deeper than maxDepth leaves may be, because the points cannot be divided better.
	excess int
	// The coordinates of one of the points. In the coordinates that are not live, all other points equal it.
	base Vector
	// All coordinates: first the live ones, in which points differ, then those in which all points equal base. Only
	// live coordinates are measured.
	dims [Dims]uint8
	live int
	// The boxes with this owner are in this tree alone; 0: no box is.
	owner cow.Owner
	// The last version given to a box, and the number of boxes copied.
	version uint64
	copied  int
	// Memory to reuse; nil in a tree that has not been written to.
	room *room
}

// Fork returns a second tree with the same points. Later changes of one tree do not show in the other.
func (t *Tree) Fork() Tree {
	t.Root()
	t.owner, t.version = 0, 0
	f := *t
	f.room, f.copied = nil, 0
	return f
}

// Clear removes all points.
func (t *Tree) Clear() {
	if t.owner != 0 && t.root != nil {
		t.releaseAll(t.root)
	}
	t.root, t.size = nil, 0
}

// Size returns the number of points.
func (t *Tree) Size() int { return int(t.size) }

// Copied returns how many boxes this tree has copied because another may have them, too.
func (t *Tree) Copied() int { return t.copied }

// Root returns the box with all points; nil: there are no points. It first brings the numbers of changed boxes up to
// date.
func (t *Tree) Root() *Box {
	if t.root != nil {
		t.freshen(t.root)
	}
	return t.root
}

// Has reports whether a point is in the tree.
func (t *Tree) Has(p *Point) bool {
	if t.root == nil {
		return false
	}
	b := t.root
	for !b.Leaf() {
		b = *b.side(b.cut().below(p))
	}
	at := b.find(p.ID)
	return at >= 0 && b.Points[at] == *p
}

// Put adds a point. It must not be in the tree.
func (t *Tree) Put(p *Point, probe Probe) {
	t.prepare()
	if t.root == nil {
		t.root = t.newLeaf()
		t.root.Least, t.root.Most = p.At, p.At
		t.begin(p)
	}
	t.admit(p)
	t.size++
	t.puts++
	if t.insert(&t.root, p, probe) {
		t.balance(p, probe)
	}
}

// Move replaces a point of the tree by the same point with other values. It reports whether they differ.
func (t *Tree) Move(was, p *Point, probe Probe) bool {
	if *was == *p {
		return false
	}
	t.prepare()
	t.admit(p)
	var above *Box
	for at := &t.root; ; {
		b := t.own(at)
		if b.Leaf() {
			b.Points[b.find(p.ID)] = *p
			b.stale |= itself
			t.cutFull(b, probe) // a leaf of equal points may be too large, and can be cut now that one differs
			break
		}
		from, to := b.cut().below(was), b.cut().below(p)
		if from != to {
			b.stale |= left | right
			cut := t.insert(b.side(to), p, probe) // before takeOut, which may put this side in the place of b
			t.takeOut(above, at, from, was)
			if cut {
				t.balance(p, probe)
			}
			break
		}
		b.stain(to)
		above, at = b, b.side(to)
	}
	t.puts++
	return true
}

// Remove removes a point. It must be in the tree.
func (t *Tree) Remove(was *Point) {
	t.prepare()
	t.size--
	b := t.own(&t.root)
	if !b.Leaf() {
		below := b.cut().below(was)
		b.stain(below)
		t.takeOut(nil, &t.root, below, was)
		return
	}
	b.stale |= itself
	if b.drop(was.ID); len(b.Points) == 0 {
		t.release(b)
		t.root = nil
	}
}

// insert adds a point to the leaf below a box where the point belongs. It reports whether it has cut the leaf; then the
// tree may need balance.
func (t *Tree) insert(at **Box, p *Point, probe Probe) (cut bool) {
	b := t.own(at)
	for !b.Leaf() {
		below := b.cut().below(p)
		b.stain(below)
		b = t.own(b.side(below))
	}
	b.stale |= itself
	t.list(b, p)
	return t.cutFull(b, probe)
}

// takeOut removes a point from one side of a box that the tree owns. If the leaf is empty then, it is removed, and its
// sibling takes the place of their parent. Otherwise the leaf is joined with a sibling leaf if both together are at
// most half full.
func (t *Tree) takeOut(above *Box, at **Box, below bool, was *Point) {
	b := *at
	part := t.own(b.side(below))
	for !part.Leaf() {
		above, at, b = b, b.side(below), part
		below = b.cut().below(was)
		b.stain(below)
		part = t.own(b.side(below))
	}
	part.stale |= itself
	if part.drop(was.ID); len(part.Points) > 0 {
		t.join(b)
		return
	}
	if above != nil {
		above.stale |= itself
	}
	*at = *b.side(!below)
	t.release(part)
	t.release(b)
}

// join makes one leaf of the two parts of a box, if both are leaves and together at most half full.
func (t *Tree) join(b *Box) {
	l, r := b.Left, b.Right
	if !l.Leaf() || !r.Leaf() || len(l.Points)+len(r.Points) > LeafSize/2 {
		return
	}
	b.Left, b.Right = nil, nil
	b.stale = itself
	for _, part := range []*Box{l, r} {
		for i := range part.Points {
			t.list(b, &part.Points[i])
		}
		t.release(part)
	}
}

// begin starts a tree with its first point: base is its coordinates, and no coordinate is live yet.
func (t *Tree) begin(p *Point) {
	t.puts, t.opened, t.base, t.live, t.excess = 0, 0, p.At, 0, 0
	for d := range uint8(Dims) {
		t.dims[d] = d
	}
}

// admit makes each coordinate live in which a new point differs from base. Existing boxes need no correction: all their
// points equal base in that coordinate, and so do their extremes.
func (t *Tree) admit(p *Point) {
	for i := t.live; i < Dims; i++ {
		if d := t.dims[i]; p.At[d] != t.base[d] {
			t.dims[i], t.dims[t.live] = t.dims[t.live], d
			t.live++
		}
	}
}

// alive returns the live coordinates.
func (t *Tree) alive() []uint8 { return t.dims[:t.live] }

// list adds a point to a leaf.
func (t *Tree) list(b *Box, p *Point) {
	if b.Points == nil {
		b.Points = t.array()
	}
	b.Points = append(b.Points, *p)
}

// Age builds the tree anew if as many points have been added or moved as there are, so that other cuts would divide them
// better, and searches have opened many boxes; or if four times as many have been moved, in any case. Call it after a
// batch of changes. A fork that lives only for a few searches need not. Age reports whether it has built the tree anew.
func (t *Tree) Age(probe Probe) bool {
	aged := t.puts > t.size+LeafSize && t.opened > int(t.size) || t.puts > 4*t.size+LeafSize
	if aged {
		t.Rebuild(probe)
	}
	return aged
}

// Opened adds to the number of boxes that searches of this tree, or of forks of it, have opened.
func (t *Tree) Opened(boxes int) { t.opened += boxes }

// freshen brings the numbers of a box, and of the boxes below it, up to date. It reports whether the extremes, the rank
// or the kinds have changed.
func (t *Tree) freshen(b *Box) bool {
	was := b.stale
	if was == 0 {
		return false
	}
	b.stale, b.Version = 0, t.nextVersion()
	if b.Leaf() {
		return b.measure(t.alive())
	}
	changed := was&itself != 0
	if was&left != 0 {
		changed = t.freshen(b.Left) || changed
	}
	if was&right != 0 {
		changed = t.freshen(b.Right) || changed
	}
	return changed && b.combine(b.Left, b.Right, t.alive())
}

// versionRun is the number of versions that a tree reserves at once, from a number that no other tree has.
const versionRun = 1 << 24

// nextVersion returns a number that no box of any tree has had.
func (t *Tree) nextVersion() uint64 {
	if t.version%versionRun == 0 {
		t.version = uint64(cow.NewOwner()) * versionRun
	}
	t.version++
	return t.version
}
