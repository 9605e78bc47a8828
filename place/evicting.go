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

// Eviction is a node for a capsule that fits nowhere as the nodes are, and the victims that have to leave first.
// Victims are on that node or, where a rule [orbit.Apart] closes one of its domains, on other nodes of that domain.
type Eviction struct {
	// Choice is where the capsule goes once the victims have left. Choice.Node is the node before the evictions, with
	// the victims on it.
	Choice orbit.Choice
	// Victims are the capsules that are evicted, the most important first. If not all of them need to leave, the ledger
	// spares victims in that order. Empty: the node takes the capsule as it is.
	Victims []*orbit.Capsule
	// Highest is the highest priority of a victim. All members of a gang that is evicted whole count with the priority
	// of its highest role. math.MinInt32 if there is no victim.
	Highest int32
}

// On evicts the victims on a draft and places the capsule, as steps of the draft's next proposal. If the draft refuses
// a step, On returns that step's error and leaves the draft unchanged.
func (e *Eviction) On(draft *orbit.Draft, c *orbit.Capsule) error {
	if draft == nil || c == nil {
		return fmt.Errorf("place: %w: On needs a draft and a capsule", orbit.ErrInvalid)
	}
	start := draft.Checkpoint()
	for _, v := range e.Victims {
		do := orbit.Evict{Capsule: v.ID, For: c.ID}
		if c.Gang() != "" {
			do.For, do.ForGang = "", c.Gang()
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

// BestEvicting looks at all nodes and returns the one whose victims are best. Nodes on which the capsule should rather not
// start ([orbit.Draft.Avoids]) come last. Else it compares nodes as kube-scheduler does, one rule after the other: the
// lowest priority of the highest victim; the least sum of the victims' priorities, each counted from the lowest priority
// that an int32 holds; the fewest victims; among the victims of the highest priority, the latest start of the one that
// started first; and the lowest node id.
//
// On each node it first supposes that all capsules leave that have a lower priority and may be evicted. It then puts
// these capsules back in order of importance, each only if the new capsule still fits beside it: higher priority first,
// gangs before single capsules, larger gangs first, older capsules first. The capsules that cannot be put back are the
// victims. A gang at first loses only members beyond the minimums of its roles. Only if that does not make enough room
// are gangs evicted whole, including their members on other nodes. A capsule that the draft refuses to evict
// ([orbit.Draft.Evict]), because of a budget for example, stays. A node with such a capsule ranks after all nodes
// without one.
//
// Rules [orbit.Apart] may close a node because of capsules from which the new capsule must be kept apart, or which must
// be kept apart from it ([orbit.Spec.KeepsOff]). All these capsules are victims, even if the node has enough room:
// those on the node and those on other nodes of the closed domain. They count like victims that make room, and the
// resources that they release on the node count as room. The node is no candidate if one of these capsules may not be
// evicted, or if the rule also counts something that an eviction does not remove: a capsule that the plan has placed,
// or one that has left its node and still stops. The exception is a capsule that stops on the node itself, if the node
// confirms that it has stopped: the new capsule waits for that. So a rule over racks evicts no capsule that has begun
// on another node where agents confirm. A node that a rule [orbit.Even] closes is no candidate, whoever leaves.
//
// For a capsule that names a queue, capsules of other queues of its tree are victims by the rules of [orbit.Queue], at any
// priority: only those of queues that borrow, and only as far as the share of their queue does not fall below that of the
// capsule's own. They leave before capsules that leave because of their priority: first those of the queue with the highest share, there
// the lowest priority, and then the newest. Where the quotas do not admit the capsule, victims may be on any nodes.
//
// The score chooses the devices, but not the node. The error is a [*orbit.NoFit]. If a budget has kept a capsule on its
// node that would have been a victim, the error also wraps the [*orbit.Rejection] that names budget and capsule.
func (e *Exhaustive) BestEvicting(draft *orbit.Draft, c *orbit.Capsule) (Eviction, error) {
	if err := unevictable(draft, c); err != nil {
		return Eviction{}, err
	}
	e.rater.sync(draft, e.Score, e.Filter, e.Seed, e.MostParts)
	e.rater.readVersion(&e.FilterVersion)
	draft.LookAs(c)
	defer draft.LookAs(nil)
	return e.rater.scanEvicting(draft, c)
}

// unevictable returns why the placement engine cannot search victims for the capsule at all, or nil if it can.
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
	if s.Hopeless() {
		return r.eviction(&best, c.Spec)
	}
	for n := range draft.Nodes() {
		f, ok := r.victimsOn(s, n, c.Spec)
		// Settle is the expensive step, and may make the find worse: so it is called only for a find that is better
		// than the best so far, and the result is compared again.
		if ok && (best.Node == nil || f.Before(&best)) && s.Settle(&f) && (best.Node == nil || f.Before(&best)) {
			best = f
		}
	}
	return r.eviction(&best, c.Spec)
}

// search begins a search for the victims of a capsule, with the score choosing the devices.
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
		kept := r.victims.Refusal != nil
		why := r.why(spec).DespiteEvictions(kept)
		if kept {
			return Eviction{}, &keptByBudget{why, r.victims.Refusal}
		}
		return Eviction{}, why
	}
	return Eviction{
		Choice:  orbit.Choice{Node: best.Node, Devices: best.Devices},
		Victims: best.Victims,
		Highest: best.Priority(),
	}, nil
}

