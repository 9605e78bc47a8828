package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
)

// front is a search of the box index for one class, best first. Boxes wait with a bound of what is in them,
// nodes with a bound of their own, and those that have been looked at with their score. When one of the
// latter comes first, nothing else can be better: it is the answer.
//
// The search goes on from where it stopped when the same class is asked for again. Nodes that have changed
// since are looked at one by one, and what was known of them is void; the boxes stay as they are meanwhile.
type front struct {
	class *specClass
	// Of which nodes may be.
	kinds kd.Kinds
	heap  frontHeap

	// Since the last Sync.
	searches, hits, boxes, rated int
}

// candidate is a box, the rest of a leaf or a node, with the best that it can be.
type candidate struct {
	value, tie float64
	rank       uint64
	// When this was computed.
	clock uint64
	// A box, or a node's index.
	at    int32
	stage stage
}

// stage is what is known of a candidate. At equal bounds what is known less goes first.
type stage uint8

const (
	boxStage stage = iota
	// A leaf of which the nodes before this candidate have been added.
	restStage
	nodeStage
	ratedStage
)

// before orders candidates by what they can be.
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
func (f *front) begin(c *specClass, x *boxIndex) {
	f.class, f.heap.list = c, f.heap.list[:0]
	f.heap.draft = x.rater.draft
	f.searches++
	c.respond(x)
	f.kinds = c.kinds(x)
	if root := x.tree.Root(); root != 0 {
		var c candidate
		if f.weigh(&c, root, x) {
			f.heap.push(&c)
		}
	}
	for _, slot := range c.exceptions {
		f.rate(slot, x)
	}
}

// rate adds a node to which the bounds of the class do not apply, with its score.
func (f *front) rate(slot int32, x *boxIndex) {
	f.rated++
	n := x.rater.node(slot)
	if value, tie, ok := x.rater.rate(n, f.class.spec, f.class.near); ok {
		f.heap.push(&candidate{value: value, tie: tie, rank: x.ranks[slot], clock: x.clock, at: slot, stage: ratedStage})
	}
}

// weigh makes a candidate of a box; false: nothing in it fits.
func (f *front) weigh(c *candidate, number int32, x *boxIndex) (ok bool) {
	b := x.tree.Box(number)
	c.value, c.tie, ok = f.class.bound(b.Kinds&f.kinds, (*orbit.Extent)(&b.Least), (*orbit.Extent)(&b.Most))
	c.rank, c.at = b.Rank, number
	return ok
}

// consider adds a node that has changed.
func (f *front) consider(slot int32, x *boxIndex) {
	n := x.rater.node(slot)
	if n == nil {
		return
	}
	if x.kinds.labels.excepts(n.Node, f.class.spec) {
		f.rate(slot, x)
		return
	}
	p, c := x.point(n), candidate{}
	if f.node(&c, &p, x) {
		f.heap.push(&c)
	}
}

// node makes a candidate of a node; false: it does not fit.
func (f *front) node(c *candidate, p *kd.Point, x *boxIndex) bool {
	response, at := f.class.byKind[p.Kind], (*orbit.Extent)(&p.At)
	if response == notSuited || f.kinds&kd.KindsOf(p.Kind) == 0 || !f.class.mayFit(at) {
		return false
	}
	c.value, c.tie = f.class.responses[response].least(at, at)
	c.rank, c.at, c.clock, c.stage = p.Rank, p.ID, x.clock, nodeStage
	return true
}

// next returns the best node; nil: none. It reports false if the search does not converge: it has looked into so many
// boxes and nodes that rating all nodes once is the cheaper way.
func (f *front) next(x *boxIndex, r *rater) (best orbit.Choice, ok bool) {
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
			f.open(f.heap.pop().at, x)
		case restStage:
			from := f.heap.pop()
			f.listRest(&from, x)
		case nodeStage:
			f.look(top, x, r)
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

// open replaces a box by what is in it. It goes on with the better part of a box at once as long as nothing
// that waits is better still.
func (f *front) open(number int32, x *boxIndex) {
	var parts [2]candidate
	for {
		f.boxes++
		b := x.tree.Box(number)
		if b.Leaf() {
			f.list(number, x)
			return
		}
		better, other := &parts[0], &parts[1]
		ok, too := f.weigh(better, b.Left, x), f.weigh(other, b.Right, x)
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

// list adds the best node of a leaf and, in the place of the others, what is left. Most searches ask for no more.
func (f *front) list(leaf int32, x *boxIndex) {
	var all [3]candidate
	best, next, c := &all[0], &all[1], &all[2]
	found, settled := 0, len(x.moved) == 0
	points := x.tree.Box(leaf).Points
	for i := range points {
		p := &points[i]
		if !settled && x.isMoved[p.ID] || !f.node(c, p, x) { // those that have changed are added one by one
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

// listRest adds the nodes of a leaf that do not come before a candidate.
func (f *front) listRest(from *candidate, x *boxIndex) {
	points := x.tree.Box(from.at).Points
	for i := range points {
		var c candidate
		if p := &points[i]; !x.isMoved[p.ID] && f.node(&c, p, x) && !c.before(from) {
			f.heap.push(&c)
		}
	}
}

// look rates the first candidate, a node of which only a bound is known.
func (f *front) look(top *candidate, x *boxIndex, r *rater) {
	if top.clock < x.changed[top.at] {
		f.heap.pop()
		return
	}
	f.rated++
	n, spec := x.rater.node(top.at), f.class.spec
	value, tie, ok := r.rate(n, spec, f.class.near) // so far room and devices were judged by totals only
	if !ok {
		f.heap.pop()
		return
	}
	c := *top
	c.value, c.tie, c.stage = value, tie, ratedStage
	f.heap.down(c)
}

// frontHeap is a heap of candidates, the best first.
type frontHeap struct {
	list  []candidate
	draft *orbit.Draft
}

// before orders candidates. Nodes of equal rank, which is an accident, go by id.
func (h *frontHeap) before(a, b *candidate) bool {
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

func (h *frontHeap) push(c *candidate) {
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

func (h *frontHeap) pop() candidate {
	first, last := h.list[0], len(h.list)-1
	c := h.list[last]
	h.list = h.list[:last]
	if last > 0 {
		h.down(c)
	}
	return first
}

// down puts a candidate in the place of the first, and then where it belongs.
func (h *frontHeap) down(c candidate) {
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
