package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// frontier is a best-first search of the box index for one class. Its heap has boxes with a bound of the scores in them,
// nodes with a bound of their score, and nodes with their score. When a node with its score is first, no other node can
// be better, and the search ends.
//
// When the same class is asked for again, the search continues where it ended. Nodes that have changed meanwhile are
// added one by one, and what the heap has of them from before is ignored; boxes stay as they were.
type frontier struct {
	class *specClass
	// The kinds of nodes that the class may use.
	kinds kd.Kinds
	heap  candidateHeap

	// Counts since the last Sync: searches begun, choices made without expanding a box, boxes expanded, nodes rated.
	searches, hits, boxes, rated int
}

// candidate is a box, the rest of a leaf, or a node, with a lower bound of its scores.
type candidate struct {
	value, tie float64
	rank       uint64
	// The index's clock when this was computed; a node that has changed since is ignored.
	clock uint64
	// The number of a box, or the index of a node.
	at    int32
	stage stage
}

// stage says what a candidate is. Among equals the less precise stage comes first, because a better node may be in it.
type stage uint8

const (
	boxStage stage = iota
	// A leaf whose nodes are added already as far as they come before this candidate.
	restStage
	nodeStage
	ratedStage
)

// before orders candidates by their bounds.
func (c *candidate) before(o *candidate) bool {
	switch {
	case c.value != o.value:
		return c.value < o.value
	case c.tie != o.tie:
		return c.tie < o.tie
	}
	return c.rank < o.rank
}

// begin starts a search over all boxes.
func (f *frontier) begin(c *specClass, x *boxIndex) {
	f.class, f.heap.list = c, f.heap.list[:0]
	f.heap.draft = x.rater.draft
	f.searches++
	c.respond(x)
	f.kinds = c.kinds(x)
	if root := x.tree.Root(); root != 0 {
		var c candidate
		if f.boundBox(&c, root, x) {
			f.heap.push(&c)
		}
	}
	for _, slot := range c.exceptions {
		f.rate(slot, x)
	}
}

// rate adds a node to which the bounds of the class do not apply, with its score.
func (f *frontier) rate(slot int32, x *boxIndex) {
	f.rated++
	n := x.rater.node(slot)
	if value, tie, ok := x.rater.rate(n, f.class.spec, f.class.near); ok {
		f.heap.push(&candidate{value: value, tie: tie, rank: x.ranks[slot], clock: x.clock, at: slot, stage: ratedStage})
	}
}

// boundBox makes a candidate of a box. It reports false if no node in the box can fit.
func (f *frontier) boundBox(c *candidate, number int32, x *boxIndex) (ok bool) {
	b := x.tree.Box(number)
	c.value, c.tie, ok = f.class.bound(b.Kinds&f.kinds, (*score.Extent)(&b.Least), (*score.Extent)(&b.Most))
	c.rank, c.at = b.Rank, number
	return ok
}

// add adds a node that has changed.
func (f *frontier) add(slot int32, x *boxIndex) {
	n := x.rater.node(slot)
	if n == nil {
		return
	}
	if x.kinds.labels.excepts(n.Node, f.class.spec) {
		f.rate(slot, x)
		return
	}
	p, c := x.point(n), candidate{}
	if f.boundNode(&c, &p, x) {
		f.heap.push(&c)
	}
}

// boundNode makes a candidate of a node from its totals. It reports false if the node cannot fit.
func (f *frontier) boundNode(c *candidate, p *kd.Point, x *boxIndex) bool {
	kindBound, at := f.class.byKind[p.Kind], (*score.Extent)(&p.At)
	if kindBound == notSuited || f.kinds&kd.KindsOf(p.Kind) == 0 || !f.class.mayFit(at) {
		return false
	}
	c.value, c.tie = f.class.bounds[kindBound].least(at, at)
	c.rank, c.at, c.clock, c.stage = p.Rank, p.ID, x.clock, nodeStage
	return true
}

// next returns the best node; nil: none. It reports false if the search does not converge: it has looked into so many
// boxes and nodes that rating all nodes once is the cheaper way.
func (f *frontier) next(x *boxIndex, r *rater) (best orbit.Choice, ok bool) {
	hit, before := 1, f.boxes
	defer func() { x.tree.Opened(f.boxes - before) }()
	limit := f.boxes + f.rated + x.live/searchedPart + 4*scanBelow
	for len(f.heap.list) > 0 {
		if f.boxes+f.rated > limit {
			f.class = nil
			return best, false
		}
		top := &f.heap.list[0]
		switch top.stage {
		case boxStage:
			hit = 0
			f.expand(f.heap.pop().at, x)
		case restStage:
			from := f.heap.pop()
			f.addRest(&from, x)
		case nodeStage:
			f.evaluate(top, x, r)
		case ratedStage:
			if top.clock >= x.changed[top.at] {
				f.hits += hit
				return orbit.Choice{Node: x.rater.node(top.at), Value: top.value, Tie: top.tie}, true
			}
			f.heap.pop()
		}
	}
	return best, true
}

