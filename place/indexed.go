package place

import (
	"log/slog"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/slots"
)

// Indexed is the [orbit.PlacementEngine] for large constellations. It chooses exactly what [Exhaustive] chooses, and
// looks at a few nodes for that, by two ways:
//
//	a score that is Bounded     one index of boxes over all node states, which all specs share; nothing is
//	                            kept per spec but what it makes of each kind of node
//	any other, and specs that   the scores of all nodes are kept per spec; after a change only the nodes that
//	ask for a rack or a host    have changed are rated again
//
// All scores in orbit and in its package score are Bounded but FGD and Random, and what ScoreFunc makes of a
// function. A rack or a host is a label with so many values that there would be more than 128 kinds of nodes;
// whoever requires, prefers or spreads across one is served the second way.
//
// Specs are told apart by identity: those that a ledger hands out are one pointer for all that are equal. One
// that no ledger has seen is scanned for, as Exhaustive does; and so is every spec on 16 nodes or fewer, or
// with a score that draws lots, as Random does: no choice tells anything of the next. [Sampled] is the fast one
// for that.
//
// The zero value works. Do not change the fields after the first Best. Memory is bounded: what is known of specs
// that have not been asked for longest is dropped, scores beyond 128 MiB and all else beyond some 260,000 pairs of
// a spec and a kind of node.
type Indexed struct {
	// Nil: [orbit.SpreadScore].
	Score  orbit.Score
	Filter Filter
	// Breaks ties; 0: by node id.
	Seed uint64

	rater   rater
	index   boxIndex
	front   front
	classes map[*orbit.Spec]*specClass
	// Counts calls of Best.
	clock       uint64
	version     uint64
	scratch     slots.Set
	rankedBytes int
	stats       indexedStats
	// A search is being done.
	searching bool
}

// indexedStats count since the last Sync, beside what index and front count.
type indexedStats struct{ asked, scanned, rated, ranked, rankings int }

// follow takes note of a Sync of the draft.
func (e *Indexed) follow(draft *orbit.Draft) {
	synced, other := e.rater.follow(draft, e.Score, e.Filter, e.Seed)
	if !synced {
		return
	}
	if other {
		e.index.cursor = 0
		e.forget()
	}
	e.index.rater = &e.rater
	e.index.bounded, _ = e.rater.score.(orbit.Bounded)
	e.front = front{heap: e.front.heap}
	e.index.moves, e.index.builds, e.stats = 0, 0, indexedStats{}
	e.drop()
}

// scanBelow is the number of nodes up to which looking at all of them is as fast as an index.
const scanBelow = 16

// Best implements [orbit.PlacementEngine].
func (e *Indexed) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	if err := unready(draft, spec); err != nil {
		return orbit.Choice{}, err
	}
	e.follow(draft)
	e.stats.asked++
	if e.rater.draw() || !spec.Shared() || draft.Bound() <= scanBelow {
		e.stats.scanned++
		return e.rater.scan(spec, nearIn(draft, spec))
	}
	c := e.class(spec)
	best, ok := e.search(c)
	if !ok {
		best = e.rank(c)
	}
	return e.rater.choice(best, spec)
}

// class returns what is known of a spec.
func (e *Indexed) class(spec *orbit.Spec) *specClass {
	if v, ok := e.rater.score.(orbit.Versioned); ok {
		if version := v.Version(); version != e.version {
			e.version = version
			e.forget()
		}
	}
	c := e.classes[spec]
	if c == nil {
		c = newSpecClass(spec)
		if e.classes == nil {
			e.classes = map[*orbit.Spec]*specClass{}
		}
		e.classes[spec] = c
		if e.index.kinds.learn(spec, e.rater.draft) {
			e.index.cursor = 0 // divide anew
		}
	}
	e.clock++
	c.used = e.clock
	if near := nearIn(e.rater.draft, spec); near.version != c.near.version {
		c.meet(near)
		if e.front.class == c {
			e.front.class = nil
		}
	}
	return c
}

