// Package least keeps items, each with a vector of the least amounts that it asks for, and finds the items that an
// offer serves.
//
//	recent  up to Recent items, in no order
//	trees   of Recent, 2×Recent, 4×Recent … items, at most one of each size, as the bits of a counter are
//	          └─► box ─► two boxes … ─► up to leafSize items; a box knows the least in each coordinate
//
// A removed item stays where it is until its tree is built anew. So adding and removing take a logarithmic number of
// steps on average, in whatever order items come. A search skips each box whose items all ask for more of something
// than is offered.
package least

import "slices"

// Dims is the number of coordinates.
const Dims = 10

// Vector is what an item asks for, and what an offer has.
type Vector [Dims]int64

// Recent is the number of items that are kept without order.
const Recent = 32

// leafSize is the largest number of items in a box that is not divided.
const leafSize = 8

// Set is a set of items. The zero value is empty and ready.
type Set[T any] struct {
	recent []*Item[T]
	trees  []tree[T]
	live   int
	// The number of removed items that are still in trees.
	gone int
}

// Item is one value in a set.
type Item[T any] struct {
	// Value is what was added.
	Value T

	least   Vector
	removed bool
}

// Len returns the number of items.
func (s *Set[T]) Len() int { return s.live }

// Add adds a value that asks for at least this vector, and returns its item, for Remove.
func (s *Set[T]) Add(value T, least Vector) *Item[T] {
	item := &Item[T]{Value: value, least: least}
	s.recent = append(s.recent, item)
	s.live++
	if len(s.recent) >= Recent {
		s.carry()
	}
	return item
}

// Remove removes an item. It must be in the set.
func (s *Set[T]) Remove(item *Item[T]) {
	item.removed = true
	s.live--
	if i := slices.Index(s.recent, item); i >= 0 {
		last := len(s.recent) - 1
		s.recent[i], s.recent[last] = s.recent[last], nil
		s.recent = s.recent[:last]
	} else {
		s.gone++
	}
	if s.gone > s.live+Recent {
		s.rebuild()
	}
}

// carry makes one tree of the recent items and of the trees of the smallest sizes, up to the first size without a tree,
// as a carry in a binary counter does.
func (s *Set[T]) carry() {
	items := s.recent
	s.recent = nil
	level := 0
	for ; level < len(s.trees) && s.trees[level].items != nil; level++ {
		items = s.append(items, level)
	}
	if level == len(s.trees) {
		s.trees = append(s.trees, tree[T]{})
	}
	s.trees[level] = plant(items)
}

// append appends the items of a tree that have not been removed, and empties the tree.
func (s *Set[T]) append(items []*Item[T], level int) []*Item[T] {
	for _, item := range s.trees[level].items {
		if item.removed {
			s.gone--
		} else {
			items = append(items, item)
		}
	}
	s.trees[level] = tree[T]{}
	return items
}

// rebuild makes one tree of all items, of the smallest size that holds them. It drops all removed items.
func (s *Set[T]) rebuild() {
	var items []*Item[T]
	for level := range s.trees {
		items = s.append(items, level)
	}
	s.trees = nil
	if len(items) == 0 {
		return
	}
	level := 0
	for Recent<<level < len(items) {
		level++
	}
	s.trees = make([]tree[T], level+1)
	s.trees[level] = plant(items)
}

// Served appends to out the items that ask for no more than the offer in every coordinate. It also returns the number
// of items and boxes that it has looked at.
func (s *Set[T]) Served(out []*Item[T], offer *Vector) (served []*Item[T], looked int) {
	for _, item := range s.recent {
		if item.least.within(offer) {
			out = append(out, item)
		}
	}
	looked = len(s.recent)
	for i := range s.trees {
		if t := &s.trees[i]; t.items != nil {
			out = t.served(out, offer, 0, 0, len(t.items), &looked)
		}
	}
	return out, looked
}

// tree holds items in the order of its boxes. Box i is divided in the middle into boxes 2i+1 and 2i+2.
type tree[T any] struct {
	items []*Item[T]
	least []Vector
}

// plant builds a tree.
func plant[T any](items []*Item[T]) tree[T] {
	t := tree[T]{items: items}
	t.build(0, 0, len(items))
	return t
}

// build divides the items of a box at the median of the widest coordinate, until boxes are small.
func (t *tree[T]) build(box, from, to int) {
	for len(t.least) <= box {
		t.least = append(t.least, Vector{})
	}
	low, high := t.items[from].least, t.items[from].least
	for _, item := range t.items[from:to] {
		for d, v := range item.least {
			low[d], high[d] = min(low[d], v), max(high[d], v)
		}
	}
	t.least[box] = low
	if to-from <= leafSize {
		return
	}
	widest, width := 0, -1.0
	for d := range low { // widths are relative to the largest amount, because coordinates have different units
		if w := (float64(high[d]) - float64(low[d])) / (float64(high[d]) + 1); w > width {
			widest, width = d, w
		}
	}
	slices.SortFunc(t.items[from:to], func(a, b *Item[T]) int {
		switch {
		case a.least[widest] < b.least[widest]:
			return -1
		case a.least[widest] > b.least[widest]:
			return 1
		}
		return 0
	})
	middle := (from + to) / 2
	t.build(2*box+1, from, middle)
	t.build(2*box+2, middle, to)
}

// served is Served for one box.
func (t *tree[T]) served(out []*Item[T], offer *Vector, box, from, to int, looked *int) []*Item[T] {
	*looked++
	if !t.least[box].within(offer) {
		return out
	}
	if to-from > leafSize {
		middle := (from + to) / 2
		out = t.served(out, offer, 2*box+1, from, middle, looked)
		return t.served(out, offer, 2*box+2, middle, to, looked)
	}
	*looked += to - from
	for _, item := range t.items[from:to] {
		if !item.removed && item.least.within(offer) {
			out = append(out, item)
		}
	}
	return out
}

// within reports whether v is at most o in every coordinate.
func (v *Vector) within(o *Vector) bool {
	for d := range v {
		if v[d] > o[d] {
			return false
		}
	}
	return true
}