// keptByBudget is the error of a search in which a budget has kept a victim on its node, and no node was found.
type keptByBudget struct {
	nofit   *orbit.NoFit
	refusal *orbit.Rejection
}

// Error returns the text of the NoFit and the reason of the refusal.
func (e *keptByBudget) Error() string { return e.nofit.Error() + "; " + e.refusal.Reason }

// Unwrap returns the NoFit and the refusal.
func (e *keptByBudget) Unwrap() []error { return []error{e.nofit, e.refusal} }

// BestEvicting chooses exactly as [Exhaustive.BestEvicting] does, but searches victims on few nodes only. An index
// keeps, for each node and for each block of 64 nodes, the free capacity, and upper bounds of what would be free if all
// capsules up to some priority left. From these numbers follows a bound of how good the victims there can be. Only
// nodes whose bound may beat the best find are searched. Results for a spec are kept for later calls until the nodes
// change. The first call reads all capsules, a later call only those on nodes that have changed.
func (e *Indexed) BestEvicting(draft *orbit.Draft, c *orbit.Capsule) (Eviction, error) {
	if err := unevictable(draft, c); err != nil {
		return Eviction{}, err
	}
	synced := draft != e.rater.draft || draft.Syncs() != e.rater.syncs
	e.sync(draft)
	if e.rater.readVersion(&e.FilterVersion) {
		e.forget()
	}
	draft.LookAs(c)
	defer draft.LookAs(nil)
	e.stats.evicting++
	if !c.Spec.Shared() || draft.Bound() <= scanBelow || victims.Reclaims(draft.View().State(), c) {
		e.stats.scanned++
		return e.rater.scanEvicting(draft, c)
	}
	if e.evictions.sync(&e.rater); synced {
		e.evictions.drop()
	}
	best := e.evictions.best(&e.rater, c)
	return e.rater.eviction(&best, c.Spec)
}

// evictor finds the node with the best victims for Indexed. It combines an index of bounds with one best-first search
// for each class, kept from call to call.
type evictor struct {
	index victimIndex
	// One search for each class of capsules that evict.
	searches map[evictClass]*evictSearch
	// The memory that the searches take, each as it was after its last use.
	bytes int
	clock uint64
	// How many nodes were searched for victims, and how many bounds of nodes and blocks were computed, since the last
	// Sync.
	opened, bounded int
}

// evictClass identifies the capsules that have the same victims on every node.
type evictClass struct {
	spec *orbit.Spec
	// Only capsules of lower priority than this may be evicted.
	ceiling int32
	// Whether the capsule still has to stop on another node, so that only nodes that confirm take it.
	stops bool
}

// mostEvictBytes is about the most memory that kept searches take. A Sync that finds more drops half of them.
const mostEvictBytes = 128 << 20

// sync brings the index up to date with the draft. If the index had to list all nodes anew, it drops all searches.
func (e *evictor) sync(r *rater) {
	if e.index.sync(r) {
		e.forget()
	}
}

// forget drops all searches.
func (e *evictor) forget() {
	clear(e.searches)
	e.bytes = 0
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
	s.sync(e, r, c)
	return s
}

// weigh counts the memory that a search takes after it has been used. The sum over all searches is kept, because there
// may be a search for each of very many specs.
func (e *evictor) weigh(s *evictSearch) {
	e.bytes -= s.bytes
	s.bytes = cap(s.heap)*int(unsafe.Sizeof(evictCandidate{})) + 4*(cap(s.volatile)+cap(s.renewed)) + 1<<10
	e.bytes += s.bytes
}

// drop forgets the less recently used half of the searches if all searches together take more memory than
// mostEvictBytes.
func (e *evictor) drop() {
	if e.bytes <= mostEvictBytes {
		return
	}
	old := slices.SortedFunc(maps.Keys(e.searches), func(a, b evictClass) int {
		return cmp.Compare(e.searches[a].used, e.searches[b].used)
	})
	for _, class := range old[:(len(old)+1)/2] {
		e.bytes -= e.searches[class].bytes
		delete(e.searches, class)
	}
}

// best returns the best find. It takes the first candidate from the heap, again and again, and makes its key more
// exact: it raises the bound of a block, replaces the block by its nodes, raises the bound of a node, and then searches
// the node for victims. It ends when the first candidate is a searched node whose victims the draft lets go: no other
// node can have a better key.
func (e *evictor) best(r *rater, c *orbit.Capsule) (best victims.Found) {
	s := r.search(r.draft, c)
	q := e.search(r, c)
	defer e.weigh(q)
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
			q.heap.Pop() // outdated: the heap has a newer candidate for the node
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
			q.heap.Pop() // as the plan is now, the draft refuses to evict some victim
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

// again marks nodes on which the draft refused an eviction as volatile: a later call, in another state of the plan,
// searches them anew.
func (e *evictor) again(q *evictSearch, nodes []int32) { q.volatile = append(q.volatile, nodes...) }
