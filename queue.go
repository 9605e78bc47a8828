package orbit

import (
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/heap"
)

// queue is the pending work of one engine: highest priority first, then in order of submission. Work is
// kept by class, so that a class that fits nowhere is put aside, and taken back, as a whole.
//
//	classes ─► fifo of (slot, changed, submitted), and a heap of what was given back
//	ready   ─► heap of the classes that have entries and are not parked, by priority and first entry
//
// Entries are dropped lazily: one counts only while its capsule is pending and has not changed since it was
// filed. queued[slot] is the change that was filed last, so that no capsule is filed twice for it.
type queue struct {
	classes map[*Spec]*class
	ready   readyHeap
	parked  map[*Spec]*class
	// How many parked classes wait for where a group or a parent is.
	ties   map[tie]int
	queued []Revision
	// What entries are judged by.
	state *State
	batch []entry
	// Batches that got nowhere, held back for others, longest first, and how many of their entries were valid
	// when void ones were last dropped.
	held      []entry
	heldValid int
	// A change has brought work, or room for parked work, since this was last set to false.
	roused bool
	out    []*Capsule
}

type class struct {
	spec *Spec
	fifo []entry
	// Of fifo.
	head int
	// Given back, or pending again.
	back heap.Heap[entry]
	// Entries that were found valid when void ones were last dropped.
	valid int
	// Position in ready, -1 if not there.
	at int
	// Parked at most until then; zero: not parked.
	until time.Time
}

type entry struct {
	slot      uint32
	changed   Revision
	submitted uint64
}

// Before orders entries of one class: first submitted, first served.
func (a entry) Before(b entry) bool { return a.submitted < b.submitted }

// clear forgets all work, and what was put aside. Entries are judged by the state from now on.
func (q *queue) clear(state *State) {
	*q = queue{state: state, classes: map[*Spec]*class{}, parked: map[*Spec]*class{}, ties: map[tie]int{}}
}

// absorb follows one change of the ledger. It reports whether there is new work or new room for parked work.
func (q *queue) absorb(c *Change, state *State, mine func(*Capsule) bool) (woken bool) {
	q.state = state
	file := func(id CapsuleID) {
		if c, slot := state.findCapsule(id); c != nil && c.Pending() && mine(c) {
			woken = q.push(slot, c) || woken
		}
	}
	switch do := c.Do.(type) {
	case Submit:
		for _, id := range do.IDs {
			file(id)
		}
		if do.Gang != nil {
			for i := range do.Gang.Roles {
				for _, id := range do.Gang.Roles[i].Members {
					file(id)
				}
			}
		}
	case Assign:
		file(do.Capsule)
	case Release:
		if do.Capsule != "" {
			file(do.Capsule)
		}
	case Nominate:
		file(do.Capsule) // its record is another one now
	}
	woken = q.reconsider(c, false) || woken
	q.roused = q.roused || woken
	return woken
}

// push files a pending capsule, whose slot it is. It reports whether that makes work: its class is not parked, and it was not
// filed already.
func (q *queue) push(slot uint32, c *Capsule) bool {
	for int(slot) >= len(q.queued) {
		q.queued = append(q.queued, make([]Revision, max(1024, len(q.queued)))...)
	}
	if q.queued[slot] == c.Changed {
		return false
	}
	q.queued[slot] = c.Changed
	k := q.class(c.Spec)
	if k.size() >= 2*k.valid+compactFrom {
		q.compact(k)
	}
	e := entry{slot, c.Changed, c.Submitted}
	if n := len(k.fifo); n > k.head && e.Before(k.fifo[n-1]) {
		k.back.Push(e)
	} else {
		k.fifo = append(k.fifo, e)
	}
	q.fix(k)
	return k.until.IsZero()
}

// class returns the class of a spec, which it makes if there is none.
func (q *queue) class(spec *Spec) *class {
	k := q.classes[spec]
	if k == nil {
		k = &class{spec: spec, at: -1}
		q.classes[spec] = k
	}
	return k
}

// compactFrom is how many void entries a class may collect while it is never its turn.
const compactFrom = 1024

func (k *class) size() int { return len(k.fifo) - k.head + len(k.back) }

// compact drops the void entries of a class: those of capsules that were released or placed by others.
func (q *queue) compact(k *class) {
	fifo := k.fifo[:0]
	for _, e := range k.fifo[k.head:] {
		if q.valid(e) != nil {
			fifo = append(fifo, e)
		}
	}
	k.fifo, k.head = fifo, 0
	back := k.back
	k.back = nil
	for _, e := range back {
		if q.valid(e) != nil {
			k.back.Push(e)
		}
	}
	k.valid = k.size()
}

