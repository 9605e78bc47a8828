package place

import (
	"log/slog"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/internal/slots"
	"github.com/orbitsched/orbit/score"
)

// Indexed is the [orbit.PlacementEngine] for large constellations. It chooses exactly the node that [Exhaustive]
// chooses, but rates only a few nodes, in one of three ways:
//
//	few      The spec requires a node by its id, or a label that at most 512 nodes carry, such as a rack or a host name,
//	         or one of several such alternatives: it rates these nodes.
//	search   The score is Bounded: it searches a k-d tree over the node states, best first. All specs share the tree,
//	         and each has one bound for each kind of node.
//	keep     Otherwise, or if a search has looked at more than a sixteenth of the nodes: it keeps the scores of all
//	         nodes for the spec, and rates a node again only when it has changed. When the tree has been built anew,
//	         it tries a search again.
//
// The zero value works. Do not change the fields after the first Best, and call it from one goroutine at a time.
// [Indexed.Best] says which specs and scores each way takes, and how much memory the engine keeps.
type Indexed struct {
	// Score rates the nodes; nil: [score.Spread].
	Score orbit.Score
	// Filter excludes nodes from the choice; nil: none.
	Filter Filter
	// FilterVersion returns the version of a Filter that reads more than its arguments; nil: the Filter reads nothing
	// else.
	FilterVersion FilterVersion
	// Seed breaks ties by a hash of the node id; 0: the lowest node id wins.
	Seed uint64
	// MostParts is the largest number of parts into which the nodes are divided while many proposals lose to others
	// ([orbit.View.Part]); 0: 8. With 1 the engine always chooses among all nodes.
	MostParts int

	rater    rater
	index    boxIndex
	frontier frontier
	// The searches of the districts of the class in frontier. While these are used, frontier itself has no search.
	districts []*frontier
	visits    []visit
	classes   map[*orbit.Spec]*specClass
	// Counts calls of Best.
	clock           uint64
	version         uint64
	scratch         slots.Set
	candidates      []int32
	tournamentBytes int
	stats           indexedStats
	evictions       evictor
	// Whether a search is under way. It is still set at the next call if a score has panicked.
	searching bool
}

// indexedStats counts what was done since the last Sync. The index and the frontiers have further counts.
type indexedStats struct{ asked, evicting, scanned, rated, ranked, tournaments int }

// sync resets what a Sync of the draft outdates, if there was one since the last call.
func (e *Indexed) sync(draft *orbit.Draft) {
	parts, from := e.rater.parts, e.rater.from
	synced, other := e.rater.sync(draft, e.Score, e.Filter, e.Seed, e.MostParts)
	if !synced {
		return
	}
	if parts != e.rater.parts || from != e.rater.from {
		e.reorder()
	}
	x := &e.index
	if other {
		x.reset()
		e.forget()
	}
	x.rater = &e.rater
	x.bounded, _ = e.rater.score.(score.Bounded)
	x.builds, x.nodes.moves, x.nodes.builds = 0, 0, 0
	e.frontier.class, e.stats = nil, indexedStats{}
	e.frontier.counts = frontierCounts{}
	for _, f := range e.districts {
		f.counts = frontierCounts{}
	}
	e.evictions.opened, e.evictions.bounded, e.evictions.index.read = 0, 0, 0
	e.drop()
}

// scanBelow is the number of nodes up to which rating all of them is as fast as an index.
const scanBelow = 16