// searchedPart is the part of all nodes that a search may look at for one choice: looking at one in order costs several
// times as much as rating one of all.
const searchedPart = 16

// expand replaces a box by what is in it. It expands the better half at once as long as that is better than the first of
// the heap, which saves putting it there.
func (f *frontier) expand(number int32, x *boxIndex) {
	var parts [2]candidate
	for {
		f.boxes++
		b := x.tree.Box(number)
		if b.Leaf() {
			f.addBest(number, x)
			return
		}
		better, other := &parts[0], &parts[1]
		ok, too := f.boundBox(better, b.Left, x), f.boundBox(other, b.Right, x)
		switch {
		case !ok && !too:
			return
		case !ok:
			better = other
		case too:
			if other.before(better) {
				better, other = other, better
			}
			f.heap.push(other)
		}
		if len(f.heap.list) > 0 && f.heap.list[0].before(better) {
			f.heap.push(better)
			return
		}
		number = better.at
	}
}

// addBest adds the best node of a leaf, and one candidate for all others: most searches need no more than the best.
func (f *frontier) addBest(leaf int32, x *boxIndex) {
	var all [3]candidate
	best, next, c := &all[0], &all[1], &all[2]
	found, settled := 0, len(x.moved) == 0
	points := x.tree.Box(leaf).Points
	for i := range points {
		p := &points[i]
		if !settled && x.isMoved[p.ID] || !f.boundNode(c, p, x) { // those that have changed are added one by one
			continue
		}
		switch found++; {
		case found == 1 || c.before(best):
			best, next, c = c, best, next
		case found == 2 || c.before(next):
			next, c = c, next
		}
	}
	if found > 0 {
		f.heap.push(best)
	}
	if found > 1 {
		next.at, next.stage = leaf, restStage
		f.heap.push(next)
	}
}

// addRest adds the nodes of a leaf from this candidate on.
func (f *frontier) addRest(from *candidate, x *boxIndex) {
	points := x.tree.Box(from.at).Points
	for i := range points {
		var c candidate
		if p := &points[i]; !x.isMoved[p.ID] && f.boundNode(&c, p, x) && !c.before(from) {
			f.heap.push(&c)
		}
	}
}

// evaluate rates the first candidate, a node of which only the bound is known.
func (f *frontier) evaluate(top *candidate, x *boxIndex, r *rater) {
	if top.clock < x.changed[top.at] {
		f.heap.pop()
		return
	}
	f.rated++
	n, spec := x.rater.node(top.at), f.class.spec
	value, tie, ok := r.rate(n, spec, f.class.near) // the bound knew the totals only
	if !ok {
		f.heap.pop()
		return
	}
	c := *top
	c.value, c.tie, c.stage = value, tie, ratedStage
	f.heap.down(c)
}

// candidateHeap is a heap of candidates, the best first.
type candidateHeap struct {
	list  []candidate
	draft *orbit.Draft
}

// before orders candidates. Nodes of equal rank, which is an accident, go by id.
func (h *candidateHeap) before(a, b *candidate) bool {
	switch {
	case a.value != b.value:
		return a.value < b.value
	case a.tie != b.tie:
		return a.tie < b.tie
	case a.rank != b.rank:
		return a.rank < b.rank
	case a.stage != b.stage:
		return a.stage < b.stage
	}
	return a.stage == ratedStage && h.draft.Node(int(a.at)).Node.ID < h.draft.Node(int(b.at)).Node.ID
}

func (h *candidateHeap) push(c *candidate) {
	h.list = append(h.list, *c)
	i := len(h.list) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.before(c, &h.list[up]) {
			break
		}
		h.list[i] = h.list[up]
		i = up
	}
	h.list[i] = *c
}

func (h *candidateHeap) pop() candidate {
	first, last := h.list[0], len(h.list)-1
	c := h.list[last]
	h.list = h.list[:last]
	if last > 0 {
		h.down(c)
	}
	return first
}

// down replaces the first candidate by another, and restores the heap.
func (h *candidateHeap) down(c candidate) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h.list) {
			break
		}
		if child+1 < len(h.list) && h.before(&h.list[child+1], &h.list[child]) {
			child++
		}
		if !h.before(&h.list[child], &c) {
			break
		}
		h.list[i] = h.list[child]
		i = child
	}
	h.list[i] = c
}
