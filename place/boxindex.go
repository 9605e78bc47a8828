package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// boxIndex is the index of the nodes of a draft that one engine searches. It notes nodes that change, and moves them in
// the tree when the next search begins. A search that continues adds them to its heap instead.
//
// Usually it is a fork of the index that all engines of a ledger share, and differs from it only in what the plan has
// changed. If no other engine asks, the index is the engine's own.
type boxIndex struct {
	rater   *rater
	bounded score.Bounded
	nodes   nodeIndex
	// The position in the draft's journal, and the number of the Sync that was followed last.
	cursor, syncs uint64
	// Whether the index is valid for the nodes of the draft. If not, the next update builds it anew.
	ready bool
	// The nodes that have changed since they were put into the tree; and for each the clock at its last change. What
	// was computed for a node before that is outdated.
	moved   slotSet
	changed map[int32]uint64
	clock   uint64

	// The index that the engine shares with others; nil: none yet.
	shared *sharedIndex
	// The number by which the shared index knows the engine.
	user uint64
	// Whether the index is the engine's own, as the shared index has decided.
	alone bool
	// The nodes of the draft that may differ from those of its state.
	apart slotSet

	// The number of boxes that searches have opened, and that neither the own tree nor the shared one knows of yet.
	opened int
	// How many times, since the last Sync, a fork had to compare all nodes.
	builds int
}

// update brings the index up to the last Sync of the draft, and makes it divide the nodes by the labels that a spec
// names. It reports whether that invalidates a search under way.
func (x *boxIndex) update(c *specClass) (renewed bool) {
	if !x.ready || x.syncs != x.rater.syncs {
		x.sync(c)
		renewed = true
	}
	if x.bounded == nil {
		x.listRequired(c)
		return renewed
	}
	if c.learned != x.nodes.kinds.division {
		for !x.nodes.kinds.knows(c.spec) {
			x.learn(c)
			renewed = true
		}
		c.learned = x.nodes.kinds.division
	}
	return renewed
}

// listRequired makes the index list nodes by the labels that a spec requires. It serves scores that have no bounds.
// Such an index is always the engine's own.
func (x *boxIndex) listRequired(c *specClass) {
	if c.learned != 0 {
		return
	}
	c.learned = 1
	if !x.alone && len(c.spec.Require) > 0 {
		x.alone, x.nodes.unbounded = true, true
		x.nodes.begin(x.rater.draft.View().State(), false)
	}
	x.nodes.labels.addRequired(c.spec, &x.nodes)
}

// reset makes the next update build the index anew.
func (x *boxIndex) reset() { x.ready, x.syncs = false, 0 }

// sync brings the index up to the last Sync of the draft.
func (x *boxIndex) sync(c *specClass) {
	draft := x.rater.draft
	touched, next, all := draft.Changed(x.cursor)
	x.cursor, x.syncs = next, x.rater.syncs
	all = all || !x.ready
	x.ready = false // if a score panics, it stays so, and the next call begins afresh
	switch {
	case x.bounded == nil && !x.alone: // nothing to do: the index is empty, because no spec has required a label
	case x.bounded == nil || x.isAlone():
		x.followAlone(touched, all)
	default:
		x.fork(touched, all, c)
	}
	x.ready = true
}

// isAlone asks the shared index of the ledger whether this engine has an index of its own. If the ledger is another one
// than before, the engine leaves its old shared index.
func (x *boxIndex) isAlone() bool {
	shared := sharedBy(x.rater.draft.View().State(), x.rater.seed != 0)
	if x.user == 0 {
		x.user = unique()
	}
	if shared != x.shared {
		x.shared, x.alone = shared, false
	}
	return shared.admit(x.user)
}

// followAlone brings the engine's own index up to the draft.
func (x *boxIndex) followAlone(touched []int32, all bool) {
	draft := x.rater.draft
	if all || !x.alone {
		x.alone = true
		x.moved.clear()
		clear(x.changed)
		x.nodes.unbounded, x.nodes.private = x.bounded == nil, false
		x.nodes.begin(draft.View().State(), x.rater.seed != 0)
		for slot := range int32(draft.Bound()) { // the draft marks nodes without a lease as unschedulable
			x.nodes.register(slot, description(x.rater.node(slot)))
		}
		x.nodes.arrange()
		return
	}
	for _, slot := range touched {
		x.nodes.register(slot, description(draft.Node(int(slot))))
		x.note(slot)
	}
	x.nodes.review()
	x.nodes.arrange()
}

