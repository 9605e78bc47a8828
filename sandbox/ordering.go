package sandbox

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/orbitsched/orbit"
)

// class is what decides which nodes an ordering has: those that support the template, get work at all, and have this
// much room and a slot.
type class struct {
	template string
	room     orbit.Resources
}

func classOf(spec *orbit.Spec) class {
	return class{spec.Start.Template, spec.Envelope.Reservation}
}

// ordering has the nodes that take a class, best first. It is built at the first request for the class. Later requests
// move only the nodes that have improved. A node that has lost capacity to other placements stays too far ahead until
// it comes first, and is moved then. So a placement costs the same for any number of orderings, and a choice costs a
// logarithm.
type ordering struct {
	template string
	// It reserves the room, and asks for nothing else.
	spec    *orbit.Spec
	tree    *btree.BTreeG[position]
	entries []entry // by node index
	seen    int     // how many improved nodes it has seen
	used    uint64  // by the loads' clock
	// What was said when nothing fitted, at that version of the loads and that revision of the ledger. The
	// loads are of one view, which shows no two states of one revision; the state itself would be kept alive by
	// a class that rests.
	refusal   *WarmNoFit
	refused   uint64
	refusedIn orbit.Revision
}

// position is where a node stands: by value, tie, hash of the node with the seed, and id.
type position struct {
	value, tie float64
	hash       uint64
	id         orbit.NodeID
	index      int32
}

// entry is what an ordering has of a node.
type entry struct {
	key     position
	version uint64 // of the node, when it was rated
	in      bool
}

func (a position) compare(b position) int {
	if a.value != b.value { // as most are
		return cmp.Compare(a.value, b.value)
	}
	return cmp.Or(cmp.Compare(a.tie, b.tie), cmp.Compare(a.hash, b.hash), strings.Compare(string(a.id), string(b.id)))
}

func (a position) less(b position) bool { return a.compare(b) < 0 }

const (
	treeDegree = 32
	// All orderings together have at most so many nodes, some 120 MB; those asked for longest ago go first.
	maxOrdered = 1 << 20
)

// ordering returns the ordering of a class, up to date except for nodes that have lost capacity.
func (b *loads) ordering(c class) *ordering {
	b.clock++
	r := b.orderings[c]
	if r != nil {
		b.catchUp(r)
	} else {
		b.forget(len(b.nodes))
		r = &ordering{template: c.template, spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: c.room}}}
		b.orderings[c] = r
		b.build(r)
	}
	r.used = b.clock
	return r
}

// forget drops orderings until there is room for so many nodes.
func (b *loads) forget(nodes int) {
	for b.pairs > 0 && b.pairs+nodes > maxOrdered {
		oldest, class := uint64(math.MaxUint64), class{}
		for c, r := range b.orderings { // in any order: no two were used at the same time
			if r.used < oldest {
				oldest, class = r.used, c
			}
		}
		b.pairs -= len(b.orderings[class].entries)
		delete(b.orderings, class)
	}
}

// build rates all nodes. They are put in order first: a tree grows much faster at its end.
func (b *loads) build(r *ordering) {
	b.pairs += len(b.nodes) - len(r.entries)
	r.tree, r.entries = btree.NewG(treeDegree, position.less), make([]entry, len(b.nodes))
	keys := make([]position, 0, len(b.nodes))
	for i := range b.nodes {
		if b.rateFor(r, int32(i)) {
			keys = append(keys, r.entries[i].key)
		}
	}
	slices.SortFunc(keys, position.compare)
	for _, k := range keys {
		r.tree.ReplaceOrInsert(k)
	}
	r.seen = b.firstImproved + len(b.improved)
}

// catchUp rates again the nodes that may have improved.
func (b *loads) catchUp(r *ordering) {
	unseen := b.firstImproved + len(b.improved) - r.seen
	if unseen > len(b.improved) || unseen > len(b.nodes)/2+64 {
		b.build(r)
		return
	}
	b.pairs += len(b.nodes) - len(r.entries)
	r.entries = append(r.entries, make([]entry, len(b.nodes)-len(r.entries))...)
	for _, i := range b.improved[len(b.improved)-unseen:] {
		if r.entries[i].version != b.nodes[i].version { // it may be named twice
			b.replace(r, i)
		}
	}
	r.seen += unseen
}

// replace puts a node where it belongs now.
func (b *loads) replace(r *ordering, i int32) {
	p := &r.entries[i]
	if p.in {
		r.tree.Delete(p.key)
	}
	if b.rateFor(r, i) {
		r.tree.ReplaceOrInsert(p.key)
	}
}

// rateFor rates a node that is not in the tree, and reports whether it belongs there: it takes the class.
func (b *loads) rateFor(r *ordering, i int32) bool {
	n := &b.nodes[i]
	p := &r.entries[i]
	*p = entry{version: n.version}
	if !b.takes(n, i, r) {
		return false
	}
	value, tie := b.rate(i, r.template)
	if p.in = finite(value) && finite(tie); p.in {
		p.key = position{value, tie, n.hash, n.id, i}
	}
	return p.in
}

// takes reports whether a node belongs in the ordering.
func (b *loads) takes(n *nodeLoad, i int32, r *ordering) bool {
	return n.id != "" && !n.report.Expired && (b.allowStale || !n.report.Stale) && n.supports(r.template) &&
		n.slots >= slotsWanted(r.spec) && b.draft.Node(int(i)).Fits(r.spec)
}

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// walk goes through an ordering, best first, and returns the first node that is accepted; -1: none is.
func (b *loads) walk(r *ordering, accept func(i int32) bool) int32 {
	from := position{value: math.Inf(-1)}
	for {
		found, outdated := int32(-1), int32(-1)
		r.tree.AscendGreaterOrEqual(from, func(k position) bool {
			switch {
			case r.entries[k.index].version != b.nodes[k.index].version:
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
