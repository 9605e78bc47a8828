package kd

import (
	"math"
	"slices"
	"sync"
)

// Build replaces all points of the tree.
func (t *Tree) Build(points []Point, probe Probe) {
	t.Clear()
	if len(points) == 0 {
		return
	}
	t.prepare()
	t.begin(&points[0])
	for i := range points {
		t.admit(&points[i])
	}
	t.root, t.size = t.newLeaf(), int32(len(points))
	t.growAll(t.root, points, probe)
}

// Rebuild builds the tree anew from its own points, with cuts that suit them as they are now.
func (t *Tree) Rebuild(probe Probe) {
	if t.root == nil {
		return
	}
	points := t.root.points()
	t.Build(*points, probe)
	recycle(points)
}

// points lists the points in a box, in a slice to give back with recycle.
func (b *Box) points() *[]Point {
	points, _ := collected.Get().(*[]Point)
	if points == nil {
		points = &[]Point{}
	}
	*points = b.collect(slices.Grow((*points)[:0], b.count()))
	return points
}

// collected keeps slices of points for the next call of points. It keeps no large ones: small boxes are divided all the
// time, so a slice for a whole tree, once kept, would never be free to go.
var collected sync.Pool

// recycle gives a slice back that points has returned.
func recycle(points *[]Point) {
	if cap(*points) <= 1024 {
		collected.Put(points)
	}
}

// collect adds the points in a box to a list.
func (b *Box) collect(points []Point) []Point {
	if b.Leaf() {
		return append(points, b.Points...)
	}
	return b.Right.collect(b.Left.collect(points))
}

// cutFull cuts a leaf in two if it has more than LeafSize points and they can be told apart. It reports whether it has
// tried to. The box must be marked as stale itself.
func (t *Tree) cutFull(b *Box, probe Probe) bool {
	if len(b.Points) <= LeafSize {
		return false
	}
	t.divide(b, probe)
	return true
}

// divide cuts a box anew. The tree must own it, and the boxes above must be marked as stale on its side. The box keeps
// its old extremes, because those of the boxes above were computed from them, and freshen compares the new ones with
// them.
func (t *Tree) divide(b *Box, probe Probe) {
	said := *b
	points := b.points()
	if !b.Leaf() {
		t.releaseAll(b.Left)
		t.releaseAll(b.Right)
		b.Left, b.Right = nil, nil
	}
	t.empty(b)
	t.growAll(b, *points, probe)
	recycle(points)
	b.Rank, b.Kinds, b.Least, b.Most = said.Rank, said.Kinds, said.Least, said.Most
	b.stale = itself // the new boxes below are up to date
}

// growAll turns an empty leaf into a box with all these points.
func (t *Tree) growAll(b *Box, points []Point, probe Probe) {
	order := t.room.order[:0]
	for i := range points {
		order = append(order, int32(i))
	}
	t.room.order = order
	t.grow(b, points, order, probe)
}

// grow turns an empty leaf into a box with some of the points, at least one. It cuts the box as often as necessary.
func (t *Tree) grow(b *Box, points []Point, some []int32, probe Probe) {
	b.Version = t.nextVersion()
	if len(some) > LeafSize {
		if c, ok := t.choose(b, points, some, probe); ok {
			b.cutDim, b.cutAt = c.dim, c.at
			n := c.divide(points, some)
			b.Left, b.Right = t.newLeaf(), t.newLeaf()
			t.grow(b.Left, points, some[:n], probe)
			t.grow(b.Right, points, some[n:], probe)
			b.Least, b.Most = b.Left.Least, b.Left.Most
			b.combine(b.Left, b.Right, t.alive())
			return
		}
	}
	for _, i := range some {
		t.list(b, &points[i])
	}
	b.Least, b.Most = b.Points[0].At, b.Points[0].At
	b.measure(t.alive())
}

// divide moves the points below the cut to the front and returns how many there are.
func (c cut) divide(points []Point, some []int32) int {
	n := 0
	for i, at := range some {
		if c.below(&points[at]) {
			some[i], some[n] = some[n], at
			n++
		}
	}
	return n
}

// sampleSize is about how many points are read to choose a cut.
const sampleSize = 31

// choose finds a cut of a box that leaves points on both sides. It cuts where a sample shows the largest gain for
// searches; points that are equal in all coordinates are cut by rank or hash. It reports false if the points cannot be
// told apart.
func (t *Tree) choose(b *Box, points []Point, some []int32, probe Probe) (cut, bool) {
	c, ok := t.chooseBy(b, points, t.pick(some, max(1, len(some)/sampleSize)), probe)
	if !ok && len(some) > sampleSize { // all points of the sample are equal, but others may differ
		c, ok = t.chooseBy(b, points, some, probe)
	}
	if ok {
		return c, true
	}
	return t.rankCut(points, some)
}

// pick returns every step-th point.
func (t *Tree) pick(some []int32, step int) []int32 {
	t.room.sample = t.room.sample[:0]
	for i := 0; i < len(some); i += step {
		t.room.sample = append(t.room.sample, some[i])
	}
	return t.room.sample
}

