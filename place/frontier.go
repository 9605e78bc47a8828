package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/herd"
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
	// The kinds of nodes that the class may use, and the only district of the class in which they may be; wholeCountry: any.
	kinds    kd.Kinds
	district int16
	// A heap, the best first.
	heap  []candidate
	draft *orbit.Draft
	ties  *ties
	// Into how many parts the nodes are divided, and where on the ring boxes begin. A node of an earlier part is better.
	parts int
	ring  *leastHashes
	// The boxes that candidates are.
	seen []*kd.Box
	// Where add makes a point, which a bound may refer to, so that it would take memory of its own each time.
	point kd.Point

	counts frontierCounts
}

// frontierCounts are counts since the last Sync: searches begun, choices made without expanding a box, boxes expanded, nodes rated.
type frontierCounts struct{ searches, hits, boxes, rated int }

// candidate is a box, the rest of a leaf, or a node, with a lower bound of its scores.
type candidate struct {
	value, tie float64
	rank       uint64
	// The index's clock when this was computed; a node that has changed since is ignored.
	clock uint64
	// The position of a box in those seen, or the index of a node.
	at    int32
	part  int16
	stage stage
	// The rank is not known yet; it is not needed unless another candidate is equal in everything else.
	unranked bool
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
func (f *frontier) before(c, o *candidate) bool {
	switch {
	case c.part != o.part:
		return c.part < o.part
	case c.value != o.value:
		return c.value < o.value
	case c.tie != o.tie:
		return c.tie < o.tie
	}
	return f.rank(c) < f.rank(o)
}

// rank is what breaks ties for a candidate.
func (f *frontier) rank(c *candidate) uint64 {
	if c.unranked {
		c.rank, c.unranked = f.ties.least(f.seen[c.at]), false
	}
	return c.rank
}

// begin starts a search of these kinds over all boxes. Nodes that are not in the tree as they are now are added one by one.
func (f *frontier) begin(c *specClass, x *boxIndex, district int16, kinds kd.Kinds) {
	clear(f.seen) // of trees that are no more
	f.class, f.heap, f.seen = c, f.heap[:0], f.seen[:0]
	f.district, f.kinds = district, kinds
	f.draft = x.rater.draft
	if f.ties == nil {
		f.ties, f.ring = &ties{}, &leastHashes{}
	}
	f.ties.begin(x.rater.seed, x.nodes.live)
	if f.parts = x.rater.parts; f.parts > 1 {
		f.ring.begin(x.rater.from, x.nodes.live)
	}
	f.counts.searches++
	if root := x.nodes.tree.Root(); root != nil {
		var c candidate
		if f.boundBox(&c, root) {
			f.push(&c)
		}
	}
	for _, slot := range c.exceptions {
		f.rate(slot, x)
	}
	for _, slot := range x.moved.list {
		f.add(slot, x)
	}
}

// rate adds a node to which the bounds of the class do not apply, with its score.
func (f *frontier) rate(slot int32, x *boxIndex) {
	m := x.nodes.at(slot)
	if !f.covers(m.kind) {
		return
	}
	f.counts.rated++
	n := x.rater.node(slot)
	if p, ok := x.rater.rate(n, f.class.spec, &f.class.near); ok {
		f.push(&candidate{value: p.own, tie: p.tie, rank: f.ties.of(m.number, m.hash), clock: x.clock, at: slot, part: f.part(m.hash - f.ring.from), stage: ratedStage})
	}
}

// covers reports whether nodes of a kind are in the district that is searched.
func (f *frontier) covers(kind int32) bool {
	return f.district == wholeCountry || f.class.districtOf[kind] == f.district
}

// boundBox makes a candidate of a box. It reports false if no node in the box can fit.
func (f *frontier) boundBox(c *candidate, b *kd.Box) (ok bool) {
	c.value, c.tie, ok = f.class.bound(b.Kinds&f.kinds, (*score.Extent)(&b.Least), (*score.Extent)(&b.Most))
	c.rank, c.unranked = b.Rank, f.ties.seed != 0
	if ok {
		c.part = 0
		if f.parts > 1 {
			c.part = f.part(f.ring.least(b))
		}
		c.at = int32(len(f.seen))
		f.seen = append(f.seen, b)
	}
	return ok
}

// add adds a node that has changed.
func (f *frontier) add(slot int32, x *boxIndex) {
	n := x.rater.node(slot)
	if n == nil {
		return
	}
	if x.nodes.labels.excepts(n.Node, f.class.spec) {
		f.rate(slot, x)
		return
	}
	f.point = x.nodes.point(n)
	var c candidate
	if f.boundNode(&c, &f.point, x) {
		f.push(&c)
	}
}

// boundNode makes a candidate of a node from its totals. It reports false if the node cannot fit.
func (f *frontier) boundNode(c *candidate, p *kd.Point, x *boxIndex) bool {
	kindBound, at := f.class.byKind[p.Kind], (*score.Extent)(&p.At)
	if kindBound == notSuited || f.kinds&kd.KindsOf(p.Kind) == 0 || !f.covers(p.Kind) || !f.class.mayFit(at) {
		return false
	}
	c.value, c.tie = f.class.bounds[kindBound].least(at, at)
	c.rank, c.at, c.clock, c.stage, c.unranked = f.ties.of(p.Rank, p.Hash), p.ID, x.clock, nodeStage, false
	c.part = f.part(p.Hash - f.ring.from)
	return true
}

// part is the part in which a place on the ring is.
func (f *frontier) part(at uint64) int16 {
	if f.parts <= 1 {
		return 0
	}
	return int16(herd.Part(f.parts, 0, at))
}

// next returns the best node by its own value; nil: none. It reports false if the search does not converge: it has looked into so many
// boxes and nodes that rating all nodes once is the cheaper way.
func (f *frontier) next(x *boxIndex, r *rater) (best pick, ok bool) {
	hit, before := 1, f.counts.boxes
	defer func() { x.nodes.tree.Opened(f.counts.boxes - before) }()
	limit := f.counts.boxes + f.counts.rated + x.nodes.live/searchedPart + 4*scanBelow
	for len(f.heap) > 0 {
		if f.counts.boxes+f.counts.rated > limit {
			f.class = nil
			return best, false
		}
		top := &f.heap[0]
		switch top.stage {
		case boxStage:
			hit = 0
			f.expand(f.seen[f.pop().at], x)
		case restStage:
			from := f.pop()
			f.addRest(&from, x)
		case nodeStage:
			f.evaluate(top, x, r)
		case ratedStage:
			if top.clock >= x.changedAt(top.at) && f.class.near.opens(x.rater.node(top.at).Node) {
				f.counts.hits += hit
				return pick{node: x.rater.node(top.at), value: top.value, own: top.value, tie: top.tie}, true
			}
			f.pop()
		}
	}
	return best, true
}

// searchedPart is the part of all nodes that a search may look at for one choice: looking at one in order costs several
// times as much as rating one of all.
const searchedPart = 16

// expand replaces a box by what is in it. It expands the better half at once as long as that is better than the first of
// the heap, which saves putting it there.
func (f *frontier) expand(b *kd.Box, x *boxIndex) {
	var parts [2]candidate
	for {
		f.counts.boxes++
		if b.Leaf() {
			f.addBest(b, x)
			return
		}
		better, other := &parts[0], &parts[1]
		ok, too := f.boundBox(better, b.Left), f.boundBox(other, b.Right)
		switch {
		case !ok && !too:
			return
		case !ok:
			better = other
		case too:
			if f.before(other, better) {
				better, other = other, better
			}
			f.push(other)
		}
		if len(f.heap) > 0 && f.before(&f.heap[0], better) {
			f.push(better)
			return
		}
		b = f.seen[better.at]
	}
}

// addBest adds the best node of a leaf, and one candidate for all others: most searches need no more than the best.
func (f *frontier) addBest(leaf *kd.Box, x *boxIndex) {
	var all [3]candidate
	best, next, c := &all[0], &all[1], &all[2]
	found, settled := 0, len(x.moved.list) == 0
	points := leaf.Points
	for i := range points {
		p := &points[i]
		if !settled && x.moved.has(p.ID) || !f.boundNode(c, p, x) { // those that have changed are added one by one
			continue
		}
		switch found++; {
		case found == 1 || f.before(c, best):
			best, next, c = c, best, next
		case found == 2 || f.before(c, next):
			next, c = c, next
		}
	}
	if found > 0 {
		f.push(best)
	}
	if found > 1 {
		next.at, next.stage = int32(len(f.seen)), restStage
		f.seen = append(f.seen, leaf)
		f.push(next)
	}
}

// addRest adds the nodes of a leaf from this candidate on.
func (f *frontier) addRest(from *candidate, x *boxIndex) {
	points := f.seen[from.at].Points
	for i := range points {
		var c candidate
		if p := &points[i]; !x.moved.has(p.ID) && f.boundNode(&c, p, x) && !f.before(&c, from) {
			f.push(&c)
		}
	}
}

// evaluate rates the first candidate, a node of which only the bound is known.
func (f *frontier) evaluate(top *candidate, x *boxIndex, r *rater) {
	if top.clock < x.changedAt(top.at) {
		f.pop()
		return
	}
	f.counts.rated++
	n, spec := x.rater.node(top.at), f.class.spec
	p, ok := r.rate(n, spec, &f.class.near) // the bound knew the totals only
	if !ok {
		f.pop()
		return
	}
	c := *top
	c.value, c.tie, c.stage = p.own, p.tie, ratedStage
	f.down(c)
}

// first orders candidates, the best first. Nodes of equal rank, which is an accident, go by id.
func (f *frontier) first(a, b *candidate) bool {
	switch {
	case a.part != b.part:
		return a.part < b.part
	case a.value != b.value:
		return a.value < b.value
	case a.tie != b.tie:
		return a.tie < b.tie
	}
	if a, b := f.rank(a), f.rank(b); a != b {
		return a < b
	}
	if a.stage != b.stage {
		return a.stage < b.stage
	}
	return a.stage == ratedStage && f.draft.Node(int(a.at)).Node.ID < f.draft.Node(int(b.at)).Node.ID
}

func (f *frontier) push(c *candidate) {
	f.heap = append(f.heap, *c)
	i := len(f.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !f.first(c, &f.heap[up]) {
			break
		}
		f.heap[i] = f.heap[up]
		i = up
	}
	f.heap[i] = *c
}

func (f *frontier) pop() candidate {
	first, last := f.heap[0], len(f.heap)-1
	c := f.heap[last]
	f.heap = f.heap[:last]
	if last > 0 {
		f.down(c)
	}
	return first
}

// down replaces the first candidate by another, and restores the heap.
func (f *frontier) down(c candidate) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(f.heap) {
			break
		}
		if child+1 < len(f.heap) && f.first(&f.heap[child+1], &f.heap[child]) {
			child++
		}
		if !f.first(&f.heap[child], &c) {
			break
		}
		f.heap[i] = f.heap[child]
		i = child
	}
	f.heap[i] = c
}