// first returns the entry that is next in the class. It requires one.
func (k *class) first() entry {
	if k.head == len(k.fifo) || (len(k.back) > 0 && k.back[0].Before(k.fifo[k.head])) {
		return k.back[0]
	}
	return k.fifo[k.head]
}

// empty reports whether the class has no entries, given back or not.
func (k *class) empty() bool { return k.head == len(k.fifo) && len(k.back) == 0 }

// pop removes the first entry. The array behind the fifo is moved down once half of it is spent.
func (k *class) pop() entry {
	e := k.first()
	if len(k.back) > 0 && k.back[0] == e {
		return k.back.Pop()
	}
	if k.head++; k.head == len(k.fifo) || k.head > 1024 && k.head > len(k.fifo)/2 {
		k.fifo = append(k.fifo[:0], k.fifo[k.head:]...)
		k.head = 0
	}
	return e
}

// take returns the next capsules to plan, at most n. Those of the last batch that were not placed come first
// again, unless that batch got nowhere (stuck): then it is held back for what is behind it. After every batch
// that was not stuck, the n entries that have been held longest are back. So what is held has its turn however
// much work is behind it, and takes no more than every other turn. The slice is good until the next take.
func (q *queue) take(n int, state *State, stuck bool) []*Capsule {
	q.state = state
	if stuck {
		q.hold()
	} else {
		q.batch = q.giveBack(q.batch, len(q.batch))
		q.held = q.giveBack(q.held, n)
	}
	clear(q.out)
	q.out = q.out[:0]
	for q.fill(n); len(q.out) == 0 && len(q.held) > 0; q.fill(n) {
		q.held = q.giveBack(q.held, n)
	}
	return q.out
}

// hold holds the last batch back. Void entries among those held are dropped now and then.
func (q *queue) hold() {
	q.held = append(q.held, q.batch...)
	q.batch = q.batch[:0]
	if len(q.held) >= 2*q.heldValid+compactFrom {
		q.held = slices.DeleteFunc(q.held, func(e entry) bool { return q.valid(e) == nil })
		q.heldValid = len(q.held)
	}
}

// fill takes from the ready classes.
func (q *queue) fill(n int) {
	for len(q.out) < n && len(q.ready) > 0 {
		k := q.ready[0].class
		e := k.pop()
		q.fix(k)
		if c := q.valid(e); c != nil {
			q.batch = append(q.batch, e)
			q.out = append(q.out, c)
		}
	}
}

// giveBack returns the first n entries to the queue, and the rest to the caller.
func (q *queue) giveBack(entries []entry, n int) []entry {
	n = min(n, len(entries))
	for _, e := range entries[:n] {
		if c := q.valid(e); c != nil {
			k := q.class(c.Spec)
			k.back.Push(e)
			q.fix(k)
		}
	}
	return slices.Delete(entries, 0, n)
}

// valid returns the capsule of an entry, nil if it is no longer the pending one that was filed.
func (q *queue) valid(e entry) *Capsule {
	if c := &q.state.capsules.At(e.slot).capsule; c.Changed == e.changed && c.Pending() {
		return c
	}
	return nil
}

// park puts a class aside until a change could help it or the bound passes. It reports whether the class was
// not aside already.
func (q *queue) park(spec *Spec, until time.Time) bool {
	k := q.class(spec)
	if !k.until.IsZero() {
		return false
	}
	k.until = until
	q.parked[spec] = k
	for _, tie := range spec.ties() {
		q.ties[tie]++
	}
	q.fix(k)
	return true
}

// unpark takes a class back.
func (q *queue) unpark(k *class) {
	k.until = time.Time{}
	delete(q.parked, k.spec)
	for _, tie := range k.spec.ties() {
		if q.ties[tie]--; q.ties[tie] == 0 {
			delete(q.ties, tie)
		}
	}
	q.fix(k)
}

