package place

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/victims"
)

// evictSearch is a best-first search for one class. Its heap holds blocks and nodes with a bound (a key that no find there can
// beat), and nodes that were searched with the key of what was found.
type evictSearch struct {
	evictClass
	wants []wanted
	// What all devices together take.
	devices freeDevices
	near    near
	// Says who is in the way by rules of company.
	victims *victims.Search
	heap    heapOfEvictions
	begun   bool
	// Up to where the search has read the journal of the index.
	seen uint64
	// The state of the plan for which the keys of volatile nodes hold, and the number of that state.
	stamp  evictStamp
	stamps uint32
	// When the search was last used, by evictor.clock.
	used uint64
	// Why budgets have kept victims on their nodes in the state of the plan that stamp stands for.
	refusal *orbit.Rejection
	// Nodes whose keys depend on more than the node itself; they are searched anew when the stamp changes.
	volatile []int32
	// How often something has changed in a domain of each node by which rules of company go; nil: there are no such rules.
	renewed []uint32
}

// evictStamp is what the key of a volatile node depends on besides the node: the view, the steps of the plan, and the capsule. A plan
// that is rolled back and goes on otherwise by as many steps has another position in the draft's journal.
type evictStamp struct {
	syncs, changes uint64
	checkpoint     int
	capsule        orbit.CapsuleID
}

// follow brings the search up to date with the index: it puts the nodes that have changed on the heap, or begins
// anew if most have.
func (q *evictSearch) follow(e *evictor, r *rater, c *orbit.Capsule) {
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
			if x.nodes[slot].journaled == q.seen+uint64(i) { // else it is named again further on
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

// elsewhere reports whether the class may go to other domains than before, for another reason than the changes of nodes in them.
func (q *evictSearch) elsewhere(now *near, r *rater) bool {
	return now.version.near != q.near.version.near || !slices.Equal(now.rules, q.near.rules) ||
		now.version.rules != q.near.version.rules && (len(q.spec.Even) > 0 || r.draft.Syncs() != q.stamp.syncs)
}

// renew puts all nodes on the heap anew that share a domain, by which rules of company go, with one that has changed.
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

// version returns another number whenever what is known of a node may not hold any more.
func (q *evictSearch) version(e *evictor, slot int32) uint32 {
	v := e.index.nodes[slot].version
	if int(slot) < len(q.renewed) {
		v += q.renewed[slot] // neither ever falls
	}
	return v
}

// expandAtOnce is how many nodes of a block come onto the heap at once.
const expandAtOnce = 16

// expand puts the most promising nodes of a block on the heap, and for the others the block again, with the key of the best of
// them. So a search whose best node is soon found keeps a small heap. Nodes that come before the block's own candidate are on
// the heap already: an earlier call has put them there, or they have changed since.
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

// candidate returns a node with its bound, whether or not the node suits the class; false: no victims there could make enough room.
func (q *evictSearch) candidate(e *evictor, slot int32) (c evictCandidate, ok bool) {
	n := &e.index.nodes[slot]
	e.bounded++
	if n.state == nil {
		return c, false
	}
	key, ok := n.bound(q)
	c = evictCandidate{Key: key, node: n.state.Node, at: slot, stage: leastStage, version: q.version(e, slot)}
	if !ok || q.near.rules == nil {
		return c, ok
	}
	if key.Count == 1 { // before others are added that leave for no room
		key = n.boundAlone(q, key)
	}
	inTheWay, ok := q.victims.Bound(n.state)
	c.Key, c.stage = key.With(inTheWay), aloneStage
	return c, ok
}

// refine raises the bound of a candidate for whose node one victim might be enough, if none there is. It reports whether it has.
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

// refineBlock raises the bound of a block on which one victim might be enough, if no single one is. It reports whether it has.
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

// suits reports whether a node's state, labels and device model allow the class. It does not ask whether there is room, or whether rules of company
// close the node, because victims may open it.
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
	// The node, or of a block the node with the lowest id, because that decides among equal keys.
	node *orbit.Node
	// The index of the node or of the block.
	at int32
	// The version of the node, and the number of the stamp, for which the key holds.
	version, stamp uint32
	stage          evictStage
	// The key depends on more than the node itself.
	volatile bool
}

// compare orders candidates by their keys and then by the ids of their nodes.
func (a *evictCandidate) compare(b *evictCandidate) int {
	if c := a.Compare(&b.Key); c != 0 {
		return c
	}
	return cmp.Compare(a.node.ID, b.node.ID)
}

// evictStage says how exact the key of a candidate is. Among equal keys the less exact one comes first, because the node with the
// lowest id may be behind it.
type evictStage uint8

const (
	blockStage  evictStage = iota // a bound for all nodes of a block
	singleStage                   // a bound for all nodes of a block, after a look at what single capsules give back
	leastStage                    // a bound for one node
	aloneStage                    // a bound for one node, after a look at each of its capsules
	victimStage                   // the key of the victims on one node
)

// heapOfEvictions is a heap with the best candidate on top.
type heapOfEvictions = heap.Heap[evictCandidate]

// Before puts the candidate with the better key first, then the lower node id, then the less exact stage.
func (a evictCandidate) Before(b evictCandidate) bool {
	c := a.compare(&b)
	return c < 0 || c == 0 && a.stage < b.stage
}
