package place

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/victims"
)

// Eviction says where a capsule that fits nowhere goes if others make way for it.
type Eviction struct {
	// Choice is where the capsule goes once the victims have left. Its node still has them.
	Choice orbit.Choice
	// Victims are those that make way, the most important first: the ledger spares in that order if fewer need go. None: the
	// node takes the capsule as it is.
	Victims []*orbit.Capsule
	// Highest is the highest priority of a victim, where a gang that is evicted whole has that of its highest role.
	Highest int32
}

// On evicts the victims on a draft and places the capsule, as steps of its next proposal. The error is that of the first step
// which the draft refuses; the draft is unchanged then.
func (e *Eviction) On(draft *orbit.Draft, c *orbit.Capsule) error {
	if draft == nil || c == nil {
		return fmt.Errorf("place: %w: On needs a draft and a capsule", orbit.ErrInvalid)
	}
	start := draft.Checkpoint()
	for _, v := range e.Victims {
		do := orbit.Evict{Capsule: v.ID, For: c.ID}
		if c.Gang != "" {
			do.For, do.ForGang = "", c.Gang
		}
		if err := draft.Evict(do); err != nil {
			draft.Rollback(start)
			return err
		}
	}
	if err := draft.Place(c, e.Choice); err != nil {
		draft.Rollback(start)
		return err
	}
	return nil
}

// BestEvicting returns the node whose victims are the best by the order of kube-scheduler, over all nodes: lowest highest
// victim, least sum of priorities (each counted from the least that there is), fewest victims, latest start of the first of the
// highest victims, and then the lowest node id.
//
// On each node all of lower priority leave that may, and come back in order of importance as far as the capsule still fits:
// higher priority first, gangs before single capsules, larger gangs first, older capsules first. A gang gives what it has beyond
// its minimums; only where that does not do, gangs leave whole, on other nodes too. A capsule stays that the draft does not let
// go ([orbit.Draft.Evict]), as for a budget; nodes on which that happens come last. Scores have no say, except in the choice of
// devices. The error is a [*orbit.NoFit].
func (e *Exhaustive) BestEvicting(draft *orbit.Draft, c *orbit.Capsule) (Eviction, error) {
	if err := unevictable(draft, c); err != nil {
		return Eviction{}, err
	}
	e.rater.follow(draft, e.Score, e.Filter, e.Seed, e.MostParts)
	e.rater.look(&e.FilterVersion)
	draft.Ask(c)
	defer draft.Ask(nil)
	return e.rater.scanEvicting(draft, c)
}

// unevictable says why an engine cannot look for victims at all; nil: it can.
func unevictable(draft *orbit.Draft, c *orbit.Capsule) error {
	if c == nil {
		return unready(draft, nil)
	}
	return unready(draft, c.Spec)
}

// scanEvicting looks at every node.
func (r *rater) scanEvicting(draft *orbit.Draft, c *orbit.Capsule) (Eviction, error) {
	s := r.search(draft, c)
	var best victims.Found
	for n := range draft.Nodes() {
		f, ok := r.victimsOn(s, n, c.Spec)
		if ok && (best.Node == nil || f.Before(&best)) && s.Settle(&f) && (best.Node == nil || f.Before(&best)) {
			best = f
		}
	}
	return r.eviction(&best, c.Spec)
}

// search begins a search for victims.
func (r *rater) search(draft *orbit.Draft, c *orbit.Capsule) *victims.Search {
	r.victims.Pick = r.pickDevices
	r.victims.Begin(draft, c)
	return &r.victims
}

// victimsOn finds the victims on a node, unless the filter refuses it.
func (r *rater) victimsOn(s *victims.Search, n *orbit.NodeState, spec *orbit.Spec) (f victims.Found, ok bool) {
	if r.filter != nil && r.filter(n, r.draft.View().Report(n), spec) != "" {
		return f, false
	}
	return s.On(n)
}

// eviction makes a result of the best that was found, or says why there is none.
func (r *rater) eviction(best *victims.Found, spec *orbit.Spec) (Eviction, error) {
	if best.Node == nil {
		return Eviction{}, r.why(spec)
	}
	return Eviction{
		Choice:  orbit.Choice{Node: best.Node, Devices: best.Devices},
		Victims: best.Victims,
		Highest: best.Priority(),
	}, nil
}

