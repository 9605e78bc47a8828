package kd

import (
	"math"
	"slices"
)

// Build replaces all points by these, which it reorders.
func (t *Tree) Build(points []Point, probe Probe) {
	t.Clear()
	if len(points) == 0 {
		return
	}
	t.begin(&points[0])
	for i := range points {
		t.reach(points[i].ID)
		t.admit(&points[i])
	}
	t.root = t.newLeaf(0)
	t.grow(t.root, points, probe)
}

// collect lists the points below a box.
func (t *Tree) collect(points []Point, at int32) []Point {
	b := &t.boxes[at]
	if b.Leaf() {
		return append(points, b.Points...)
	}
	return t.collect(t.collect(points, b.Left), b.Right)
}

// cutLeaf cuts a full leaf in two, if its points can be told apart.
func (t *Tree) cutLeaf(at int32, probe Probe) {
	t.points = t.collect(t.points[:0], at)
	t.boxes[at].Points = t.boxes[at].Points[:0]
	t.grow(at, t.points, probe)
}

// grow fills an empty leaf with points, cutting it as often as it takes. It requires at least one point.
func (t *Tree) grow(at int32, points []Point, probe Probe) {
	b := &t.boxes[at]
	b.Size, b.Kinds = 0, 0
	for i := range points {
		b.add(&points[i], t.live)
	}
	if len(points) > LeafSize {
		if c, ok := t.choose(b, points, probe); ok {
			b.cut = c
			n := c.divide(points)
			left, right := t.newLeaf(at), t.newLeaf(at)
			t.boxes[at].Left, t.boxes[at].Right = left, right
			t.grow(left, points[:n], probe)
			t.grow(right, points[n:], probe)
			return
		}
	}
	for i := range points {
		t.list(at, &points[i])
	}
}

// divide puts the points below the cut first and returns how many they are.
func (c *cut) divide(points []Point) int {
	n := 0
	for i := range points {
		if c.below(&points[i]) {
			points[i], points[n] = points[n], points[i]
			n++
		}
	}
	return n
}

// choose finds a cut of a box with points on both sides: in the coordinate where it tells most, and if they are
// alike in all, by rank. It reports false if the points cannot be told apart.
func (t *Tree) choose(b *Box, points []Point, probe Probe) (cut, bool) {
	best, widest, dim := -1.0, 0.0, -1
	whole := math.Inf(1)
	if probe != nil {
		whole = probe(b.Kinds, &b.Least, &b.Most)
	}
	for _, d := range t.live {
		low, high := b.Least[d], b.Most[d]
		if low == high {
			continue
		}
		gain := b.gain(d, whole, probe)
		width := (float64(high) - float64(low)) / max(math.Abs(float64(high)), math.Abs(float64(low)))
		if gain > best || gain == best && width > widest {
			dim, best, widest = int(d), gain, width
		}
	}
	if c, gain := t.kindCut(b, points, whole, probe); gain > best {
		return c, true
	}
	if dim < 0 {
		return t.rankCut(points)
	}
	return cut{dim: uint8(dim), at: t.median(points, dim, b.Least[dim])}, true
}

// gain is by how much one half of a box is rated higher than the whole, if it is cut in the middle.
func (b *Box) gain(d uint8, whole float64, probe Probe) float64 {
	if math.IsInf(whole, 1) {
		return 0
	}
	low, high := b.Least[d], b.Most[d]
	middle := low + int64(uint64(high-low)/2)
	b.Most[d] = middle
	below := probe(b.Kinds, &b.Least, &b.Most)
	b.Most[d], b.Least[d] = high, middle+1
	above := probe(b.Kinds, &b.Least, &b.Most)
	b.Least[d] = low
	return min(max(below, above)-whole, math.MaxFloat64)
}

// sampleSize is how many points are looked at to find a median.
const sampleSize = 31

// median returns a coordinate that divides the points: some are below it, which requires that they are not
// all alike.
func (t *Tree) median(points []Point, d int, least int64) int64 {
	t.sample = t.sample[:0]
	step := max(1, len(points)/sampleSize)
	for i := 0; i < len(points); i += step {
		t.sample = append(t.sample, points[i].At[d])
	}
	slices.Sort(t.sample)
	return max(t.sample[len(t.sample)/2], least+1)
}

// A cut between kinds pays where few of the points are worth finding: boxes with all kinds in them would show
// a search the best of each, and nearly always keep it waiting.
const fewOf = 4

// kindCut finds a cut between the kinds that are rated as the whole is, because they make it what it is, and
// those that are rated higher, and what it gains. It gains nothing if the former are not few.
func (t *Tree) kindCut(b *Box, points []Point, whole float64, probe Probe) (c cut, gain float64) {
	if math.IsInf(whole, 1) || b.Kinds&(b.Kinds-1) == 0 {
		return c, -1
	}
	c.dim, gain = byKind, math.Inf(1)
	for rest := b.Kinds; rest != 0; rest &= rest - 1 {
		kind := rest & -rest
		if rated := probe(kind, &b.Least, &b.Most); rated > whole {
			gain = min(gain, rated-whole)
		} else {
			c.kinds |= kind
		}
	}
	if c.kinds == b.Kinds {
		return c, -1
	}
	n := 0
	for i := range points {
		if c.below(&points[i]) {
			n++
		}
	}
	if n == 0 || n > len(points)/fewOf {
		return c, -1
	}
	return c, min(gain, math.MaxFloat64)
}

// rankCut divides points by rank; false if they all have the same.
func (t *Tree) rankCut(points []Point) (c cut, ok bool) {
	t.ranks = t.ranks[:0]
	for i := range points {
		t.ranks = append(t.ranks, points[i].Rank)
	}
	slices.Sort(t.ranks)
	if t.ranks[0] == t.ranks[len(t.ranks)-1] {
		return c, false
	}
	return cut{dim: byRank, rank: max(t.ranks[len(t.ranks)/2], t.ranks[0]+1)}, true
}