// fork replaces the index by a fork of the shared one, after bringing the shared one up to the view of the draft if
// that is newer. Nodes that differ in the draft are registered and noted in the fork alone.
func (x *boxIndex) fork(touched []int32, all bool, c *specClass) {
	s, draft := x.shared, x.rater.draft
	state := draft.View().State()
	s.mu.Lock()
	defer s.mu.Unlock()
	check := x.toCheck(touched, all || x.alone)
	x.alone = false
	s.opened, x.opened = s.opened+x.opened, 0
	v := s.version(state, c)
	x.nodes = v.nodes.fork()
	x.nodes.private = true
	x.moved.clear()
	x.apart.clear()
	clear(x.changed)
	for _, slot := range check {
		if n := draft.Node(int(slot)); !sameNode(n, state.NodeByIndex(int(slot))) {
			x.apart.add(slot)
			x.put(slot, n)
		}
	}
	for i := range state.Diff(v.state).NodeIndices() {
		x.put(int32(i), draft.Node(i))
	}
	x.nodes.arrange()
	if s.leave(x.user, len(check), x.nodes.live) {
		x.alone, x.nodes.private = true, false
	}
}

// put registers a node in the fork, and notes it, unless the fork has it so.
func (x *boxIndex) put(slot int32, n *orbit.NodeState) {
	if !x.nodes.says(slot, n) {
		x.nodes.register(slot, description(n))
		x.note(slot)
	}
}

// sameNode reports whether two nodes are equal; nil: no node.
func sameNode(a, b *orbit.NodeState) bool { return a == b || a != nil && b != nil && *a == *b }

// toCheck lists the nodes of the draft that may differ from those of its state: those that did before, and those that
// have changed in the draft since.
func (x *boxIndex) toCheck(touched []int32, all bool) (check []int32) {
	if all {
		x.builds++
		check = make([]int32, x.rater.draft.Bound())
		for i := range check {
			check[i] = int32(i)
		}
		return check
	}
	for _, slot := range touched {
		x.apart.add(slot)
	}
	return append(check, x.apart.list...)
}

// learn makes the shared index, or the engine's own, divide the nodes by the labels that a spec names.
func (x *boxIndex) learn(c *specClass) {
	if x.alone {
		x.nodes.learn(c.spec)
		x.nodes.arrange()
		return
	}
	x.shared.learn(c)
	touched, next, all := x.rater.draft.Changed(x.cursor)
	x.cursor = next
	x.ready = false
	x.fork(touched, all, c)
	x.ready = true
}

// note notes that a node has changed, so that earlier candidates for it count as outdated.
func (x *boxIndex) note(slot int32) {
	if x.changed == nil {
		x.changed = map[int32]uint64{}
	}
	x.clock++
	x.changed[slot] = x.clock
	x.moved.add(slot)
}

// changedAt returns the clock at the last change of a node; 0 if the tree has the node as it is.
func (x *boxIndex) changedAt(slot int32) uint64 {
	if !x.moved.has(slot) {
		return 0
	}
	return x.changed[slot]
}

// noteChanged notes the nodes that the plan has changed since the last call, and returns them, some perhaps twice. All:
// every node may have changed.
func (x *boxIndex) noteChanged() (touched []int32, all bool) {
	touched, x.cursor, all = x.rater.draft.Changed(x.cursor)
	if all {
		return nil, true
	}
	for _, slot := range touched {
		x.note(slot)
		if !x.alone {
			x.apart.add(slot)
		}
	}
	return touched, false
}

// moveNodes moves the changed nodes to their points in the tree.
func (x *boxIndex) moveNodes(c *specClass) {
	if len(x.moved.list) > 0 || x.nodes.plants {
		if x.alone {
			x.nodes.tree.Opened(x.opened)
			x.opened = 0
		}
		x.nodes.moveTo(x.moved.list, x.rater.node, c.probe(&x.nodes))
		x.moved.clear()
		clear(x.changed)
	}
}

// description returns the description of a node; nil: there is no node.
func description(n *orbit.NodeState) *orbit.Node {
	if n == nil {
		return nil
	}
	return n.Node
}

// slotSet is a set of few node indices. It takes one bit for each node of the constellation.
type slotSet struct {
	list []int32
	bits []uint64
}

func (s *slotSet) has(slot int32) bool {
	return int(slot>>6) < len(s.bits) && s.bits[slot>>6]>>(slot&63)&1 == 1
}

func (s *slotSet) add(slot int32) {
	if s.has(slot) {
		return
	}
	for int(slot>>6) >= len(s.bits) {
		s.bits = append(s.bits, make([]uint64, 1+len(s.bits)/4)...)
	}
	s.bits[slot>>6] |= 1 << (slot & 63)
	s.list = append(s.list, slot)
}

func (s *slotSet) clear() {
	for _, slot := range s.list {
		s.bits[slot>>6] = 0
	}
	s.list = s.list[:0]
}
