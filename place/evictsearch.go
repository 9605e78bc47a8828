package place

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/victims"
)

// evictSearch is a best-first search for one class. Its heap has candidates of two sorts: blocks and nodes that have
// not been searched, with a bound (a key that no find there can beat), and searched nodes, with the key of their
// victims.
type evictSearch struct {
	evictClass
	wants []wanted
	// The amount that all devices of the request take together.
	devices freeDevices
	near    near
	// Finds the capsules that have to leave because of rules of company.
	victims *victims.Search
	heap    heapOfEvictions
	begun   bool
	// The position up to which the search has read the journal of the index.
	seen uint64
	// The state of the plan for which the keys of volatile nodes hold, and a number that stands for that state.
	stamp  evictStamp
	stamps uint32
	// When the search was last used, by evictor.clock, and how much memory it took then (weigh).
	used  uint64
	bytes int
	// The refusal by which a budget has kept a victim on its node in the state of the plan that stamp describes; nil:
	// there was none.
	refusal *orbit.Rejection
	// Nodes whose keys depend on more than the node itself. They are searched anew when the stamp changes.
	volatile []int32
	// For each node, how often a node has changed that shares a domain with it on a level of a rule of company. Nil
	// until that happens for the first time.
	renewed []uint32
}

// evictStamp is what the key of a volatile node depends on besides the node: the view, the steps of the plan, and the
// capsule. The number of steps alone (checkpoint) would not do: a plan that is rolled back and takes as many other
// steps has the same number, but another position (changes) in the journal of the draft.
type evictStamp struct {
	syncs, changes uint64
	checkpoint     int
	capsule        orbit.CapsuleID
}

// sync brings the search up to date with the index: it puts the nodes that have changed on the heap. It begins the
// search anew if more than a quarter of the nodes have changed, if the class may go to other domains, or if outdated
// candidates have filled the heap.
func (q *evictSearch) sync(e *evictor, r *rater, c *orbit.Capsule) {
	x := &e.index
	changed, lost := x.journal.since(q.seen)
	near := nearIn(r.draft, c.Spec)
	if !q.begun || lost || len(changed) > len(x.nodes)/4 || q.elsewhere(&near, r) || len(q.heap) > 4*len(x.nodes)+64 {
		q.begun, q.near = true, near
		q.heap, q.volatile = slices.Grow(q.heap[:0], len(x.blocks)), q.volatile[:0]
		for b := range x.blocks {
			x.measure(b)
			e.bounded++
			if key, ok := x.blocks[b].bound(q); ok && x.blocks[b].first != nil {
				q.heap.Push(evictCandidate{Key: key, node: x.blocks[b].first, at: int32(b), stage: blockStage})
			}
		}
	} else {
		for i, slot := range changed {
			if x.nodes[slot].journaled == q.seen+uint64(i) { // else a later entry of the journal names the node again
				q.add(e, slot)
			}
		}
		q.near = near
		q.renew(e, changed)
	}
	q.seen = x.journal.end()
	if stamp := (evictStamp{r.draft.Syncs(), x.cursor, r.draft.Checkpoint(), c.ID}); stamp != q.stamp {
		q.stamp, q.refusal = stamp, nil
		q.stamps++
		volatile := q.volatile
		q.volatile = nil
		slices.Sort(volatile)
		for _, slot := range slices.Compact(volatile) {
			q.add(e, slot)
		}
	}
}

// elsewhere reports whether the domains that are open to the class may have changed in a way that the changed nodes do
// not show. A rule Even is such a case, because it closes domains by counts of other domains, and so is a change of
// rules with a Sync.
func (q *evictSearch) elsewhere(now *near, r *rater) bool {
	return now.version.near != q.near.version.near || !slices.Equal(now.rules, q.near.rules) ||
		now.version.rules != q.near.version.rules && (len(q.spec.Even) > 0 || r.draft.Syncs() != q.stamp.syncs)
}

// renew puts all nodes on the heap anew that share a domain with a changed node, on a level of a rule of company: their
// victims may be others now.
func (q *evictSearch) renew(e *evictor, changed []int32) {
	var all []int32
	for _, slot := range changed {
		if n := e.index.nodes[slot].state; n != nil {
			all = q.victims.Neighbours(all, n, q.near.rules)
		}
	}
	slices.Sort(all)
	for _, slot := range slices.Compact(all) {
		for len(q.renewed) < len(e.index.nodes) {
			q.renewed = append(q.renewed, 0)
		}
		q.renewed[slot]++
		q.add(e, slot)
	}
}

// version returns a number that is another one whenever the key of a node may be outdated: after a change of the node,
// or of a node that shares a domain of a rule with it.
func (q *evictSearch) version(e *evictor, slot int32) uint32 {
	v := e.index.nodes[slot].version
	if int(slot) < len(q.renewed) {
		v += q.renewed[slot] // both only rise, so no sum comes twice
	}
	return v
}

// expandAtOnce is how many nodes of a block are put on the heap at a time.
const expandAtOnce = 16

