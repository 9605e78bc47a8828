package kd

import "math/bits"

// This file keeps the number of levels of a tree low.

// deepest returns how many levels there may be below a box with this many points. A build makes fewer than two for each
// doubling of the points. With a lower bound than this the tree would be balanced more often; with a higher one each
// write would change more boxes.
func deepest(points int) int { return 3*bits.Len(uint(points/LeafSize)) + spare }

// spare is the number of levels that small trees may have in addition. Tests of small trees lower it.
var spare = 8

// allowed returns on which level below the root the lowest leaf may be.
func (t *Tree) allowed() int { return deepest(int(t.size)) + t.excess }

// balance brings a point to a higher level if its leaf is too low. It changes the smallest box above the leaf that has
// too many levels for its points, and larger ones as long as that does not help (Galperin and Rivest, "Scapegoat trees",
// SODA 1993). Without this, nodes that are chosen in the order of their hashes, as equally good ones are, and move away
// to other boxes one by one, would turn the tree into a list.
func (t *Tree) balance(p *Point, probe Probe) {
	if t.level(p) <= t.allowed() {
		return
	}
	way := extend(append(t.room.way[:0], t.root), p)
	t.room.way = way
	size := len(way[len(way)-1].Points)
	for at := len(way) - 2; at >= 0; at-- {
		b := way[at]
		size += (*b.side(!b.cut().below(p))).count()
		if len(way)-1-at <= deepest(size) {
			continue
		}
		if rehang(way[at:]); t.level(p) <= t.allowed() {
			return
		}
		if t.divide(b, probe); t.level(p) <= t.allowed() {
			return
		}
		way = extend(way[:at+1], p)
	}
	t.excess += t.level(p) - t.allowed() // the points cannot be divided better; do not try again for each that comes
}

// extend goes on from the last box of a way to the leaf where a point belongs.
func extend(way []*Box, p *Point) []*Box {
	for b := way[len(way)-1]; !b.Leaf(); way = append(way, b) {
		b = *b.side(b.cut().below(p))
	}
	return way
}

// rehang makes a way from a box down to a leaf shorter without dividing points anew. Where boxes in a row are cut in the
// same dimension, what hangs on them lies side by side in that dimension, so it can hang on a balanced tree of these
// boxes as well. The tree must own the boxes, and the boxes above must be marked as stale on their side.
func rehang(way []*Box) {
	for len(way) > 1 {
		run := 1
		for !way[run].Leaf() && way[run].cutDim == way[0].cutDim {
			run++
		}
		if run > 2 && way[0].cutDim != byKind {
			hangAll(way[:run], hungOn(way[:run+1]))
		}
		way = way[run:]
	}
}

// hung is a box that hangs on others, and the cut between it and the box on its right.
type hung struct {
	box  *Box
	size int
	cut  uint64
}

// hungOn lists what hangs on the boxes of a way but for the last, from left to right. The last box of the way is among
// that.
func hungOn(way []*Box) (parts []hung) {
	last := len(way) - 1
	for i, b := range way[:last] {
		if b.Right == way[i+1] {
			parts = append(parts, hung{box: b.Left, size: b.Left.count(), cut: b.cutAt})
		}
	}
	parts = append(parts, hung{box: way[last], size: way[last].count()})
	for i := last - 1; i >= 0; i-- {
		if b := way[i]; b.Left == way[i+1] {
			parts[len(parts)-1].cut = b.cutAt
			parts = append(parts, hung{box: b.Right, size: b.Right.count()})
		}
	}
	return parts
}

// hangAll hangs parts on boxes, one fewer than there are parts: all of them on the first box, so that about half of the
// points are on either side of its cut, and so on below it. It returns the first box, or the only part, and the boxes
// that it has not used.
func hangAll(boxes []*Box, parts []hung) (top *Box, rest []*Box) {
	if len(parts) == 1 {
		return parts[0].box, boxes
	}
	all := 0
	for i := range parts {
		all += parts[i].size
	}
	n, below := 1, parts[0].size
	for n < len(parts)-1 && 2*below+parts[n].size <= all {
		below += parts[n].size
		n++
	}
	top = boxes[0]
	top.cutAt, top.stale = parts[n-1].cut, itself|left|right
	top.Left, rest = hangAll(boxes[1:], parts[:n])
	top.Right, rest = hangAll(rest, parts[n:])
	return top, rest
}

// level returns the level of the leaf where a point belongs; the root is on level 0.
func (t *Tree) level(p *Point) (level int) {
	for b := t.root; !b.Leaf(); level++ {
		b = *b.side(b.cut().below(p))
	}
	return level
}

// count returns the number of points in a box.
func (b *Box) count() int {
	if b.Leaf() {
		return len(b.Points)
	}
	return b.Left.count() + b.Right.count()
}
