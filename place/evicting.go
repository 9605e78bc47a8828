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

// Eviction is a node for a capsule that may be placed nowhere, and the victims that have to leave that node first, or others of its domains from which
// the capsule has to be apart.
type Eviction struct {
	// Choice is where the capsule goes once the victims have left. Choice.Node is the node before that, with the victims on it.
	Choice orbit.Choice
	// Victims are the capsules that make way, the most important first: if not all of them need to leave, the ledger spares
	// victims in that order. Empty: the node takes the capsule as it is.
	Victims []*orbit.Capsule
	// Highest is the highest priority of a victim; the members of a gang that is evicted whole all count with that of its highest
	// role. math.MinInt32 if there is no victim.
	Highest int32
}

// On evicts the victims on a draft and places the capsule, as steps of the draft's next proposal. If the draft refuses a step, On
// returns that step's error and leaves the draft unchanged.
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

// BestEvicting looks at all nodes and returns the one whose victims are best. It compares nodes as kube-scheduler does, one rule
// after the other: the lowest priority of the highest victim; the least sum of the victims' priorities, each counted from the
// lowest priority that an int32 holds; the fewest victims; among the victims of the highest priority, the latest start of the
// one that started first; and the lowest node id.
//
// On each node it supposes that every capsule leaves that has a lower priority and may be evicted. Then it puts them back in order
// of importance, as far as the capsule still fits beside them: higher priority first, gangs before single capsules, larger gangs
// first, older capsules first. Those that cannot be put back are the victims. A gang loses only members beyond its minimums; only
// if that does not make enough room are gangs evicted whole, with their members on other nodes. A capsule that the draft
// does not let go ([orbit.Draft.Evict]), because of a budget for example, stays; a node with such a capsule comes after all nodes
// without one.
//
// Where rules [orbit.Apart] close a node, those are victims whom the capsule has to be apart from, or who have to be apart from it ([orbit.Spec.KeepsOff]),
// whatever room there is: on the node, and on others of its domain. They count as those do who make room, and what they give back on the node counts as
// room. If one of them may not leave, the node is no candidate. Nor is it if the rule counts others too: what has left and still stops, unless the
// capsule waits for that on the node, or what the plan has placed. So by rack nobody makes way on another node who has begun where agents confirm. A
// node that a rule [orbit.Even] closes stays closed, whoever leaves.
//
// Scores choose the devices, but not the node. The error is a [*orbit.NoFit]; if a budget has
// kept a capsule on its node that would have been a victim, it also wraps the [*orbit.Rejection] that says which.
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

// unevictable returns why the placement engine cannot search victims for the capsule at all; nil: it can.
func unevictable(draft *orbit.Draft, c *orbit.Capsule) error {
	if c == nil {
		return unready(draft, nil)
	}
	return unready(draft, c.Spec)
}

// scanEvicting searches victims on every node.
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

// search begins a search for victims for a capsule.
func (r *rater) search(draft *orbit.Draft, c *orbit.Capsule) *victims.Search {
	r.victims.Pick = r.pickDevices
	r.victims.Begin(draft, c)
	return &r.victims
}

// victimsOn finds the victims on a node, unless the filter excludes the node.
func (r *rater) victimsOn(s *victims.Search, n *orbit.NodeState, spec *orbit.Spec) (f victims.Found, ok bool) {
	if r.filter != nil && r.filter(n, r.draft.View().Report(n), spec) != "" {
		return f, false
	}
	return s.On(n)
}

// eviction turns the best find into a result, or into an error if nothing was found.
func (r *rater) eviction(best *victims.Found, spec *orbit.Spec) (Eviction, error) {
	if best.Node == nil {
		if r.victims.Refusal != nil {
			return Eviction{}, &keptByBudget{r.why(spec), r.victims.Refusal}
		}
		return Eviction{}, r.why(spec)
	}
	return Eviction{
		Choice:  orbit.Choice{Node: best.Node, Devices: best.Devices},
		Victims: best.Victims,
		Highest: best.Priority(),
	}, nil
}