// BestEvicting chooses as [Exhaustive.BestEvicting] does. It opens few nodes: it goes by what is free and what would be
// at most with all of a priority and below gone, of blocks of 64 nodes and then of single nodes, and looks at the capsules of
// those nodes alone that may be the best. What it has found out for a spec it keeps from call to call, as far as nodes do not
// change. The first call looks at all capsules, and a later one at those of the nodes that have changed.
func (e *Indexed) BestEvicting(draft *orbit.Draft, c *orbit.Capsule) (Eviction, error) {
	if err := unevictable(draft, c); err != nil {
		return Eviction{}, err
	}
	synced := draft != e.rater.draft || draft.Syncs() != e.rater.syncs
	e.follow(draft)
	if e.rater.look(&e.FilterVersion) {
		e.forget()
	}
	draft.Ask(c)
	defer draft.Ask(nil)
	e.stats.evicting++
	if !c.Spec.Shared() || draft.Bound() <= scanBelow {
		e.stats.scanned++
		return e.rater.scanEvicting(draft, c)
	}
	if e.evictions.follow(&e.rater); synced {
		e.evictions.drop()
	}
	best := e.evictions.best(&e.rater, c)
	return e.rater.eviction(&best, c.Spec)
}

// evictor finds the best victims for Indexed.
type evictor struct {
	index victimIndex
	// One search for each spec and priority that evicts, which is kept from call to call.
	searches map[evictClass]*evictSearch
	clock    uint64
	// Nodes whose capsules were looked at, blocks and nodes that were bounded, since the last Sync.
	opened, bounded int
}

// evictClass is what capsules have in common for which the same victims do.
type evictClass struct {
	spec    *orbit.Spec
	ceiling int32
}

// mostEvictBytes bounds the memory of the searches that are kept.
const mostEvictBytes = 128 << 20

// follow brings the index up to the draft.
func (e *evictor) follow(r *rater) {
	if e.index.follow(r) {
		clear(e.searches)
	}
}

// search returns the search for a class, up to date.
func (e *evictor) search(r *rater, c *orbit.Capsule) *evictSearch {
	class := evictClass{c.Spec, victims.Ceiling(r.draft.View().State(), c)}
	s := e.searches[class]
	if s == nil {
		if e.searches == nil {
			e.searches = map[evictClass]*evictSearch{}
		}
		s = &evictSearch{evictClass: class, wants: wantsOf(c.Spec)}
		e.searches[class] = s
	}
	e.clock++
	s.used = e.clock
	s.follow(e, r, c)
	return s
}

// drop drops the searches that have not been used for longest, if they all take too much memory.
func (e *evictor) drop() {
	bytes := 0
	for _, s := range e.searches {
		bytes += cap(s.heap)*int(unsafe.Sizeof(evictCandidate{})) + 1<<10
	}
	if bytes <= mostEvictBytes {
		return
	}
	old := slices.SortedFunc(maps.Keys(e.searches), func(a, b evictClass) int {
		return cmp.Compare(e.searches[a].used, e.searches[b].used)
	})
	for _, class := range old[:(len(old)+1)/2] {
		delete(e.searches, class)
	}
}

// best searches, best first.
func (e *evictor) best(r *rater, c *orbit.Capsule) (best victims.Found) {
	q, s := e.search(r, c), r.search(r.draft, c)
	var again []int32
	for len(q.heap) > 0 {
		top := q.heap[0]
		switch {
		case top.stage == blockStage:
			q.heap.Pop()
			q.expand(e, top.at)
		case top.version != e.index.nodes[top.at].version || top.stage == victimStage && top.volatile && top.stamp != q.stamps:
			q.heap.Pop() // the node has changed, and is there again
		case top.stage == leastStage:
			q.heap.Pop()
			e.opened++
			if f, ok := r.victimsOn(s, r.node(top.at), c.Spec); ok {
				q.found(top.at, &f, e)
			} else if f.Volatile {
				q.volatile = append(q.volatile, top.at)
			}
		default:
			f, ok := r.victimsOn(s, r.node(top.at), c.Spec)
			if ok = ok && s.Settle(&f); ok && f.Key == top.Key {
				best = f
				e.again(q, again)
				return best
			}
			q.heap.Pop() // the draft does not let all of them go, now
			if again = append(again, top.at); ok {
				q.found(top.at, &f, e)
			}
		}
	}
	e.again(q, again)
	return best
}

