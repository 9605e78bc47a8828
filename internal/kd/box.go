package kd

import "github.com/orbitsched/orbit/internal/cow"

// Box is a set of points. A leaf lists its points; any other box divides them between two boxes. Its numbers (Rank,
// Kinds, Least, Most, Version) are exact once [Tree.Root] has been called after the last change. A box that several
// trees share never changes.
//
// It takes eight cache lines. The first coordinate of Least lies at the end of a line, and the next eight fill the line
// after it; the same holds for Most. So a search that reads the first nine coordinates of Least, and the eight after
// the first of Most, reads two lines of Least and one of Most.
type Box struct {
	// Rank is the smallest rank of the box's points.
	Rank uint64
	// Kinds is the union of the kinds of the box's points.
	Kinds Kinds
	// Left and Right are the two halves; both are nil in a leaf.
	Left, Right *Box
	// The tree that may write to the box.
	owner cow.Owner
	// Where the box is cut: points below the cut are on the left.
	cutAt  uint64
	cutDim uint8
	// What is outdated. If anything is, then the boxes above have the side of this box marked.
	stale stale
	// Least is the smallest value of the box's points in each coordinate.
	Least Vector
	// Most is the largest value of the box's points in each coordinate.
	Most Vector
	// Version is different in every box of every tree, and changes with every change of the points in the box or below
	// it.
	Version uint64
	// Points are the points of a leaf; empty in every other box.
	Points []Point
	_      [5]uint64
}

// stale says which numbers are outdated: those of the box itself, because its points or its parts have changed, or
// those of boxes below it on the left or on the right. Zero: none.
type stale uint8

const (
	itself stale = 1 << iota
	left
	right
)

// Leaf reports whether the box lists its points.
func (b *Box) Leaf() bool { return b.Left == nil }

// side returns the left half of a box, where points below the cut are, or the right half.
func (b *Box) side(below bool) **Box {
	if below {
		return &b.Left
	}
	return &b.Right
}

// stain marks a half as outdated.
func (b *Box) stain(below bool) {
	if below {
		b.stale |= left
	} else {
		b.stale |= right
	}
}

// find returns the position of a point in a leaf, -1 if it is not there.
func (b *Box) find(id int32) int {
	for i := range b.Points {
		if b.Points[i].ID == id {
			return i
		}
	}
	return -1
}

// drop takes a point out of a leaf.
func (b *Box) drop(id int32) {
	last := len(b.Points) - 1
	if at := b.find(id); at != last {
		b.Points[at] = b.Points[last]
	}
	b.Points = b.Points[:last]
}

// cut divides points in two: at a coordinate; with a dimension beyond the last one, at a rank or a hash; or between
// kinds.
type cut struct {
	dim uint8
	// A coordinate, a rank, a hash, or a set of kinds.
	at uint64
}

const (
	byRank = Dims + iota
	byHash
	byKind
)

// cut returns where an inner box is cut.
func (b *Box) cut() cut { return cut{b.cutDim, b.cutAt} }

// below reports whether a point belongs on the left.
func (c cut) below(p *Point) bool {
	switch c.dim {
	case byRank:
		return p.Rank < c.at
	case byHash:
		return p.Hash < c.at
	case byKind:
		return uint64(KindsOf(p.Kind))&c.at != 0
	}
	return p.At[c.dim] < int64(c.at)
}

// widen extends the extremes and kinds of a box to include a point.
func (b *Box) widen(p *Point, live []uint8) {
	b.Kinds |= KindsOf(p.Kind)
	for _, d := range live {
		if v := p.At[d]; v < b.Least[d] {
			b.Least[d] = v
		} else if v > b.Most[d] {
			b.Most[d] = v
		}
	}
}

// measure computes the numbers of a leaf from its points. It reports whether they have changed.
func (b *Box) measure(live []uint8) bool {
	rank, kinds := b.Points[0].Rank, Kinds(0)
	for i := range b.Points {
		rank = min(rank, b.Points[i].Rank)
		kinds |= KindsOf(b.Points[i].Kind)
	}
	changed := rank != b.Rank || kinds != b.Kinds
	b.Rank, b.Kinds = rank, kinds
	for _, d := range live {
		least := b.Points[0].At[d]
		most := least
		for i := 1; i < len(b.Points); i++ {
			v := b.Points[i].At[d]
			least, most = min(least, v), max(most, v)
		}
		changed = b.set(d, least, most) || changed
	}
	return changed
}

// set sets the extremes of one coordinate. It reports whether they have changed.
func (b *Box) set(d uint8, least, most int64) bool {
	if least == b.Least[d] && most == b.Most[d] {
		return false
	}
	b.Least[d], b.Most[d] = least, most
	return true
}

// combine computes the numbers of a box from those of its two parts. It reports whether they have changed.
func (b *Box) combine(l, r *Box, live []uint8) bool {
	rank, kinds := min(l.Rank, r.Rank), l.Kinds|r.Kinds
	changed := rank != b.Rank || kinds != b.Kinds
	b.Rank, b.Kinds = rank, kinds
	for _, d := range live {
		changed = b.set(d, min(l.Least[d], r.Least[d]), max(l.Most[d], r.Most[d])) || changed
	}
	return changed
}
