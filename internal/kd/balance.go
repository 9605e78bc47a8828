package kd

import "math/bits"

// This file bounds the depth of the leaves, by the method of I. Galperin and R. L. Rivest, "Scapegoat trees" (SODA
// 1993): when a point comes to a leaf that is too deep, the tree rearranges the smallest box above it that is too deep
// for its number of points. A tree needs that because equally good nodes are chosen in the order of their hashes. Their
// points leave one box and come to another in that order, and each new leaf would be cut from the last one.
//
// The depth of a leaf is the number of boxes above it. The depth below a box is counted from that box.

// maxDepth returns how deep leaves below a box with this many points may be. Most builds make less than two levels for
// each doubling of the points. With a smaller bound, boxes would be rearranged more often; with a larger one, each write
// would change more boxes.
func maxDepth(points int) int { return 3*bits.Len(uint(points/LeafSize)) + spare }

// spare is the part of maxDepth that does not depend on the number of points. Tests make it smaller, so that small trees
// are rearranged too.
var spare = 8

// limit returns how deep the leaves of the tree may be.
func (t *Tree) limit() int { return maxDepth(int(t.size)) + t.excess }

// balance rearranges boxes above the leaf of a point if the leaf is too deep. The tree must own these boxes, and they
// must be marked as stale, as they are after the point has come.
//
// It first hangs boxes in another order, which touches no points. If that does not help it builds the box anew, and if
// that does not help either it goes on with a box of at least twice as many points, so that all of it costs about as
// much as building the largest. If nothing helps, as where many points are equal in nearly all coordinates, the tree may
// be deeper from then on.
func (t *Tree) balance(p *Point, probe Probe) {
	if t.depth(p) <= t.limit() {
		return
	}
	way := extend([]*Box{t.root}, p)
	size, tried := len(way[len(way)-1].Points), 0
	for at := len(way) - 2; at >= 0; at-- {
		b := way[at]
		size += (*b.side(!b.cut().below(p))).count()
		if len(way)-1-at <= maxDepth(size) || at > 0 && size < 2*tried {
			continue
		}
		if rehang(way[at:]); t.isShallow(p, at, size) {
			return
		}
		if t.divide(b, probe); t.isShallow(p, at, size) {
			return
		}
		tried = size
		way = extend(way[:at+1], p)
	}
	t.tolerate(way, p)
}

// isShallow reports whether the leaf of a point is not too deep for the tree, and not too deep for one box above it
// either. That box is at depth at and has this many points.
func (t *Tree) isShallow(p *Point, at, points int) bool {
	depth := t.depth(p)
	return depth <= t.limit() && depth-at <= maxDepth(points)
}

// tolerate raises the limit of the tree after balance could not make the leaf of a point less deep. The new limit lets
// each box on the way to the leaf become as deep as maxDepth allows, unless the box is deeper already. Therefore the
// next call of balance rearranges one of these boxes, which are small, instead of trying the large ones in vain again.
func (t *Tree) tolerate(way []*Box, p *Point) {
	leaf := len(way) - 1
	size, need := len(way[leaf].Points), leaf
	for at := leaf - 1; at >= 0; at-- {
		b := way[at]
		size += (*b.side(!b.cut().below(p))).count()
		if leaf-at <= maxDepth(size) {
			need = max(need, at+maxDepth(size))
		}
	}
	t.excess = max(t.excess, need-maxDepth(int(t.size)))
}

// depth returns the depth of the leaf where a point belongs.
func (t *Tree) depth(p *Point) (depth int) {
	for b := t.root; !b.Leaf(); depth++ {
		b = *b.side(b.cut().below(p))
	}
	return depth
}

// extend appends to a way the boxes that lead from its last box down to the leaf of a point. In a way, each box is
// followed by one of its halves.
func extend(way []*Box, p *Point) []*Box {
	for b := way[len(way)-1]; !b.Leaf(); way = append(way, b) {
		b = *b.side(b.cut().below(p))
	}
	return way
}

// rehang shortens a way that ends at a leaf. Where three or more consecutive boxes are cut in the same dimension, it
// makes a balanced tree of them: their other halves, and the box below them, lie side by side in that dimension, so any
// tree of the cuts between them is right. (A cut between kinds does not put points in an order, so it stays.) The tree
// must own the boxes of the way, and all boxes above must be marked as stale on the side of the way.
func rehang(way []*Box) {
	for len(way) > 1 {
		run := 1
		for !way[run].Leaf() && way[run].cutDim == way[0].cutDim {
			run++
		}
		if run > 2 && way[0].cutDim != byKind {
			hang(way[:run], partsOf(way[:run+1]))
		}
		way = way[run:]
	}
}

// part is one of several boxes that lie side by side in a dimension.
type part struct {
	box  *Box
	size int
	// The cut between this part and the next one on the right; unused in the last part.
	cut uint64
}

// partsOf returns, from left to right, the last box of a way and the halves that are not on the way of all boxes before
// it. These boxes must be cut in one dimension.
func partsOf(way []*Box) (parts []part) {
	last := len(way) - 1
	for i, b := range way[:last] {
		if b.Right == way[i+1] {
			parts = append(parts, part{box: b.Left, size: b.Left.count(), cut: b.cutAt})
		}
	}
	parts = append(parts, part{box: way[last], size: way[last].count()})
	for i := last - 1; i >= 0; i-- {
		if b := way[i]; b.Left == way[i+1] {
			parts[len(parts)-1].cut = b.cutAt
			parts = append(parts, part{box: b.Right, size: b.Right.count()})
		}
	}
	return parts
}

// hang makes a tree of parts, with about half of the points on either side of each cut. It returns the top of the tree.
// For the boxes of the tree, one fewer than there are parts, it uses the first of the given boxes, which must already be
// cut in the dimension of the parts, and it returns the others.
func hang(boxes []*Box, parts []part) (top *Box, rest []*Box) {
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
	top.Left, rest = hang(boxes[1:], parts[:n])
	top.Right, rest = hang(rest, parts[n:])
	return top, rest
}

// count returns the number of points in a box.
func (b *Box) count() int {
	if b.Leaf() {
		return len(b.Points)
	}
	return b.Left.count() + b.Right.count()
}