// reconsider takes back the parked classes that a commitment may have made placeable, and reports whether there
// were any. It sees every commitment of every engine when that shows in the view. And it sees what a plan of
// this engine counted on and is not done after all, because it was refused or given up (undone): classes that
// the same plan put aside were judged as if it were done.
//
// A parked class fits on no node. That can change in four ways:
//
//   - A node offers more. A Release gives room back, also that of a hold that has ended. A PutNode joins a
//     node, adds capacity, changes labels or ends a cordon. A Place, Hold, PutNode or RemoveNode that is undone
//     leaves the node as it was. A report says something new (View.refreshTelemetry). Back are the classes that the node has
//     room for.
//   - The company that it wants is elsewhere. A member of its group is placed or released, or is not after all:
//     while nothing of a group runs, some navigators start it anywhere. A PutNode may move the members of a
//     node to another domain. Back are the classes that want to be near the group, for a PutNode near any.
//   - Its parent is elsewhere, or gone for good. Back are the forks of that capsule.
//   - It is nominated, and ranks higher than it did; or a nomination has ended (View.touchNominated).
//
// Submit, Assign and Mark change none of these. What a navigator goes by beyond that, a mark or a clock, brings
// back no class before its time aside is over; a reason that is not a NoFit does not park.
func (q *queue) reconsider(c *Change, undone bool) bool {
	if len(q.parked) == 0 {
		return false
	}
	var node NodeID
	var waits func(*Spec) bool
	takes := false
	switch do := c.Do.(type) {
	case Release:
		node, waits = c.Node, q.waiting(do.Capsule, c.Revision)
	case PutNode:
		node, waits = do.Node.ID, func(spec *Spec) bool { return spec.Near.Group != "" }
	case Place:
		node, waits, takes = do.Node, q.waiting(do.Capsule, c.Revision), true
	case Hold:
		node, takes = do.Node, true
	case RemoveNode:
		node, takes = do.Node, true
	case Nominate:
		if undone {
			return q.bringBackNominated(do.Parts)
		}
		waits = func(spec *Spec) bool { return slices.Contains(q.state.specsOf(do.Capsule, do.Gang), spec) }
	}
	if takes && !undone {
		node = ""
	}
	return q.bringBack(q.state.Node(node), waits)
}

// bringBack takes back the parked classes that fit on a node, and those of which waits says so; either may be
// nil. It reports whether there were any.
func (q *queue) bringBack(n *NodeState, waits func(*Spec) bool) (woken bool) {
	if n == nil && waits == nil {
		return false
	}
	for spec, k := range q.parked {
		if n != nil && (n.Fits(spec) || q.state.fitsNominated(n, spec)) || waits != nil && waits(spec) {
			q.unpark(k)
			woken = true
		}
	}
	return woken
}

// waiting tells which classes wait for where a capsule is, as it was at a revision; nil: no parked one does.
func (q *queue) waiting(id CapsuleID, at Revision) func(*Spec) bool {
	if id == "" || len(q.ties) == 0 {
		return nil
	}
	c := q.state.Capsule(id)
	if c == nil || c.Submitted >= uint64(submission(0).next(at+1)) {
		// That record is gone, and the id may have been given to another: it may have been of any group.
		return func(spec *Spec) bool { return spec.Near.Group != "" || spec.Start.Parent == id }
	}
	group := c.Spec.Group
	if (group == "" || q.ties[tie{group: group}] == 0) && q.ties[tie{parent: id}] == 0 {
		return nil
	}
	return func(spec *Spec) bool { return group != "" && spec.Near.Group == group || spec.Start.Parent == id }
}

// tie is what a class goes by besides nodes: where the members of a group are, or its parent.
type tie struct {
	group  string
	parent CapsuleID
}

// ties returns those of a spec, at most two.
func (s *Spec) ties() (ties []tie) {
	if s.Near.Group != "" {
		ties = append(ties, tie{group: s.Near.Group})
	}
	if s.Start.Parent != "" {
		ties = append(ties, tie{parent: s.Start.Parent})
	}
	return ties
}

// due takes back the classes whose bound has passed.
func (q *queue) due(now time.Time) {
	for _, k := range q.parked {
		if !now.Before(k.until) {
			q.unpark(k)
		}
	}
}

// fix puts a class where it belongs in ready after its entries or its parking have changed; a class without
// entries is forgotten unless it is parked.
func (q *queue) fix(k *class) {
	switch {
	case k.empty() || !k.until.IsZero():
		q.ready.remove(k)
	case k.at < 0 || q.ready[k.at].submitted != k.first().submitted:
		q.ready.put(turn{priority: k.spec.Priority, submitted: k.first().submitted, class: k})
	}
	if k.empty() && k.until.IsZero() {
		delete(q.classes, k.spec)
	}
}
