package sandbox

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/orbitsched/orbit"
)

// warmClass is what decides which nodes a rank has: those that support the template, get work at all, and have this
// much room and a slot.
type warmClass struct {
	template string
	room     orbit.Resources
}

func classOf(spec *orbit.Spec) warmClass {
	return warmClass{spec.Start.Template, spec.Envelope.Reservation}
}

// warmRank is the nodes that take a class, best first. It is made when the class is first asked for, and catches up
// with the log when it is asked for again. What has been given away meanwhile is not in the log: such a node stands too
// far ahead until it comes first, and is put where it belongs then. So giving away costs the same however many
// ranks there are, and a choice costs a logarithm.
type warmRank struct {
	tree   *btree.BTreeG[warmKey]
	places []warmPlace // by node index
	cursor uint64      // of the log
	used   uint64      // by the books' clock
	// What was said when nothing fitted, at that version of the books and that revision of the ledger. The books are of
	// one view, which shows no two states of one revision; the state itself would be kept alive by a class that rests.
	refusal   *WarmNoFit
	refused   uint64
	refusedIn orbit.Revision
}

// warmKey is where a node stands: by value, tie, hash of the node with the seed, and id.
type warmKey struct {
	value, tie float64
	hash       uint64
	id         orbit.NodeID
	index      int32
}

// warmPlace is what a rank has of a node.
type warmPlace struct {
	key     warmKey
	version uint64 // of the node, when it was rated
	in      bool
}

func (a warmKey) compare(b warmKey) int {
	if a.value != b.value { // as most are
		return cmp.Compare(a.value, b.value)
	}
	return cmp.Or(cmp.Compare(a.tie, b.tie), cmp.Compare(a.hash, b.hash), strings.Compare(string(a.id), string(b.id)))
}

func (a warmKey) less(b warmKey) bool { return a.compare(b) < 0 }

const (
	warmDegree = 32
	// All ranks together have at most so many nodes, some 120 MB; those asked for longest ago go first.
	maxWarmPairs = 1 << 20
)

// rank returns the rank of a class, up to date but for what has been given away.
func (b *warmBooks) rank(class warmClass) *warmRank {
	b.clock++
	r := b.ranks[class]
	if r != nil {
		b.catchUp(r, class)
	} else {
		b.forget(len(b.nodes))
		r = &warmRank{}
		b.ranks[class] = r
		b.build(r, class)
	}
	r.used = b.clock
	return r
}

// forget drops ranks until there is room for so many nodes.
func (b *warmBooks) forget(nodes int) {
	for b.pairs > 0 && b.pairs+nodes > maxWarmPairs {
		oldest, class := uint64(math.MaxUint64), warmClass{}
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
func (b *warmBooks) build(r *warmRank, class warmClass) {
	b.pairs += len(b.nodes) - len(r.places)
	r.tree, r.places = btree.NewG(warmDegree, warmKey.less), make([]warmPlace, len(b.nodes))
	keys := make([]warmKey, 0, len(b.nodes))
	for i := range b.nodes {
		if b.rateFor(r, class, int32(i)) {
			keys = append(keys, r.places[i].key)
		}
	}
	slices.SortFunc(keys, warmKey.compare)
	for _, k := range keys {
		r.tree.ReplaceOrInsert(k)
	}
	_, r.cursor, _ = b.log.since(0)
}

// catchUp rates again what may have become better.
func (b *warmBooks) catchUp(r *warmRank, class warmClass) {
	changed, next, all := b.log.since(r.cursor)
	if all || len(changed) > len(b.nodes)/2+64 {
		b.build(r, class)
		return
	}
	b.pairs += len(b.nodes) - len(r.places)
	for len(r.places) < len(b.nodes) {
		r.places = append(r.places, warmPlace{})
	}
	for _, i := range changed {
		b.replace(r, class, i)
	}
	r.cursor = next
}

// replace puts a node where it belongs now, unless it is there.
func (b *warmBooks) replace(r *warmRank, class warmClass, i int32) {
	p := &r.places[i]
	if p.version == b.nodes[i].version {
		return
	}
	if p.in {
		r.tree.Delete(p.key)
	}
	if b.rateFor(r, class, i) {
		r.tree.ReplaceOrInsert(p.key)
	}
}

// rateFor rates a node that is not in the tree, and reports whether it belongs there: it takes the class.
func (b *warmBooks) rateFor(r *warmRank, class warmClass, i int32) bool {
	n := &b.nodes[i]
	p := &r.places[i]
	*p = warmPlace{version: n.version}
	if !b.takes(n, &class) {
		return false
	}
	value, tie := n.rate(class.template)
	if p.in = finite(value) && finite(tie); p.in {
		p.key = warmKey{value, tie, n.hash, n.node.Node.ID, i}
	}
	return p.in
}

// takes reports whether a node is one that the rank of a class has.
func (b *warmBooks) takes(n *warmNode, class *warmClass) bool {
	return n.node != nil && !n.node.Node.Unschedulable && !n.report.Expired && (b.allowStale || !n.report.Stale) &&
		n.supports(class.template) && n.slots >= slotsWanted(&class.room) && n.short(&class.room) < 0
}

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// walk goes through a rank, best first, and returns the first node that is accepted; -1: none is.
func (b *warmBooks) walk(r *warmRank, class warmClass, accept func(i int32) bool) int32 {
	from := warmKey{value: math.Inf(-1)}
	for {
		found, outdated := int32(-1), int32(-1)
		r.tree.AscendGreaterOrEqual(from, func(k warmKey) bool {
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
		b.replace(r, class, outdated) // behind from, for it has become no better
	}
}

// warmLog is which nodes may have become better: a window on an endless list of indices.
type warmLog struct {
	window []int32
	base   uint64 // position of window[0], less one
}

// add appends an index, forgetting the older half of the window when it is longer than the nodes are many.
func (l *warmLog) add(i int32, nodes int) {
	if len(l.window) >= 2*nodes+1024 {
		half := len(l.window) / 2
		l.base += uint64(half)
		l.window = append(l.window[:0], l.window[half:]...)
	}
	l.window = append(l.window, i)
}

// overflow makes all cursors too old.
func (l *warmLog) overflow() {
	l.base += uint64(len(l.window)) + 1
	l.window = l.window[:0]
}

// since returns what was added after a cursor, and all if the window does not reach back that far.
func (l *warmLog) since(cursor uint64) (indices []int32, next uint64, all bool) {
	next = l.base + uint64(len(l.window))
	if cursor < l.base {
		return nil, next, true
	}
	return l.window[cursor-l.base:], next, false
}
