package kd

import (
	"math"
	"slices"
)

// Build replaces a tree by one of these points, which it reorders.
func (f *Forest) Build(tree int, points []Point, probe Probe) {
	f.fell(f.trees[tree].root)
	f.trees[tree] = state{}
	if len(points) == 0 {
		return
	}
	for i := range points {
		f.reach(&points[i])
	}
	f.trees[tree].root = f.newLeaf(tree, 0)
	f.grow(f.trees[tree].root, points, probe)
}

// fell gives back a box and all below it.
func (f *Forest) fell(at int32) {
	if at == 0 {
		return
	}
	b := &f.boxes[at]
	for _, id := range b.IDs {
		f.leaf[id] = 0
	}
	left, right := b.Left, b.Right
	f.release(at)
	f.fell(left)
	f.fell(right)
}

// rebuild builds a tree anew from its own points.
func (f *Forest) rebuild(tree int, probe Probe) {
	f.points = f.points[:0]
	f.collect(f.trees[tree].root)
	f.Build(tree, f.points, probe)
}

// collect lists the points below a box.
func (f *Forest) collect(at int32) {
	b := &f.boxes[at]
	if !b.Leaf() {
		left, right := b.Left, b.Right
		f.collect(left)
		f.collect(right)
		return
	}
	for i, id := range b.IDs {
		f.points = append(f.points, Point{At: b.At[i], Rank: b.Ranks[i], ID: id})
	}
}

// grow fills an empty leaf with points, cutting it as often as it takes. It requires at least one point.
func (f *Forest) grow(at int32, points []Point, probe Probe) {
	b := &f.boxes[at]
	b.Size = 0
	for i := range points {
		b.add(&points[i], f.live)
	}
	if len(points) > LeafSize && f.cutBox(at, points, probe) {
		n := f.boxes[at].divide(points)
		left, right := f.boxes[at].Left, f.boxes[at].Right
		f.grow(left, points[:n], probe)
		f.grow(right, points[n:], probe)
		return
	}
	for i := range points {
		p := &points[i]
		b.IDs, b.Ranks, b.At = append(b.IDs, p.ID), append(b.Ranks, p.Rank), append(b.At, p.At)
		f.leaf[p.ID] = at
	}
}

// divide puts the points below the cut first and returns how many they are.
func (b *Box) divide(points []Point) int {
	n := 0
	for i := range points {
		if b.below(&points[i]) {
			points[i], points[n] = points[n], points[i]
			n++
		}
	}
	return n
}

// cutLeaf cuts a full leaf in two, if its points can be told apart.
func (f *Forest) cutLeaf(at int32, probe Probe) {
	f.points = f.points[:0]
	f.collect(at)
	b := &f.boxes[at]
	b.IDs, b.Ranks, b.At = b.IDs[:0], b.Ranks[:0], b.At[:0]
	f.grow(at, f.points, probe)
}

// cutBox makes an inner box of a leaf without points: it chooses a cut that has points on both sides, and
// makes the two parts. It reports false if the points cannot be told apart.
func (f *Forest) cutBox(at int32, points []Point, probe Probe) bool {
	b := &f.boxes[at]
	if dim, cut, ok := f.choose(b, points, probe); ok {
		b.dim, b.cut = uint8(dim), cut
	} else if cut, ok := f.medianRank(points); ok {
		b.dim, b.cutRank = byRank, cut
	} else {
		return false
	}
	tree := int(b.Tree)
	left, right := f.newLeaf(tree, at), f.newLeaf(tree, at)
	b = &f.boxes[at] // they may have moved
	b.Left, b.Right = left, right
	return true
}

// choose finds the coordinate in which a cut tells most: where one of the two parts is rated higher than the
// whole; if none is, the one in which the points lie apart most, relative to their size. The cut is at the
// median.
func (f *Forest) choose(b *Box, points []Point, probe Probe) (dim int, cut int64, ok bool) {
	best, widest, whole := 0.0, 0.0, math.Inf(1)
	if probe != nil {
		whole = probe(int(b.Tree), &b.Least, &b.Most)
	}
	least, most := b.Least, b.Most
	for _, d := range f.live {
		low, high := b.Least[d], b.Most[d]
		if low == high {
			continue
		}
		gain := 0.0
		if !math.IsInf(whole, 1) {
			middle := low + (high-low)/2
			most[d] = middle
			below := probe(int(b.Tree), &b.Least, &most)
			most[d], least[d] = high, middle+1
			above := probe(int(b.Tree), &least, &b.Most)
			least[d] = low
			gain = min(max(below, above)-whole, math.MaxFloat64)
		}
		width := (float64(high) - float64(low)) / max(math.Abs(float64(high)), math.Abs(float64(low)))
		if !ok || gain > best || gain == best && width > widest {
			dim, best, widest, ok = int(d), gain, width, true
		}
	}
	if ok {
		cut = f.median(points, dim, b.Least[dim])
	}
	return dim, cut, ok
}

// sampleSize is how many points are looked at to find a median.
const sampleSize = 31

// median returns a coordinate that divides the points: some are below it, which requires that they are not
// all alike.
func (f *Forest) median(points []Point, d int, least int64) int64 {
	f.sample = f.sample[:0]
	step := max(1, len(points)/sampleSize)
	for i := 0; i < len(points); i += step {
		f.sample = append(f.sample, points[i].At[d])
	}
	slices.Sort(f.sample)
	return max(f.sample[len(f.sample)/2], least+1)
}

// medianRank returns a rank that divides the points; false if they all have the same.
func (f *Forest) medianRank(points []Point) (uint64, bool) {
	f.ranks = f.ranks[:0]
	for i := range points {
		f.ranks = append(f.ranks, points[i].Rank)
	}
	slices.Sort(f.ranks)
	if f.ranks[0] == f.ranks[len(f.ranks)-1] {
		return 0, false
	}
	return max(f.ranks[len(f.ranks)/2], f.ranks[0]+1), true
}