// search looks in the index that all specs share; false: the score cannot bound itself for this spec.
func (e *Indexed) search(c *specClass) (best orbit.Choice, ok bool) {
	x := &e.index
	if x.bounded == nil || c.boundless || !x.kinds.decides(c.spec) {
		return best, false
	}
	if e.searching { // a score has panicked in the middle of it
		x.cursor = 0
	}
	e.searching = true
	e.begin(c)
	if ok = !c.boundless && x.kinds.decides(c.spec); ok { // that may show only now
		best = e.front.next(x, &e.rater)
	} else {
		e.front.class = nil
	}
	e.searching = false
	return best, ok
}

// begin begins a search for a class, or adds to the one under way what has changed.
func (e *Indexed) begin(c *specClass) {
	x := &e.index
	touched, all := x.follow()
	switch {
	case all:
		x.build(c.probe(x))
		e.front.begin(c, x)
	case e.front.class != c:
		x.settle(c.probe(x))
		e.front.begin(c, x)
	default:
		for _, slot := range touched {
			e.front.consider(slot, x)
		}
	}
}

// rank keeps the scores of all nodes for this spec.
func (e *Indexed) rank(c *specClass) orbit.Choice {
	if c.ranking == nil {
		c.ranking = &ranking{}
	}
	before := c.ranking.bytes()
	rated, all := c.ranking.follow(c, &e.rater, &e.scratch)
	e.stats.rated += rated
	e.stats.ranked++
	e.stats.rankings += btoi(all)
	if e.rankedBytes += c.ranking.bytes() - before; e.rankedBytes > maxRanked {
		e.dropRankings(c)
	}
	return c.ranking.best(&e.rater)
}

// Bounds of what is kept per spec: rankings in bytes, and pairs of specs and kinds of nodes.
const (
	maxRanked = 128 << 20
	maxPairs  = 1 << 18
)

// dropRankings drops the rankings of the specs that have not been asked for longest, until half of the room is
// free. It keeps the one in use.
func (e *Indexed) dropRankings(inUse *specClass) {
	for _, c := range e.oldest() {
		if e.rankedBytes <= maxRanked/2 {
			return
		}
		if c.ranking != nil && c != inUse {
			e.rankedBytes -= c.ranking.bytes()
			c.ranking = nil
		}
	}
}

// drop forgets the older half of the specs when there are too many.
func (e *Indexed) drop() {
	if len(e.classes)*max(len(e.index.kinds.like), 16) <= maxPairs {
		return
	}
	old := e.oldest()
	for _, c := range old[:len(old)/2] {
		if c.ranking != nil {
			e.rankedBytes -= c.ranking.bytes()
		}
		delete(e.classes, c.spec)
	}
}

// oldest lists what is known of specs, those first that have not been asked for longest.
func (e *Indexed) oldest() []*specClass {
	out := make([]*specClass, 0, len(e.classes))
	for _, c := range e.classes {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *specClass) int { return int(a.used) - int(b.used) })
	return out
}

// forget drops all that was computed with the score.
func (e *Indexed) forget() {
	clear(e.classes)
	e.rankedBytes = 0
	e.front.class = nil
}

// Notes says what the engine has done since the last Sync, for [orbit.Plan.Notes]:
//
//	asked     calls of Best
//	searches  searches of the index that were begun
//	hits      choices without looking into a box: the search for the same spec went on
//	boxes     boxes that were looked into
//	ranked    choices from scores that are kept per spec
//	scanned   choices by rating all nodes
//	rated     calls of Score, but for those
//	moved     nodes that were moved in the index
//	rebuilds  indexes and rankings that were built anew
func (e *Indexed) Notes() []slog.Attr {
	return []slog.Attr{
		slog.Int("asked", e.stats.asked),
		slog.Int("hits", e.front.hits),
		slog.Int("searches", e.front.searches),
		slog.Int("boxes", e.front.boxes),
		slog.Int("rated", e.front.rated+e.stats.rated),
		slog.Int("moved", e.index.moves),
		slog.Int("rebuilds", e.index.builds+e.stats.rankings),
		slog.Int("ranked", e.stats.ranked),
		slog.Int("scanned", e.stats.scanned),
	}
}