// keptByBudget is why nothing fits where a budget has kept a victim on its node.
type keptByBudget struct {
	nofit   *orbit.NoFit
	refusal *orbit.Rejection
}

// Error returns the text of the NoFit and the reason of the refusal.
func (e *keptByBudget) Error() string { return e.nofit.Error() + "; " + e.refusal.Reason }

// Unwrap returns both.
func (e *keptByBudget) Unwrap() []error { return []error{e.nofit, e.refusal} }

// BestEvicting chooses as [Exhaustive.BestEvicting] does, but searches victims on few nodes. For each block of 64 nodes, and for
// each node, an index knows what is free, and what would be free at most if all capsules up to a priority left. From that
// follows how good the victims there can be at best, and only nodes that may still be the best one are searched. What it has
// found out for a spec it keeps for later calls, until the nodes change. The first call looks at all capsules, a later call only
// at those on nodes that have changed.
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

// evictor finds the node with the best victims for Indexed, by an index and by searches that are kept.
type evictor struct {
	index victimIndex
	// One search for each spec and priority that evicts, which is kept from call to call.
	searches map[evictClass]*evictSearch
	clock    uint64
	// How many nodes were searched for victims, and how many bounds of nodes and blocks were computed, since the last Sync.
	opened, bounded int
}

// evictClass is what capsules share that have the same victims on every node.
type evictClass struct {
	spec *orbit.Spec
	// Only capsules of lower priority than this may be evicted.
	ceiling int32
	// Whether the capsule still has to stop elsewhere, so that only nodes that confirm take it.
	stops bool
}

// mostEvictBytes bounds the memory of the searches that are kept, about.
const mostEvictBytes = 128 << 20

// follow brings the index up to date with the draft.
func (e *evictor) follow(r *rater) {
	if e.index.follow(r) {
		clear(e.searches)
	}
}

// search returns the search for the capsule's class, up to date with the index.
func (e *evictor) search(r *rater, c *orbit.Capsule) *evictSearch {
	class := evictClass{c.Spec, victims.Ceiling(r.draft.View().State(), c), victims.Stops(c)}
	s := e.searches[class]
	if s == nil {
		if e.searches == nil {
			e.searches = map[evictClass]*evictSearch{}
		}
		s = &evictSearch{evictClass: class, wants: wantsOf(c.Spec), devices: devicesWanted(&c.Spec.Devices), victims: &r.victims}
		e.searches[class] = s
	}
	e.clock++
	s.used = e.clock
	s.follow(e, r, c)
	return s
}

// drop forgets the half of the searches that was not used for longest, if all of them take more memory than mostEvictBytes.
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

// best returns the best find: it takes the most promising candidate from the heap until that one has its exact key.
func (e *evictor) best(r *rater, c *orbit.Capsule) (best victims.Found) {
	s := r.search(r.draft, c)
	q := e.search(r, c)
	var again []int32
	for len(q.heap) > 0 {
		top := q.heap[0]
		switch {
		case top.stage == blockStage && q.refineBlock(e, &top):
			q.heap.Pop()
			q.heap.Push(top)
		case top.stage <= singleStage:
			q.heap.Pop()
			q.expand(e, &top)
		case top.version != q.version(e, top.at) || top.stage == victimStage && top.volatile && top.stamp != q.stamps:
			q.heap.Pop() // an outdated candidate: the node has a newer one on the heap
		case top.stage == leastStage && q.refine(e, &top):
			q.heap.Pop()
			q.heap.Push(top)
		case top.stage <= aloneStage:
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
			q.heap.Pop() // at this point of the plan the draft does not let all victims go
			if again = append(again, top.at); ok {
				q.found(top.at, &f, e)
			}
		}
	}
	e.again(q, again)
	q.refusal = victims.First(q.refusal, s.Refusal)
	s.Refusal = q.refusal
	return best
}

// again makes a later call search nodes anew on which the draft did not let the victims go.
func (e *evictor) again(q *evictSearch, nodes []int32) { q.volatile = append(q.volatile, nodes...) }
