package sandbox

import (
	"cmp"
	"math"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// A choice searches two rankings at once, best node first:
//
//	cold                 all nodes, as if nothing were warm; shared by all templates
//	special[template]    the nodes that have the template warm; and if few nodes support it, all of those
//
// A node is met first in the ranking that counts its warm slots, because a warm slot makes no node worse ([WarmFirst]
// is monotone). So the first node that fits is the best of all. The memory grows with the number of warm slots that
// nodes report, and not with nodes times templates.

// ranking is a tree of boxes over nodes. A box has its best node, and an upper bound on the room of any of its nodes,
// so that a search skips the boxes in which nothing can fit. A node that may have improved is rated again before a
// search. A node that has become worse is rated again when a search meets it, because until then its box is only too
// optimistic.
type ranking struct {
	// Empty: as if nothing were warm.
	template string
	// The ranking has all nodes that support the template, because they are few.
	few bool
	// Node index by leaf, and the reverse. Nil: a node's leaf is its index.
	nodes []int32
	at    map[int32]int32
	// By leaf: what the node was worth when it was rated.
	leaves []standing
	// The boxes, those over the leaves first; the last level is one box.
	levels [][]box
	// How many improved nodes it has seen.
	seen int
}

// standing is what a node was worth when it was rated.
type standing struct {
	value, tie float64
	// The node's version when it was rated.
	version uint64
	// The node can be chosen if it has room.
	in bool
}

// box is fanOut leaves or boxes.
type box struct {
	// The best leaf, -1 if no node can be chosen.
	best int32
	// Upper bounds on what any of the nodes has free in the ledger, and on its slots by its report.
	free  orbit.Resources
	slots int64
}

// fanOut is how many leaves or boxes a box has.
const fanOut = 8

// position is where a node stands: by value, tie, hash of the node with the seed, and id.
type position struct {
	value, tie float64
	hash       uint64
	id         orbit.NodeID
}

func (a position) compare(b position) int {
	if a.value != b.value { // the common case
		return cmp.Compare(a.value, b.value)
	}
	return cmp.Or(cmp.Compare(a.tie, b.tie), cmp.Compare(a.hash, b.hash), strings.Compare(string(a.id), string(b.id)))
}

// node returns the index of a leaf's node.
func (r *ranking) node(leaf int32) int32 {
	if r.nodes == nil {
		return leaf
	}
	return r.nodes[leaf]
}

// position returns the position of a leaf's node.
func (b *loads) position(r *ranking, leaf int32) position {
	s, n := &r.leaves[leaf], &b.nodes[r.node(leaf)]
	return position{s.value, s.tie, n.hash, n.id}
}

// fewSupport: a template has few supporters if at most one in so many nodes supports it. A search of the cold ranking
// would then not soon meet one.
const fewSupport = 16

// specialOf returns the ranking of a template's own nodes, up to date; nil if no report names the template. It costs a
// look at all nodes when the template is asked for the first time.
func (b *loads) specialOf(template string) *ranking {
	supporters := b.supporters[template]
	if template == "" || supporters == 0 {
		return nil
	}
	r := b.special[template]
	if r == nil || r.few && fewSupport*supporters > len(b.nodes) || !r.few && 2*fewSupport*supporters < len(b.nodes) {
		r = &ranking{template: template, few: fewSupport*supporters <= len(b.nodes), seen: b.firstImproved + len(b.improved)}
		b.special[template] = r
		b.build(r)
		return r
	}
	b.catchUp(r)
	return r
}

// ranks reports whether a node belongs in the ranking of a template.
func (r *ranking) ranks(n *nodeLoad) bool {
	return n.id != "" && (n.report.Warm[r.template] > 0 || r.few && n.supports(r.template))
}

// catchUp rates again the nodes that may have improved.
func (b *loads) catchUp(r *ranking) {
	unseen := b.firstImproved + len(b.improved) - r.seen
	r.seen = b.firstImproved + len(b.improved)
	if unseen < 0 || unseen > len(b.improved) || unseen > len(b.nodes)/2+64 {
		b.build(r)
		return
	}
	rated := b.rated[:0] // all leaves are rated first, because boxes compare them
	for _, i := range b.improved[len(b.improved)-unseen:] {
		leaf, known := i, int(i) < len(r.leaves)
		if r.template != "" {
			leaf, known = r.at[i]
			if !known && !r.ranks(&b.nodes[i]) {
				continue
			}
		}
		if !known {
			leaf = b.add(r, i)
		} else if r.leaves[leaf].version == b.nodes[i].version { // a node may be listed twice
			continue
		}
		b.rateLeaf(r, leaf)
		rated = append(rated, leaf)
	}
	for _, leaf := range rated {
		b.tighten(r, leaf)
	}
	b.rated = rated
}

// build rates all nodes of a ranking.
func (b *loads) build(r *ranking) {
	r.nodes, r.at, r.leaves, r.levels = nil, nil, r.leaves[:0], nil
	if r.template != "" {
		r.at = map[int32]int32{}
	}
	for i := range b.nodes {
		if r.template == "" || r.ranks(&b.nodes[i]) {
			b.rateLeaf(r, b.add(r, int32(i)))
		}
	}
	for first := 0; first < len(r.leaves); first += fanOut {
		b.tighten(r, int32(first))
	}
}

// add makes a leaf for a node, and for all before it where a leaf is the node's index.
func (b *loads) add(r *ranking, i int32) (leaf int32) {
	if r.template == "" {
		for int(i) >= len(r.leaves) {
			r.leaves = append(r.leaves, standing{})
		}
		return i
	}
	leaf = int32(len(r.leaves))
	r.leaves, r.nodes, r.at[i] = append(r.leaves, standing{}), append(r.nodes, i), leaf
	return leaf
}

// rateLeaf rates the node of a leaf as it is now.
func (b *loads) rateLeaf(r *ranking, leaf int32) {
	i := r.node(leaf)
	n, s := &b.nodes[i], &r.leaves[leaf]
	*s = standing{version: n.version}
	if n.id == "" || n.report.Expired || n.report.Stale && !b.allowStale || !b.draft.Node(int(i)).Node.Schedulable() {
		return
	}
	s.value, s.tie = b.rate(i, r.template)
	s.in = finite(s.value) && finite(s.tie)
}

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// tighten recomputes the boxes above a leaf.
func (b *loads) tighten(r *ranking, leaf int32) {
	at, below := int(leaf), len(r.leaves)
	for level := 0; level == 0 || below > 1; level++ {
		at /= fanOut
		if level == len(r.levels) {
			r.levels = append(r.levels, nil)
			for first := range at { // a new top level needs the boxes before this one too
				r.levels[level] = append(r.levels[level], b.boxOf(r, level, first, below))
			}
		}
		boxes := &r.levels[level]
		for len(*boxes) <= at {
			*boxes = append(*boxes, box{best: -1})
		}
		(*boxes)[at] = b.boxOf(r, level, at, below)
		below = len(*boxes)
	}
}

// boxOf computes one box from the leaves or boxes below it; below is how many the level below has.
func (b *loads) boxOf(r *ranking, level, at, below int) box {
	sum := box{best: -1}
	for k := at * fanOut; k < min((at+1)*fanOut, below); k++ {
		part := box{best: -1}
		if level > 0 {
			part = r.levels[level-1][k]
		} else if r.leaves[k].in {
			i := r.node(int32(k))
			part = box{int32(k), b.draft.Node(int(i)).Free(), b.nodes[i].slots}
		}
		if part.best < 0 {
			continue
		}
		if sum.best < 0 {
			sum = part
			continue
		}
		if b.position(r, part.best).compare(b.position(r, sum.best)) < 0 {
			sum.best = part.best
		}
		sum.slots = max(sum.slots, part.slots)
		for d, free := range part.free {
			sum.free[d] = max(sum.free[d], free)
		}
	}
	return sum
}

// candidate is a box or a leaf that a search has not opened yet.
type candidate struct {
	// The position of the best leaf.
	position
	r *ranking
	// -1: a leaf.
	level int
	at    int32
}

// Before orders candidates for the heap, best first, and among equals a leaf first.
func (c candidate) Before(o candidate) bool {
	if order := c.compare(o.position); order != 0 {
		return order < 0
	}
	return c.level < o.level
}

// first returns the best node for a spec that accept agrees to; -1 if there is none.
func (b *loads) first(spec *orbit.Spec, accept func(i int32) bool) int32 {
	open := heap.Heap[candidate](b.open[:0])
	defer func() { b.open = open }()
	special := b.specialOf(spec.Start.Template)
	if b.unsupported(spec.Start.Template) {
		return -1
	}
	if special != nil {
		b.push(&open, special, len(special.levels)-1, 0, spec)
	}
	if special == nil || !special.few {
		b.catchUp(&b.cold)
		b.push(&open, &b.cold, len(b.cold.levels)-1, 0, spec)
	}
	for len(open) > 0 {
		c := open.Pop()
		b.opened++
		if c.level >= 0 {
			for k := c.at * fanOut; k < (c.at+1)*fanOut; k++ {
				b.push(&open, c.r, c.level-1, k, spec)
			}
			continue
		}
		i := c.r.node(c.at)
		if s := &c.r.leaves[c.at]; s.version != b.nodes[i].version { // it has become worse: rate it again, and put it back
			b.rateLeaf(c.r, c.at)
			b.tighten(c.r, c.at)
			b.push(&open, c.r, -1, c.at, spec)
		} else if accept(i) {
			return i
		}
	}
	return -1
}

// push adds a box or a leaf to the search, unless none of its nodes can have room for the spec.
func (b *loads) push(open *heap.Heap[candidate], r *ranking, level int, at int32, spec *orbit.Spec) {
	leaf := at
	switch {
	case level < 0:
		if int(at) >= len(r.leaves) || !r.leaves[at].in {
			return
		}
	case level >= len(r.levels) || int(at) >= len(r.levels[level]):
		return
	default:
		x := &r.levels[level][at]
		if leaf = x.best; leaf < 0 || x.slots < slotsWanted(spec) {
			return
		}
		for d, want := range spec.Envelope.Reservation {
			if want > 0 && want > x.free[d] {
				return
			}
		}
	}
	open.Push(candidate{b.position(r, leaf), r, level, at})
}
