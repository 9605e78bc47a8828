package sandbox

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/orbitsched/orbit"
)

// class is what decides which nodes a rank has: those that support the template, get work at all, and have this
// much room and a slot.
type class struct {
	template string
	room     orbit.Resources
}

func classOf(spec *orbit.Spec) class {
	return class{spec.Start.Template, spec.Envelope.Reservation}
}

// rank is the nodes that take a class, best first. It is made when the class is first asked for, and catches up
// with the draft's journal when it is asked for again. What has only been given away meanwhile it leaves: such
// a node stands too far ahead until it comes first, and is put where it belongs then. So giving away costs the
// same however many ranks there are, and a choice costs a logarithm.
type rank struct {
	template string
	// It reserves the room, and asks for nothing else.
	spec   *orbit.Spec
	tree   *btree.BTreeG[place]
	places []standing // by node index
	cursor uint64     // of the draft's journal
	used   uint64     // by the books' clock
	// What was said when nothing fitted, at that version of the books and that revision of the ledger. The
	// books are of one view, which shows no two states of one revision; the state itself would be kept alive by
	// a class that rests.
	refusal   *WarmNoFit
	refused   uint64
	refusedIn orbit.Revision
}

// place is where a node stands: by value, tie, hash of the node with the seed, and id.
type place struct {
	value, tie float64
	hash       uint64
	id         orbit.NodeID
	index      int32
}

// standing is what a rank has of a node.
type standing struct {
	key     place
	version uint64 // of the node, when it was rated
	in      bool
}

func (a place) compare(b place) int {
	if a.value != b.value { // as most are
		return cmp.Compare(a.value, b.value)
	}
	return cmp.Or(cmp.Compare(a.tie, b.tie), cmp.Compare(a.hash, b.hash), strings.Compare(string(a.id), string(b.id)))
}

func (a place) less(b place) bool { return a.compare(b) < 0 }

const (
	rankDegree = 32
	// All ranks together have at most so many nodes, some 120 MB; those asked for longest ago go first.
	maxRanked = 1 << 20
)

// rank returns the rank of a class, up to date except for what has been given away.
func (b *books) rank(c class) *rank {
	b.clock++
	r := b.ranks[c]
	if r != nil {
		b.catchUp(r)
	} else {
		b.forget(len(b.nodes))
		r = &rank{template: c.template, spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: c.room}}}
		b.ranks[c] = r
		b.build(r)
	}
	r.used = b.clock
	return r
}

// forget drops ranks until there is room for so many nodes.
func (b *books) forget(nodes int) {
	for b.pairs > 0 && b.pairs+nodes > maxRanked {
		oldest, class := uint64(math.MaxUint64), class{}
		for c, r := range b.ranks { // in any order: no two were used at the same time
			if r.used < oldest {
				oldest, class = r.used, c
			}
		}
		b.pairs -= len(b.ranks[class].places)
		delete(b.ranks, class)
	}
}

// build rates all nodes. They are put in order first: a tree grows much faster at its end.
func (b *books) build(r *rank) {
	b.pairs += len(b.nodes) - len(r.places)
	r.tree, r.places = btree.NewG(rankDegree, place.less), make([]standing, len(b.nodes))
	keys := make([]place, 0, len(b.nodes))
	for i := range b.nodes {
		if b.rateFor(r, int32(i)) {
			keys = append(keys, r.places[i].key)
		}
	}
	slices.SortFunc(keys, place.compare)
	for _, k := range keys {
		r.tree.ReplaceOrInsert(k)
	}
	_, r.cursor, _ = b.draft.Changed(0)
}

// catchUp rates again what may have become better.
func (b *books) catchUp(r *rank) {
	changed, next, all := b.draft.Changed(r.cursor)
	if all {
		b.build(r)
		return
	}
	b.pairs += len(b.nodes) - len(r.places)
	for len(r.places) < len(b.nodes) {
		r.places = append(r.places, standing{})
	}
	r.cursor = next
	better := changed[:0:0]
	for _, i := range changed {
		if r.places[i].version < b.nodes[i].better {
			better = append(better, i)
		}
	}
	if len(better) > len(b.nodes)/2+64 {
		b.build(r)
		return
	}
	for _, i := range better {
		if r.places[i].version < b.nodes[i].better { // it may be named twice
			b.replace(r, i)
		}
	}
}

// rerank puts a node where it belongs in all ranks: it has become better, and the draft's journal does not
// tell.
func (b *books) rerank(i int32) {
	for _, r := range b.ranks {
		if int(i) < len(r.places) {
			b.replace(r, i)
		}
	}
}

// replace puts a node where it belongs now.
func (b *books) replace(r *rank, i int32) {
	p := &r.places[i]
	if p.in {
		r.tree.Delete(p.key)
	}
	if b.rateFor(r, i) {
		r.tree.ReplaceOrInsert(p.key)
	}
}

// rateFor rates a node that is not in the tree, and reports whether it belongs there: it takes the class.
func (b *books) rateFor(r *rank, i int32) bool {
	n := &b.nodes[i]
	p := &r.places[i]
	*p = standing{version: n.version}
	if !b.takes(n, i, r) {
		return false
	}
	value, tie := b.rate(i, r.template)
	if p.in = finite(value) && finite(tie); p.in {
		p.key = place{value, tie, n.hash, n.id, i}
	}
	return p.in
}

// takes reports whether a node is one that the rank has.
func (b *books) takes(n *bookedNode, i int32, r *rank) bool {
	return n.id != "" && !n.report.Expired && (b.allowStale || !n.report.Stale) && n.supports(r.template) &&
		n.slots >= slotsWanted(r.spec) && b.draft.Node(int(i)).Fits(r.spec)
}

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// walk goes through a rank, best first, and returns the first node that is accepted; -1: none is.
func (b *books) walk(r *rank, accept func(i int32) bool) int32 {
	from := place{value: math.Inf(-1)}
	for {
		found, outdated := int32(-1), int32(-1)
		r.tree.AscendGreaterOrEqual(from, func(k place) bool {
			switch {
			case r.places[k.index].version != b.nodes[k.index].version:
				outdated, from = k.index, k
			case accept(k.index):
				found = k.index
			}
			return found < 0 && outdated < 0
		})
		if outdated < 0 {
			return found
		}
		b.replace(r, outdated) // behind from, for it has become no better
	}
}
