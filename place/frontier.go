package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/herd"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// frontier is a best-first search of the tree for one class. Its heap has three sorts of candidates: boxes with a bound
// of the scores in them, nodes with a bound of their score, and nodes with their exact score. When a node with its
// exact score comes first, no other node can be better, and the search ends.
//
// When the same class is asked for again, the search continues where it ended. Nodes that have changed meanwhile are
// added one by one, and their older candidates on the heap are ignored. Boxes stay as they were.
type frontier struct {
	class *specClass
	// The kinds of nodes that the class may use; and the district of the class that is searched, or wholeCountry.
	kinds    kd.Kinds
	district int16
	// A heap, the best first.
	heap  []candidate
	draft *orbit.Draft
	ties  *ties
	// The number of parts into which the nodes are divided; and the smallest hash in each box, which tells the earliest
	// part of its nodes. A node of an earlier part is better.
	parts int
	ring  *leastHashes
	// The boxes to which candidates refer by position.
	seen []*kd.Box
	// A buffer for add: a bound may keep a reference to the point, so a local variable would be allocated each time.
	point kd.Point

	counts frontierCounts
}

// frontierCounts counts since the last Sync: searches begun, choices made without expanding a box, boxes expanded,
// nodes rated.
type frontierCounts struct{ searches, hits, boxes, rated int }

// candidate is a box, the rest of a leaf, or a node, with a lower bound of the scores there.
type candidate struct {
	value, tie float64
	rank       uint64
	// The clock of the index when the candidate was made. A candidate of a node that has changed since is ignored.
	clock uint64
	// The position of a box in seen, or the index of a node.
	at    int32
	part  int16 // lastPart is added for a node that is a last resort
	stage stage
	// The rank has not been computed. It is needed only if another candidate is equal in everything else.
	unranked bool
}

// lastPart puts the nodes that are a last resort after all parts. A box may hold both sorts, so its part is that of the
// nodes that are none.
const lastPart = 1 << 14

// stage says what a candidate is. Between equals the less exact stage comes first, because a better node may be in it.
type stage uint8

const (
	boxStage stage = iota
	// A leaf of which the nodes that come before this candidate have been added already.
	restStage
	nodeStage
	ratedStage
)

// before reports whether c comes before o: by part, value, tie and rank.
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

// rank returns the rank of a candidate, which breaks ties; of a box, the smallest rank in it. It computes the rank of a
// box on first use.
func (f *frontier) rank(c *candidate) uint64 {
	if c.unranked {
		c.rank, c.unranked = f.ties.least(f.seen[c.at]), false
	}
	return c.rank
}

// begin starts a search for these kinds from the root of the tree. Exceptions of the class are added with their exact
// score. Nodes that have changed since they were put into the tree are added one by one.
func (f *frontier) begin(c *specClass, x *boxIndex, district int16, kinds kd.Kinds) {
	clear(f.seen) // the boxes of old trees can be freed
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

// rate adds a node to which the bounds of the class do not apply, with its exact score. It adds the node even while a
// rule closes its domain: the search of a district goes on when the domain opens again, and would miss the node then.
func (f *frontier) rate(slot int32, x *boxIndex) {
	m, n, c := x.nodes.at(slot), x.rater.node(slot), f.class
	if !f.covers(m.kind) {
		return
	}
	f.counts.rated++
	if !n.Fits(c.spec) || !c.near.reaches(n.Node) {
		return
	}
	if p, ok := x.rater.own(n, c.spec, &c.near); ok {
		part := f.part(m.hash-f.ring.from) + lastPart*int16(btoi(p.last))
		f.push(&candidate{value: p.own, tie: p.tie, rank: f.ties.of(m.number, m.hash), clock: x.clock, at: slot, part: part, stage: ratedStage})
	}
}

// covers reports whether nodes of a kind are in the district that is searched.
func (f *frontier) covers(kind int32) bool {
	return f.district == wholeCountry || f.class.districtOf[kind] == f.district
}

// boundBox makes a candidate of a box; false: no node in the box can fit.
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

// add adds a candidate for a node that has changed.
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

// boundNode makes a candidate of a node, with a bound from its totals (free capacity and use); false: the node cannot
// fit.
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

// part returns the part to which a place on the ring belongs.
func (f *frontier) part(at uint64) int16 {
	if f.parts <= 1 {
		return 0
	}
	return int16(herd.Part(f.parts, 0, at))
}

// next returns the best node by its own value; its node is nil if there is none. It reports false if the search does
// not converge: if it has looked at so many boxes and nodes that rating all nodes once would be cheaper.
func (f *frontier) next(x *boxIndex, r *rater) (best pick, ok bool) {
	hit, before := 1, f.counts.boxes
	defer func() { x.opened += f.counts.boxes - before }()
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
			// A rule may have closed the node since it was added. The search may drop it then: if the node opens again,
			// the search begins anew, or adds the node because it has changed.
			if top.clock >= x.changedAt(top.at) && f.class.near.opens(x.rater.node(top.at).Node) {
				f.counts.hits += hit
				return pick{node: x.rater.node(top.at), last: top.part >= lastPart, value: top.value, own: top.value, tie: top.tie}, true
			}
			f.pop()
		}
	}
	return best, true
}

// searchedPart: a search may look at one node in so many for a choice. Looking at a node in the order of bounds costs
// several times as much as rating it in a scan of all nodes.
const searchedPart = 16

// expand replaces a box by its two halves, or a leaf by its nodes. As long as the better half comes before the first of
// the heap, it expands that half at once, which saves a push and a pop.
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

// addBest adds the best node of a leaf, and one candidate for all its other nodes: most searches need only the best.
func (f *frontier) addBest(leaf *kd.Box, x *boxIndex) {
	var all [3]candidate
	// The pointers change places instead of the candidates, which are large: c is always the one to overwrite.
	best, next, c := &all[0], &all[1], &all[2]
	found, settled := 0, len(x.moved.list) == 0
	points := leaf.Points
	for i := range points {
		p := &points[i]
		if !settled && x.moved.has(p.ID) || !f.boundNode(c, p, x) { // add has added the changed nodes
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

// addRest adds the nodes of a leaf, except those that come before this candidate.
func (f *frontier) addRest(from *candidate, x *boxIndex) {
	points := f.seen[from.at].Points
	for i := range points {
		var c candidate
		if p := &points[i]; !x.moved.has(p.ID) && f.boundNode(&c, p, x) && !f.before(&c, from) {
			f.push(&c)
		}
	}
}

// evaluate rates the first candidate, a node of which only the bound is known, and moves it down the heap.
func (f *frontier) evaluate(top *candidate, x *boxIndex, r *rater) {
	if top.clock < x.changedAt(top.at) {
		f.pop()
		return
	}
	f.counts.rated++
	n, spec := x.rater.node(top.at), f.class.spec
	p, ok := r.rate(n, spec, &f.class.near) // the node may not fit after all: the bound considers its totals only
	if !ok {
		f.pop()
		return
	}
	c := *top
	c.value, c.tie, c.stage = p.own, p.tie, ratedStage
	c.part += lastPart * int16(btoi(p.last))
	f.down(c)
}

// first reports whether a comes before b on the heap. It extends before: between equal ranks, which are an accident,
// the stage decides and then the id.
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

// down replaces the first candidate by another one, and restores the order of the heap.
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