// chooseBy finds the cut with the largest gain for a sample of points; between equal gains it takes the widest
// coordinate. It overwrites the extremes of the box with those of the sample. The caller sets them again.
func (t *Tree) chooseBy(b *Box, points []Point, sample []int32, probe Probe) (cut, bool) {
	b.Kinds = 0
	b.Least, b.Most = points[sample[0]].At, points[sample[0]].At
	for _, i := range sample {
		b.widen(&points[i], t.alive())
	}
	whole := math.Inf(1)
	if probe != nil {
		whole = probe(b.Kinds, &b.Least, &b.Most)
	}
	best, widest, dim, part := -1.0, 0.0, -1, 0.5
	for _, d := range t.alive() {
		low, high := b.Least[d], b.Most[d]
		if low == high {
			continue
		}
		gain, good := b.gain(d, whole, probe)
		width := (float64(high) - float64(low)) / max(math.Abs(float64(high)), math.Abs(float64(low)))
		if gain > best || gain == best && width > widest {
			dim, best, widest, part = int(d), gain, width, good
		}
	}
	if c, gain := b.kindCut(points, sample, whole, probe); gain > best {
		return c, true
	}
	if dim < 0 {
		return cut{}, false
	}
	return cut{dim: uint8(dim), at: uint64(t.quantile(points, sample, dim, b.Least[dim], part))}, true
}

// goodPart is the part of the points that go to the half which the probe rates better. It is less than half, because
// searches go there, and a smaller box takes less searching.
const goodPart = 0.35

// gain returns by how much one half of a box is rated worse (higher) than the whole, if the box is cut in the middle of
// a coordinate; and which part of the points should be below the cut.
func (b *Box) gain(d uint8, whole float64, probe Probe) (gain, part float64) {
	if math.IsInf(whole, 0) {
		return 0, 0.5
	}
	low, high := b.Least[d], b.Most[d]
	middle := low + int64(uint64(high-low)/2)
	b.Most[d] = middle
	below := probe(b.Kinds, &b.Least, &b.Most)
	b.Most[d], b.Least[d] = high, middle+1
	above := probe(b.Kinds, &b.Least, &b.Most)
	b.Least[d] = low
	switch gain = min(max(below, above, whole)-whole, math.MaxFloat64); {
	case below < above:
		return gain, goodPart
	case above < below:
		return gain, 1 - goodPart
	}
	return gain, 0.5
}

// quantile returns a coordinate that has about this part of the sample below it, and at least one point. The points of
// the sample must not all be at the least.
func (t *Tree) quantile(points []Point, sample []int32, d int, least int64, part float64) int64 {
	t.room.values = t.room.values[:0]
	for _, i := range sample {
		t.room.values = append(t.room.values, points[i].At[d])
	}
	slices.Sort(t.room.values)
	return max(t.room.values[int(part*float64(len(t.room.values)))], least+1)
}

// A cut between kinds pays only if at most one in fewOf points has one of the best kinds. Without such a cut nearly all
// boxes contain all kinds, and the few best points bound the rating of all boxes: so a search has to open nearly all of
// them.
const fewOf = 4

// kindCut finds a cut between the best kinds, which are rated like the whole box because they determine its rating, and
// all other kinds, which are rated worse (higher). The gain is the smallest difference in rating; it is -1 if there is
// no such cut, or if too many points have one of the best kinds.
func (b *Box) kindCut(points []Point, sample []int32, whole float64, probe Probe) (c cut, gain float64) {
	if math.IsInf(whole, 1) || b.Kinds&(b.Kinds-1) == 0 {
		return c, -1
	}
	c.dim, gain = byKind, math.Inf(1)
	for rest := b.Kinds; rest != 0; rest &= rest - 1 {
		kind := rest & -rest
		if rated := probe(kind, &b.Least, &b.Most); rated > whole {
			gain = min(gain, rated-whole)
		} else {
			c.at |= uint64(kind)
		}
	}
	if c.at == 0 || c.at == uint64(b.Kinds) {
		return c, -1
	}
	n := 0
	for _, i := range sample {
		if c.below(&points[i]) {
			n++
		}
	}
	if n > len(sample)/fewOf {
		return c, -1
	}
	return c, min(gain, math.MaxFloat64)
}

// rankCut finds a cut by rank or by hash; false: all points have the same.
func (t *Tree) rankCut(points []Point, some []int32) (c cut, ok bool) {
	ranks := t.room.ranks[:0]
	c.dim = byRank
	for _, i := range some {
		if t.ByHash {
			c.dim = byHash
			ranks = append(ranks, points[i].Hash)
		} else {
			ranks = append(ranks, points[i].Rank)
		}
	}
	t.room.ranks = ranks
	slices.Sort(ranks)
	if ranks[0] == ranks[len(ranks)-1] {
		return c, false
	}
	c.at = max(ranks[len(ranks)/2], ranks[0]+1)
	return c, true
}
