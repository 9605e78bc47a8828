// Package cow has persistent tables: copies share structure, and a writer copies only what it does not own.
//
// Ownership is a number. Every piece of a table carries the number of the writer that made it. A writer
// changes what carries its own number in place and copies everything else first. To freeze a table, copy the
// struct and give the writer a new number ([NewOwner]): from then on it owns nothing and the copy never
// changes. Reading a frozen copy needs no lock.
package cow

import (
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Owner identifies one writer between two freezes. The zero Owner owns nothing.
type Owner uint64

var owners atomic.Uint64

// NewOwner returns a number that no other writer in this process has.
func NewOwner() Owner { return Owner(owners.Add(1)) }

// Array is a persistent sparse array of T: a radix tree over the index. The first write after a freeze copies one node
// on each level, however many elements there are. T is copied as a whole on the lowest level; it should be a small Go
// array of records. Dropped elements give their memory back. The zero value is empty.
//
//	root ── 5 bits of the index ──► node ── 5 bits ──► node ── 5 bits ──► leaf (T)
//
// Nodes of all levels have one type for every T, so that the code that walks them is compiled once. Therefore pointers
// to them are untyped, and the height says to which type they point.
type Array[T any] struct {
	// A *node, on height 0 a *leaf[T]; nil: there are no elements.
	root unsafe.Pointer
	// The number of levels of nodes above the leaves.
	height uint8
}

const (
	fanBits = 5
	fan     = 1 << fanBits
)

type node struct {
	owner Owner
	// One bit for each kid that exists.
	live uint32
	// One bit for each kid of which all elements are marked as full.
	full uint32
	// Nodes of the level below, *leaf[T] on the lowest.
	kids [fan]unsafe.Pointer
}

type leaf[T any] struct {
	owner Owner
	value T
}

// At returns element i for reading, nil if it does not exist.
func (a *Array[T]) At(i uint32) *T {
	l := (*leaf[T])(a.find(i))
	if l == nil {
		return nil
	}
	return &l.value
}

// find returns leaf i, nil if it does not exist.
func (a *Array[T]) find(i uint32) unsafe.Pointer {
	p, shift := a.root, a.height*fanBits
	if i>>shift != 0 {
		return nil
	}
	for shift > 0 && p != nil {
		shift -= fanBits
		p = (*node)(p).kids[i>>shift%fan]
	}
	return p
}

// Own returns element i for writing by o: a copy if o does not own it, and a zero element if it does not exist.
func (a *Array[T]) Own(i uint32, o Owner) *T {
	if l := (*leaf[T])(a.find(i)); l != nil && l.owner == o { // then o owns the path to the leaf as well
		return &l.value
	}
	return a.ownPath(i, o)
}

// ownPath copies all nodes on the path to element i that o does not own, and makes those that are missing.
func (a *Array[T]) ownPath(i uint32, o Owner) *T {
	for i>>(a.height*fanBits) != 0 {
		a.lift(o)
	}
	at := &a.root
	for shift := a.height * fanBits; shift > 0; {
		shift -= fanBits
		n := ownNode(at, o)
		n.live |= 1 << (i >> shift % fan)
		at = &n.kids[i>>shift%fan]
	}
	l := &leaf[T]{owner: o}
	if was := (*leaf[T])(*at); was != nil {
		l.value = was.value
	}
	*at = unsafe.Pointer(l)
	return &l.value
}

// ownNode makes the node at a pointer writable for o: it replaces the node by a copy if o does not own it, and makes
// one if there is none.
func ownNode(at *unsafe.Pointer, o Owner) *node {
	n := (*node)(*at)
	switch {
	case n == nil:
		n = &node{owner: o}
	case n.owner != o:
		own := *n
		own.owner = o
		n = &own
	default:
		return n
	}
	*at = unsafe.Pointer(n)
	return n
}

// lift adds a level on top.
func (a *Array[T]) lift(o Owner) {
	if a.root != nil {
		top := &node{owner: o, live: 1}
		top.kids[0] = a.root
		if a.height > 0 && (*node)(a.root).full == math.MaxUint32 {
			top.full = 1
		}
		a.root = unsafe.Pointer(top)
	}
	a.height++
}

// Drop removes element i. It also removes nodes that become empty, and levels at the top whose only kid is the first.
func (a *Array[T]) Drop(i uint32, o Owner) {
	if a.At(i) == nil {
		return
	}
	dropFrom(&a.root, a.height, i, o)
	for a.height > 1 && a.root != nil && (*node)(a.root).live == 1 {
		a.root = (*node)(a.root).kids[0]
		a.height--
	}
	if a.root == nil {
		a.height = 0
	}
}

// dropFrom removes element i from a subtree. It reports whether the subtree is empty then.
func dropFrom(at *unsafe.Pointer, height uint8, i uint32, o Owner) bool {
	if height > 0 {
		n, kid := ownNode(at, o), i>>((height-1)*fanBits)%fan
		n.full &^= 1 << kid
		if !dropFrom(&n.kids[kid], height-1, i, o) {
			return false
		}
		if n.live &^= 1 << kid; n.live != 0 {
			return false
		}
	}
	*at = nil
	return true
}

// MarkFull marks element i as full or not, for NotFull. The element must exist.
func (a *Array[T]) MarkFull(i uint32, full bool, o Owner) {
	if a.height == 0 {
		a.lift(o)
	}
	markFull(&a.root, a.height, i, full, o)
}

// markFull marks an element in a subtree. It reports whether all elements of the subtree are full then.
func markFull(at *unsafe.Pointer, height uint8, i uint32, full bool, o Owner) bool {
	n, kid := ownNode(at, o), i>>((height-1)*fanBits)%fan
	if height > 1 {
		full = markFull(&n.kids[kid], height-1, i, full, o)
	}
	n.full &^= 1 << kid
	if full {
		n.full |= 1 << kid
	}
	return n.full == math.MaxUint32
}

// NotFull returns the lowest index, from a given one on, of an element that is not marked as full. An element that does
// not exist is not full.
func (a *Array[T]) NotFull(from uint32) uint32 {
	if from>>(a.height*fanBits) != 0 {
		return from
	}
	if i, ok := notFull(a.root, a.height, from); ok {
		return i
	}
	return 1 << (a.height * fanBits)
}

// notFull is NotFull in a subtree, with indices relative to its first; false: all elements from there on are full.
func notFull(p unsafe.Pointer, height uint8, from uint32) (uint32, bool) {
	if p == nil || height == 0 {
		return from, true
	}
	n, shift := (*node)(p), (height-1)*fanBits
	first := from >> shift
	for open := ^n.full &^ (1<<first - 1); open != 0; open &= open - 1 {
		kid := uint32(bits.TrailingZeros32(open))
		if kid > first {
			from = 0
		}
		if i, ok := notFull(n.kids[kid], height-1, from&(1<<shift-1)); ok {
			return kid<<shift | i, true
		}
	}
	return 0, false
}

// All yields the elements that exist, in the order of their indices.
func (a *Array[T]) All(yield func(uint32, *T) bool) { allOf(a.root, a.height, 0, yield) }

func allOf[T any](p unsafe.Pointer, height uint8, base uint32, yield func(uint32, *T) bool) bool {
	if p == nil {
		return true
	}
	if height == 0 {
		return yield(base, &(*leaf[T])(p).value)
	}
	n := (*node)(p)
	for live := n.live; live != 0; live &= live - 1 {
		kid := bits.TrailingZeros32(live)
		if !allOf(n.kids[kid], height-1, base<<fanBits|uint32(kid), yield) {
			return false
		}
	}
	return true
}

// Diff yields the elements that are not identical (the same memory) in an older array, as they were and as they are, in
// the order of their indices; nil stands for an element that does not exist. It visits only what the two arrays do not
// share. So it costs about as much as was written since one was copied from the other, however large they are.
func (a *Array[T]) Diff(older *Array[T], yield func(i uint32, was, now *T) bool) {
	diff(subtree{older.root, older.height}, subtree{a.root, a.height}, 0, yield)
}

// subtree is a node with everything below it, and its height.
type subtree struct {
	root   unsafe.Pointer
	height uint8
}

// diff compares two subtrees that begin at the same index. They may differ in height, because arrays grow and shrink at
// the top.
func diff[T any](was, now subtree, base uint32, yield func(uint32, *T, *T) bool) bool {
	height := max(was.height, now.height)
	switch {
	case was == now || was.root == nil && now.root == nil:
		return true
	case height == 0:
		return yield(base, valueOf[T](was.root), valueOf[T](now.root))
	}
	for live := was.live(height) | now.live(height); live != 0; live &= live - 1 {
		kid := bits.TrailingZeros32(live)
		if !diff(was.kid(kid, height), now.kid(kid, height), base<<fanBits|uint32(kid), yield) {
			return false
		}
	}
	return true
}

// live returns the bits of the kids of a subtree, as if it had the given height, which is not less than its own: a
// lower subtree is then the first kid.
func (s subtree) live(height uint8) uint32 {
	switch {
	case s.root == nil:
		return 0
	case s.height < height:
		return 1
	}
	return (*node)(s.root).live
}

// kid returns a kid of the subtree, as live counts them.
func (s subtree) kid(kid int, height uint8) subtree {
	switch {
	case s.root == nil || s.height < height && kid > 0:
		return subtree{}
	case s.height < height:
		return s
	}
	return subtree{(*node)(s.root).kids[kid], s.height - 1}
}

func valueOf[T any](p unsafe.Pointer) *T {
	if p == nil {
		return nil
	}
	return &(*leaf[T])(p).value
}
