package kd

import "github.com/orbitsched/orbit/internal/cow"

// This file manages the memory of a tree: which boxes it may write to, copies of boxes that it shares with other trees,
// and boxes and arrays to reuse.

// room is memory that a tree reuses: boxes and arrays that it has released, and buffers for building.
type room struct {
	boxes  []*Box
	arrays [][]Point
	order  []int32
	sample []int32
	values []int64
	ranks  []uint64
}

// prepare gives the tree an owner and memory of its own, before the first write.
func (t *Tree) prepare() {
	if t.owner == 0 {
		t.owner = cow.NewOwner()
	}
	if t.room == nil {
		t.room = &room{}
	}
}

// own returns the box at a position for writing. If other trees may have the box too, a copy first replaces it in this
// tree.
func (t *Tree) own(at **Box) *Box {
	b := *at
	if b.owner == t.owner {
		return b
	}
	t.copied++
	c := t.newLeaf()
	*c = *b
	c.owner = t.owner
	if b.Leaf() {
		c.Points = append(t.array(), b.Points...)
	}
	*at = c
	return c
}

// newLeaf returns an empty leaf.
func (t *Tree) newLeaf() *Box {
	last := len(t.room.boxes) - 1
	if last < 0 {
		return &Box{owner: t.owner}
	}
	b := t.room.boxes[last]
	t.room.boxes = t.room.boxes[:last]
	*b = Box{owner: t.owner}
	return b
}

// release keeps a box for reuse, if it is in this tree alone.
func (t *Tree) release(b *Box) {
	if b.owner != t.owner {
		return
	}
	t.empty(b)
	b.Left, b.Right = nil, nil
	t.room.boxes = append(t.room.boxes, b)
}

// empty detaches the array of a leaf and keeps it for reuse, if it has the usual size and is in this tree alone.
func (t *Tree) empty(b *Box) {
	if cap(b.Points) == leafRoom && b.owner == t.owner {
		t.room.arrays = append(t.room.arrays, b.Points[:0])
	}
	b.Points = nil
}

// leafRoom is the capacity of a leaf's array, 16 points, which fill a size class of the allocator. Before a leaf is cut it
// has one point too many for a moment.
const leafRoom = LeafSize + 1

// array returns an empty array for the points of a leaf.
func (t *Tree) array() []Point {
	last := len(t.room.arrays) - 1
	if last < 0 {
		return make([]Point, 0, leafRoom)
	}
	out := t.room.arrays[last]
	t.room.arrays = t.room.arrays[:last]
	return out
}

// releaseAll releases a box and all boxes below it that are in this tree alone. Below a box that other trees may have
// it need not look, because they have everything below that box as well.
func (t *Tree) releaseAll(b *Box) {
	if b.owner != t.owner {
		return
	}
	if !b.Leaf() {
		t.releaseAll(b.Left)
		t.releaseAll(b.Right)
	}
	t.release(b)
}