// Best implements [orbit.PlacementEngine].
//
// All scores in package score are Bounded, except FGD, Random, and those made by Func. Labels divide the nodes into at
// most 128 kinds. A label that would make more kinds does not divide the nodes; they are listed by its values instead.
// If a spec prefers or spreads across such a label, the search rates the nodes that carry it one by one, at most 512.
//
// Indexed recognises specs by identity: a ledger hands out one pointer for all equal specs. It rates all nodes, as
// Exhaustive does, in three cases: for a spec that does not come from a ledger; on 16 nodes or fewer; and for a score
// that draws lots, such as Random, because no rating can be kept from one draw to the next. [Sampled] is fast there.
//
// The Indexed engines that plan on states of one ledger share an index, even from different goroutines. Engines with
// Seed 0 share one, and all other engines share another. So a further engine costs little memory, and the first engine
// that sees a commit moves the nodes for all engines. The first engine has an index of its own until a second one comes.
//
// Memory is bounded: the engine forgets the specs that have not been asked for longest. It keeps at most 128 MiB of scores,
// and everything else for at most some 260,000 pairs of a spec and a kind of node.
func (e *Indexed) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	if err := unready(draft, spec); err != nil {
		return orbit.Choice{}, err
	}
	e.sync(draft)
	if e.rater.readVersion(&e.FilterVersion) {
		e.forget()
	}
	e.stats.asked++
	if e.rater.draw() || !spec.Shared() || draft.Bound() <= scanBelow {
		e.stats.scanned++
		near := choiceIn(draft, spec)
		return e.rater.scan(spec, &near)
	}
	c := e.class(spec)
	if e.searching { // a score panicked during the last search, which may have left the index half changed
		e.searching = false
		e.index.reset()
	}
	e.searching = true
	best, ok := e.choose(c)
	e.searching = false
	if !ok {
		best = e.rank(c)
	}
	return e.rater.choice(&best, spec)
}

// choose finds the best node by a short list or by a search; false: neither serves this class, and rank has to.
func (e *Indexed) choose(c *specClass) (best pick, ok bool) {
	if e.index.update(c) {
		e.frontier.class = nil
	}
	if best, ok = e.amongFew(c); ok {
		return best, true
	}
	return e.search(c)
}

// amongFew rates the nodes that carry a label which the spec requires, or the nodes of the members near which it has to
// be; false: the spec requires no label by which nodes are listed and no member's node, or there are too many such nodes.
func (e *Indexed) amongFew(c *specClass) (best pick, ok bool) {
	e.candidates, ok = e.index.nodes.labels.candidates(e.candidates, c.spec, &c.near)
	if e.candidates, ok = e.besideMembers(c.spec, ok); !ok {
		return best, false
	}
	for _, i := range e.candidates {
		e.stats.rated++
		p, fits := e.rater.rate(e.rater.node(i), c.spec, &c.near)
		if fits && (best.node == nil || e.rater.better(&p, &best)) {
			best = p
		}
	}
	return best, true
}

// besideMembers returns the nodes of the members near which, by node, capsules of the spec have to be, if these are fewer
// than the candidates. Known says whether the candidates are known; it returns the same of its result.
func (e *Indexed) besideMembers(spec *orbit.Spec, known bool) ([]int32, bool) {
	draft, most := e.rater.draft, e.index.nodes.labels.few()
	if known {
		most = len(e.candidates) - 1
	}
	for near := range spec.AllNear {
		if near.Level != orbit.NodeKey {
			continue
		}
		members, _ := draft.MembersBy(spec, near.Group, orbit.NodeKey)
		if len(members) > most || len(members) == 0 && spec.IsIn(near.Group) { // the first member goes anywhere
			continue
		}
		known, most, e.candidates = true, len(members)-1, e.candidates[:0]
		for id := range members {
			if n := draft.View().State().Node(orbit.NodeID(id)); n != nil {
				e.candidates = append(e.candidates, int32(n.Index()))
			}
		}
	}
	return e.candidates, known
}