// expand puts the most promising nodes of a block on the heap. For the other nodes it puts the block back, with the key
// of the best of them. So the heap stays small if the search ends soon. Nodes that rank before the candidate of the
// block are on the heap already: an earlier call has put them there, or they have changed since.
func (q *evictSearch) expand(e *evictor, block *evictCandidate) {
	var best [expandAtOnce + 1]evictCandidate
	n := 0
	for slot := block.at * blockNodes; slot < min((block.at+1)*blockNodes, int32(len(e.index.nodes))); slot++ {
		c, ok := q.candidate(e, slot)
		if ok {
			q.refine(e, &c)
		}
		if !ok || c.compare(block) < 0 || n == len(best) && c.compare(&best[n-1]) >= 0 || !q.suits(c.node) {
			continue
		}
		n = min(n+1, len(best))
		at := n - 1
		for ; at > 0 && c.compare(&best[at-1]) < 0; at-- {
			best[at] = best[at-1]
		}
		best[at] = c
	}
	for i := range best[:min(n, expandAtOnce)] {
		q.heap.Push(best[i])
	}
	if n > expandAtOnce {
		rest := best[expandAtOnce]
		q.heap.Push(evictCandidate{Key: rest.Key, node: rest.node, at: block.at, stage: blockStage})
	}
}

// add puts a node with its bound on the heap, if victims there could make enough room.
func (q *evictSearch) add(e *evictor, slot int32) {
	if c, ok := q.candidate(e, slot); ok && q.suits(c.node) {
		q.heap.Push(c)
	}
}

// candidate returns a node with its bound, whether or not the node suits the class. It reports false if victims there
// cannot make enough room, or cannot open the node.
func (q *evictSearch) candidate(e *evictor, slot int32) (c evictCandidate, ok bool) {
	n := &e.index.nodes[slot]
	e.bounded++
	if n.state == nil {
		return c, false
	}
	key, ok := n.bound(q)
	key.Last = e.index.draft.Avoids(n.state, q.spec)
	c = evictCandidate{Key: key, node: n.state.Node, at: slot, stage: leastStage, version: q.version(e, slot)}
	if !ok || q.near.rules == nil {
		return c, ok
	}
	if key.Count == 1 { // before With, which adds victims that a rule demands and that need not make room
		key = n.boundAlone(q, key)
	}
	inTheWay, ok := q.victims.Bound(n.state)
	c.Key, c.stage = key.With(inTheWay), aloneStage
	return c, ok
}

// refine raises the bound of a node if the bound assumes a single victim, but no single capsule makes enough room or
// the one that does is older. It reports whether it has raised the bound.
func (q *evictSearch) refine(e *evictor, c *evictCandidate) bool {
	if c.Count != 1 || c.stage != leastStage {
		return false
	}
	key := e.index.nodes[c.at].boundAlone(q, c.Key)
	if key == c.Key {
		return false
	}
	c.Key, c.stage = key, aloneStage
	return true
}

// refineBlock does for a block what refine does for a node.
func (q *evictSearch) refineBlock(e *evictor, c *evictCandidate) bool {
	e.index.measure(int(c.at))
	b := &e.index.blocks[c.at]
	key := b.boundSingle(q, c.Key)
	if key == c.Key || b.first == nil {
		return false
	}
	c.Key, c.node, c.stage = key, b.first, singleStage
	return true
}

// found puts a node that was searched on the heap, with the key of what was found.
func (q *evictSearch) found(slot int32, f *victims.Found, e *evictor) {
	if f.Volatile {
		q.volatile = append(q.volatile, slot)
	}
	q.heap.Push(evictCandidate{Key: f.Key, node: f.Node.Node, at: slot, stage: victimStage,
		version: q.version(e, slot), volatile: f.Volatile, stamp: q.stamps})
}

// suits reports whether the state, the labels, the taints and the device model of a node allow the class. It checks
// neither free capacity nor whether rules of company close the node, because victims may change both.
func (q *evictSearch) suits(n *orbit.Node) bool {
	if !n.Schedulable() || !n.Admits(q.spec) || !q.near.reaches(n) || q.stops && !n.Confirms || q.spec.Devices.Count > 0 && !q.spec.Devices.Accepts(n.Devices.Model) {
		return false
	}
	for i := range q.spec.Require {
		if !q.spec.Require[i].On(n) {
			return false
		}
	}
	return true
}

// evictCandidate is a block or a node on the heap of a search.
type evictCandidate struct {
	victims.Key
	// The node; for a block, its node with the lowest id, because the id decides between equal keys.
	node *orbit.Node
	// The index of the node or of the block.
	at int32
	// The version of the node, and the number of the stamp, for which the key was computed.
	version, stamp uint32
	stage          evictStage
	// Whether the key depends on more than the node itself.
	volatile bool
}

// compare orders candidates by their keys and then by the ids of their nodes.
func (a *evictCandidate) compare(b *evictCandidate) int {
	if c := a.Compare(&b.Key); c != 0 {
		return c
	}
	return cmp.Compare(a.node.ID, b.node.ID)
}

// evictStage says how exact the key of a candidate is. Between equal keys the less exact one comes first, because the
// node with the lowest id may be behind it.
type evictStage uint8

const (
	blockStage  evictStage = iota // a bound for all nodes of a block
	singleStage                   // the same, checked against what each single capsule would release
	leastStage                    // a bound for one node
	aloneStage                    // the same, checked against each of its capsules
	victimStage                   // the key of the victims on one node
)

// heapOfEvictions is a heap with the best candidate on top.
type heapOfEvictions = heap.Heap[evictCandidate]

// Before puts the candidate with the better key first, then the lower node id, then the less exact stage.
func (a evictCandidate) Before(b evictCandidate) bool {
	c := a.compare(&b)
	return c < 0 || c == 0 && a.stage < b.stage
}