// again makes the next call look again at nodes where the draft did not let victims go.
func (e *evictor) again(q *evictSearch, nodes []int32) { q.volatile = append(q.volatile, nodes...) }

// evictSearch is a best-first search for one class. On its heap are blocks of nodes and nodes with a bound of their key, and nodes
// with their key.
type evictSearch struct {
	evictClass
	wants []wanted
	near  near
	heap  heapOfEvictions
	// What the search has seen of the index; and the state of the plan at which the keys of volatile nodes hold, with a number.
	begun    bool
	seen     uint64
	stamp    evictStamp
	stamps   uint32
	used     uint64
	volatile []int32
}

// evictStamp is all that the key of a volatile node depends on besides the node.
type evictStamp struct {
	syncs      uint64
	checkpoint int
	capsule    orbit.CapsuleID
}

// follow brings the search up to the index.
func (q *evictSearch) follow(e *evictor, r *rater, c *orbit.Capsule) {
	x := &e.index
	changed, lost := x.journal.since(q.seen)
	near := nearIn(r.draft, c.Spec)
	if !q.begun || lost || len(changed) > len(x.nodes)/4 || near.version != q.near.version || len(q.heap) > 4*len(x.nodes)+64 {
		q.begun, q.near = true, near
		q.heap, q.volatile = q.heap[:0], q.volatile[:0]
		for b := range x.blocks {
			x.measure(b)
			e.bounded++
			if key, ok := x.blocks[b].bound(q); ok && x.blocks[b].first != nil {
				q.heap.Push(evictCandidate{Key: key, node: x.blocks[b].first, at: int32(b), stage: blockStage})
			}
		}
	} else {
		for _, slot := range changed {
			q.add(e, slot)
		}
	}
	q.seen = x.journal.end()
	if stamp := (evictStamp{r.draft.Syncs(), r.draft.Checkpoint(), c.ID}); stamp != q.stamp {
		q.stamp = stamp
		q.stamps++
		volatile := q.volatile
		q.volatile = nil
		slices.Sort(volatile)
		for _, slot := range slices.Compact(volatile) {
			q.add(e, slot)
		}
	}
}

// expand replaces a block by its nodes.
func (q *evictSearch) expand(e *evictor, block int32) {
	for slot := block * blockNodes; slot < min((block+1)*blockNodes, int32(len(e.index.nodes))); slot++ {
		q.add(e, slot)
	}
}

// add adds a node with a bound of its key.
func (q *evictSearch) add(e *evictor, slot int32) {
	n := &e.index.nodes[slot]
	e.bounded++
	if n.state == nil || !q.suits(n.state.Node) {
		return
	}
	if key, ok := n.bound(q); ok {
		q.heap.Push(evictCandidate{Key: key, node: n.state.Node, at: slot, stage: leastStage, version: n.version})
	}
}

// found adds a node with its key.
func (q *evictSearch) found(slot int32, f *victims.Found, e *evictor) {
	if f.Volatile {
		q.volatile = append(q.volatile, slot)
	}
	q.heap.Push(evictCandidate{Key: f.Key, node: f.Node.Node, at: slot, stage: victimStage,
		version: e.index.nodes[slot].version, volatile: f.Volatile, stamp: q.stamps})
}

// suits reports whether a node could take the class if it were empty, as far as its description says.
func (q *evictSearch) suits(n *orbit.Node) bool {
	if !n.Schedulable() || !q.near.has(n) || q.spec.Devices.Count > 0 && !q.spec.Devices.Accepts(n.Devices.Model) {
		return false
	}
	for i := range q.spec.Require {
		if !q.spec.Require[i].Matches(n.Labels) {
			return false
		}
	}
	return true
}

// evictCandidate is a block of nodes, or a node.
type evictCandidate struct {
	victims.Key
	// The node, or that of a block with the lowest id.
	node *orbit.Node
	at   int32
	// Those of the node and of the search when this was found.
	version, stamp uint32
	stage          evictStage
	volatile       bool
}

// evictStage says what the key of a candidate is. Among equals the less precise stage comes first.
type evictStage uint8

const (
	blockStage evictStage = iota
	leastStage
	victimStage
)