// class returns what has been computed for a spec, up to date with the draft. It ends the search of the class if
// domains have changed in a way that the search cannot take up.
func (e *Indexed) class(spec *orbit.Spec) *specClass {
	if v, ok := e.rater.score.(score.Versioned); ok {
		if version := v.Version(); version != e.version {
			e.version = version
			e.forget()
		}
	}
	c := e.classes[spec]
	if c == nil {
		c = newSpecClass(spec, e.index.bounded)
		if e.classes == nil {
			e.classes = map[*orbit.Spec]*specClass{}
		}
		e.classes[spec] = c
	}
	e.clock++
	c.used = e.clock
	c.parted, c.syncs = c.parted && c.syncs == e.rater.syncs, e.rater.syncs
	near, opened := choiceIn(e.rater.draft, spec), uint64(0)
	for _, level := range near.rules {
		// A search drops nodes that a rule closes. If their domain opens again, begin notices that by the set of open
		// kinds. Where that set does not show it, opened is another number, and the search begins anew.
		if !slices.Contains(c.closing, level) || len(e.index.nodes.kinds.like) > kd.Apart && !c.divided() {
			opened += e.rater.draft.DomainVersion(spec, level)
		}
	}
	if near.version != c.near.version {
		anew := near.version.near != c.near.version.near || !slices.Equal(near.rules, c.near.rules)
		if c.meet(near); anew && e.frontier.class == c {
			e.frontier.class = nil
		}
	}
	if opened != c.opened && e.frontier.class == c {
		e.frontier.class = nil
	}
	c.opened, c.near.company = opened, near.company
	return c
}

// search searches the tree that all specs share; false: the score has no bounds for this spec, or a search does not
// pay.
func (e *Indexed) search(c *specClass) (best pick, ok bool) {
	if c.bounded == nil || c.unbounded || c.diverges(&e.index.nodes) || !e.begin(c) {
		return best, false
	}
	if c.divided() {
		best, ok = e.searchDistricts(c)
	} else {
		best, ok = e.frontier.next(&e.index, &e.rater)
	}
	if !ok {
		c.divergedIn = e.index.nodes.built
	}
	return best, ok
}

// begin begins a search for a class, or adds the nodes that have changed to the search under way. It reports false if a
// search cannot serve the class: the score has no bounds for the spec, too many nodes are exceptions to the bounds, or
// the spec has preferences about company that the bounds do not cover.
func (e *Indexed) begin(c *specClass) bool {
	x := &e.index
	touched, all := x.noteChanged()
	if all {
		x.reset()
		x.update(c)
	}
	if !all && e.frontier.class == c {
		if c.divided() || len(c.closing) == 0 || e.frontier.kinds == c.kinds(&x.nodes) {
			for _, slot := range touched {
				if f := e.searchOf(c, slot); f.class == c {
					f.add(slot, x)
				}
			}
			return true
		}
		c.parted = true
	}
	e.frontier.class = nil
	x.moveNodes(c)
	if c.respond(&x.nodes); c.unbounded || !c.except(&x.nodes.labels) || !c.searches(&x.nodes.kinds) {
		return false
	}
	c.settleClosing(&x.nodes.kinds)
	if c.divided() {
		c.settleDistricts(&x.nodes.kinds)
		e.beginDistricts(c)
	} else {
		e.frontier.begin(c, x, wholeCountry, c.kinds(&x.nodes))
	}
	return true
}

// rank chooses from the scores of all nodes, which it keeps for this spec in a tournament.
func (e *Indexed) rank(c *specClass) pick {
	if c.tournament == nil {
		c.tournament = &tournament{}
	}
	before := c.tournament.bytes()
	rated, all := c.tournament.sync(c, &e.rater, &e.scratch)
	e.stats.rated += rated
	e.stats.ranked++
	e.stats.tournaments += btoi(all)
	if e.tournamentBytes += c.tournament.bytes() - before; e.tournamentBytes > maxTournamentBytes {
		e.dropTournaments(c)
	}
	if c.tournament.districts != nil {
		return e.rankDistricts(c)
	}
	return c.tournament.best(c, &e.rater)
}

// Bounds of what is kept per spec: the bytes of all tournaments, and the number of pairs of a spec and a kind of node.
const (
	maxTournamentBytes = 128 << 20
	maxPairs           = 1 << 18
)

// dropTournaments drops the tournaments of the specs that have not been asked for longest, until tournaments take half
// of maxTournamentBytes. It keeps the tournament in use.
func (e *Indexed) dropTournaments(inUse *specClass) {
	for _, c := range e.oldest() {
		if e.tournamentBytes <= maxTournamentBytes/2 {
			return
		}
		if c.tournament != nil && c != inUse {
			e.tournamentBytes -= c.tournament.bytes()
			c.tournament, c.divergedIn = nil, 0
		}
	}
}

// drop forgets the older half of the specs if there are too many.
func (e *Indexed) drop() {
	if len(e.classes)*max(len(e.index.nodes.kinds.like), 16) <= maxPairs {
		return
	}
	old := e.oldest()
	for _, c := range old[:len(old)/2] {
		if c.tournament != nil {
			e.tournamentBytes -= c.tournament.bytes()
		}
		delete(e.classes, c.spec)
	}
}

// oldest lists the classes, the ones used longest ago first.
func (e *Indexed) oldest() []*specClass {
	out := make([]*specClass, 0, len(e.classes))
	for _, c := range e.classes {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *specClass) int { return int(a.used) - int(b.used) })
	return out
}

// reorder outdates all results that depend on the division of the nodes into parts, which has changed: tournaments
// compare their scores anew, and specs whose searches did not converge get another try.
func (e *Indexed) reorder() {
	for _, c := range e.classes {
		c.divergedIn = 0
		if c.tournament != nil {
			c.tournament.cursor = 0
		}
	}
}

// forget drops all that was computed with the score or the filter.
func (e *Indexed) forget() {
	clear(e.classes)
	e.tournamentBytes = 0
	e.frontier.class = nil
	e.evictions.forget()
}

// Notes returns counts of what the engine has done since the last Sync, for [orbit.Plan.Notes]:
//
//	asked     calls of Best
//	searches  searches of the index that were begun
//	hits      choices for which the search for the same spec continued without expanding a box
//	boxes     boxes expanded
//	ranked    choices from scores that are kept per spec
//	scanned   choices by rating all nodes
//	parts     number of parts into which the nodes are divided because proposals lose to others
//	rated     calls of Score, without those of the scanned choices
//	unspread  choices of nodes outside all domains over which their specs are spread ([orbit.Spec].Spread): all others
//	          are full, or the level is a label that no node has
//	moved     nodes moved in the index
//	rebuilds  times that the index, or the kept scores of a spec, were built anew
//
// and of BestEvicting, if it was called:
//
//	evicting  calls of it
//	opened    nodes whose capsules were looked at to find victims
//	bounded   blocks of nodes, and nodes, that were compared by bounds
//	read      nodes whose capsules were listed because they had changed
//
// Work on the shared index does not count, because any of the engines may be the one that comes first and does it.
func (e *Indexed) Notes() []slog.Attr {
	done := e.frontier.counts
	for _, f := range e.districts {
		done.hits, done.searches = done.hits+f.counts.hits, done.searches+f.counts.searches
		done.boxes, done.rated = done.boxes+f.counts.boxes, done.rated+f.counts.rated
	}
	notes := []slog.Attr{
		slog.Int("asked", e.stats.asked),
		slog.Int("hits", done.hits),
		slog.Int("searches", done.searches),
		slog.Int("boxes", done.boxes),
		slog.Int("rated", done.rated+e.stats.rated),
		slog.Int("moved", e.index.nodes.moves),
		slog.Int("rebuilds", e.index.builds+e.index.nodes.builds+e.stats.tournaments),
		slog.Int("ranked", e.stats.ranked),
		slog.Int("scanned", e.stats.scanned),
		slog.Int("parts", e.rater.parts),
		slog.Int("unspread", e.rater.unspread),
	}
	if e.stats.evicting > 0 {
		notes = append(notes, slog.Int("evicting", e.stats.evicting), slog.Int("opened", e.evictions.opened),
			slog.Int("bounded", e.evictions.bounded), slog.Int("read", e.evictions.index.read))
	}
	return notes
}
