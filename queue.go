package orbit

import (
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/aging"
	"github.com/orbitsched/orbit/internal/heap"
)

// queue is the pending work of one engine: highest priority first, then in order of submission. Work is kept by class,
// so that a class that fits nowhere is parked, and unparked, as a whole.
//
//	classes ─► fifo of (slot, changed, submitted), a heap of entries that were given back, and one of nominees
//	ready   ─► heap of the classes that have entries and are not parked, by priority and first entry
//	parked  ─► the classes that fit nowhere, by what they lack
//
// Void entries are dropped lazily: an entry is valid only while its capsule is pending and has not changed since it was
// filed. A capsule that is filed twice has two equal entries. They come out one after the other, so the second is
// recognised and dropped.
type queue struct {
	classes map[*Spec]*class
	ready   readyHeap
	parked  parking
	// state is the state that decides which entries are valid.
	state *State
	batch []entry
	// trials are entries of parked classes that are tried again with the next batch, highest priority first. tried are
	// their classes, until settle knows whether they fit.
	trials []trial
	tried  []*class
	// held are the entries of batches that made no progress, the longest held first. heldValid is the number of valid
	// ones when void ones were last dropped.
	held      []entry
	heldValid int
	// The held entries of nominees, the longest held first.
	heldNominees []entry
	// Classes that are not parked and for which there may be room again. Their held entries return with the next batch.
	recalled map[*Spec]bool
	// The change that is being applied is the engine's own. It unparks classes, but does not wake those that wait for
	// room without being parked.
	own bool
	// The state before the changes that the view is reading; nil: it reads none.
	former *State
	// roused: a change has brought work, or room for parked work, since roused was last set to false.
	roused bool
	out    []*Capsule
	// The entries of capsules whose last starts have failed, until they may be planned again.
	delayed heap.Heap[delayedEntry]
	// Work of at most this priority stays in the queue, because it waits for that of other engines; nil: none does.
	bar *int64
	// How many classes name a queue of the ledger, and the queue of the capsule that heads has taken last.
	named    int
	lastHead QueueID
	// The rule by which work rises while it waits (nil: it does not), and the instant at which the view was made.
	aging *aging.Book
	now   Instant
}

// class is the pending work of one spec: the entries of its capsules, and whether it is parked.
type class struct {
	spec *Spec
	// The entries in order of submission; they begin at index head.
	fifo []entry
	head int
	// Entries out of that order: those that were given back, or whose capsules are pending again.
	back heap.Heap[entry]
	// The entries of members of broken gangs, which come before all others.
	urgent heap.Heap[entry]
	// The entries of nominees, which come before all others but the urgent ones.
	nominees heap.Heap[nomineeEntry]
	// valid is the number of valid entries when void ones were last dropped. at is the position in ready; -1: the class
	// is not in it.
	valid, at int
	// spot is where the class is parked; nil: it is not.
	spot *parkedClass
}

// entry refers to a capsule as it was when it was filed: its slot in the state, Capsule.Changed and Capsule.Submitted.
type entry struct {
	slot      uint32
	changed   Revision
	submitted uint64
}

// Before orders the entries of a class that are not nominated, in order of submission.
func (a entry) Before(b entry) bool { return a.submitted < b.submitted }

// clear drops all entries and parked classes. From then on the given state decides which entries are valid.
func (q *queue) clear(state *State) {
	reasons := q.parked.reasons
	reasons.unparkAll()
	*q = queue{state: state, classes: map[*Spec]*class{}, parked: newParking(), recalled: map[*Spec]bool{}, aging: q.aging, now: q.now}
	q.parked.reasons = reasons
}

// absorb applies one change of the ledger. It reports whether there is new work, or new room for parked work.
func (q *queue) absorb(c *Change, state *State, owns func(owner string, spec *Spec) bool) (woken bool) {
	q.state = state
	file := func(ids ...CapsuleID) {
		for _, id := range ids {
			if c, slot := state.findCapsule(id); c != nil && c.Pending() && owns(c.Owner(), c.Spec) {
				woken = q.push(slot, c) || woken
			}
		}
	}
	if do, ok := c.Do.(Submit); ok { // a later assignment to another engine is a change of its own
		for spec, ids := range do.work {
			if do.Join || owns(do.Owner, spec) { // who joins may get the owner of the others
				file(ids...)
			}
		}
	}
	if do, ok := c.Do.(Nominate); ok {
		file(do.Capsule) // the nomination changes the record, so the old entry is void
	}
	if waits := effectOf(c.Do).waits; waits != "" {
		file(waits)
	}
	woken = q.reconsider(c, false) || woken
	q.roused = q.roused || woken
	return woken
}

// push files a pending capsule by its slot. It reports whether that is new work; it is not if the class is parked, or if
// the capsule has to wait because its last starts have failed.
func (q *queue) push(slot uint32, c *Capsule) bool {
	q.see(c)
	return !q.delay(slot, c) && q.file(entry{slot, c.Changed, c.Submitted}, c)
}

// file files a pending capsule under its class, and reports whether the class is not parked.
func (q *queue) file(e entry, c *Capsule) bool {
	k := q.class(c.Spec)
	if k.size() >= 2*k.valid+compactFrom {
		q.compact(k)
	}
	if n := len(k.fifo); c.Nomination().Lives() || q.state.inBroken(c) || n > k.head && e.Before(k.fifo[n-1]) {
		k.putBack(e, c, q.state)
	} else {
		k.fifo = append(k.fifo, e)
	}
	q.fix(k)
	return k.spot == nil
}

// class returns the class of a spec, and makes one if there is none.
func (q *queue) class(spec *Spec) *class {
	k := q.classes[spec]
	if k == nil {
		k = &class{spec: spec, at: -1}
		q.classes[spec] = k
		q.named += btoi(spec.Queue != "")
	}
	return k
}

// compactFrom is the number of void entries that a class may collect before they are dropped, although the class is not
// served; and that of waiting classes without work.
const compactFrom = 1024

// size returns the number of entries, void ones included.
func (k *class) size() int {
	return len(k.fifo) - k.head + len(k.back) + len(k.nominees) + len(k.urgent)
}

// compact drops the void entries of a class: their capsules were released, changed, or placed by other engines.
func (q *queue) compact(k *class) {
	fifo := k.fifo[:0]
	for _, e := range k.fifo[k.head:] {
		if q.valid(e) != nil {
			fifo = append(fifo, e)
		}
	}
	k.fifo, k.head = fifo, 0
	for _, all := range []*heap.Heap[entry]{&k.back, &k.urgent} {
		entries := *all
		*all = nil
		for _, e := range entries {
			if q.valid(e) != nil {
				all.Push(e)
			}
		}
	}
	nominees := k.nominees
	k.nominees = nil
	for _, e := range nominees {
		if q.valid(e.entry) != nil {
			k.nominees.Push(e)
		}
	}
	k.valid = k.size()
}

// first returns the next entry of the class. It requires that there is one.
func (k *class) first() entry {
	switch {
	case len(k.urgent) > 0:
		return k.urgent[0]
	case len(k.nominees) > 0:
		return k.nominees[0].entry
	}
	return k.eldest()
}

// filed returns the revision since which the first entry is valid; 0: there is no entry.
func (k *class) filed() Revision {
	if k.empty() {
		return 0
	}
	return k.first().changed
}

// eldest returns the next entry that is neither urgent nor a nominee. It requires that there is one.
func (k *class) eldest() entry {
	if k.head == len(k.fifo) || (len(k.back) > 0 && k.back[0].Before(k.fifo[k.head])) {
		return k.back[0]
	}
	return k.fifo[k.head]
}

// empty reports whether the class has no entries of any kind.
func (k *class) empty() bool { return k.size() == 0 }

// pop removes and returns the next entry. The fifo moves to the front of its array once more than half of the array is
// spent.
func (k *class) pop() entry {
	switch {
	case len(k.urgent) > 0:
		return k.urgent.Pop()
	case len(k.nominees) > 0:
		return k.nominees.Pop().entry
	}
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

// turn ends the last batch. Its capsules that were not placed come first again. If the batch made no progress (stuck),
// they are held back instead, so that the work behind them is served. After every batch that was not stuck, the n
// entries that have been held longest return to the queue. So held entries are served however much work is behind them,
// and they take at most every other batch.
func (q *queue) turn(n int, state *State, stuck bool) {
	q.state = state
	if stuck {
		q.hold()
	} else {
		q.batch = q.giveBack(q.batch, len(q.batch))
		q.giveHeldBack(n)
	}
}

// take returns the next capsules to plan, at most n. Call turn before it. The slice is valid until the next take.
func (q *queue) take(n int) []*Capsule {
	clear(q.out)
	q.out = q.out[:0]
	heads := q.heads(n)
	for q.fill(n - len(heads)); len(q.out)+len(heads) == 0 && len(q.held)+len(q.heldNominees) > 0; q.fill(n) {
		q.giveHeldBack(n)
	}
	q.merge(heads)
	return q.out
}

// fill takes capsules from the ready classes, and inserts each trial where its priority puts it.
func (q *queue) fill(n int) {
	for len(q.out)+len(q.trials) < n && len(q.ready) > 0 && (q.bar == nil || q.highest() > *q.bar) {
		k := q.ready[0].class
		for len(q.trials) > 0 && q.triesFirst() {
			q.takeTrial()
		}
		e := k.pop()
		q.fix(k)
		if n := len(q.batch); n > 0 && q.batch[n-1] == e {
			continue // the capsule was filed twice
		}
		if c := q.valid(e); c != nil {
			q.batch = append(q.batch, e)
			q.out = append(q.out, c)
		}
	}
	for len(q.trials) > 0 {
		q.takeTrial()
	}
}

// highest returns the priority of the first class that is ready; noPriority: none is.
func (q *queue) highest() int64 {
	if len(q.ready) == 0 {
		return noPriority
	}
	return int64(q.ready[0].class.spec.Priority)
}

// next removes and returns the first valid entry of a class; ok is false if there is none.
func (q *queue) next(k *class) (e entry, ok bool) {
	for !k.empty() {
		if e = k.pop(); q.valid(e) != nil {
			return e, true
		}
	}
	return e, false
}

// giveBack files the first n entries again, except void ones, and returns the remaining entries.
func (q *queue) giveBack(entries []entry, n int) []entry {
	n = min(n, len(entries))
	for _, e := range entries[:n] {
		if c := q.valid(e); c != nil {
			q.putBack(e, c)
		}
	}
	return slices.Delete(entries, 0, n)
}

func (q *queue) putBack(e entry, c *Capsule) {
	k := q.class(c.Spec)
	k.putBack(e, c, q.state)
	q.fix(k)
}

// valid returns the capsule of an entry; nil: the capsule is no longer pending, or has changed since it was filed.
func (q *queue) valid(e entry) *Capsule {
	if c := &q.state.capsules.At(e.slot).capsule; c.Changed == e.changed && c.Pending() {
		return c
	}
	return nil
}

// fix moves a class to its position in ready after its entries or its parking have changed. It forgets a class that has
// no entries and is not parked.
func (q *queue) fix(k *class) {
	switch {
	case k.empty() || k.spot != nil:
		q.ready.remove(k)
	default:
		turn := readyTurn{priority: k.spec.Priority, submitted: k.first().submitted, urgent: len(k.urgent) > 0, nominee: k.nominee(), class: k}
		if q.aging != nil {
			q.age(&turn)
		}
		if k.at < 0 || q.ready[k.at] != turn {
			q.ready.put(turn)
		}
	}
	if k.empty() && k.spot == nil && q.classes[k.spec] == k {
		delete(q.classes, k.spec)
		q.named -= btoi(k.spec.Queue != "")
	}
}

// readyTurn is a class that has work, with the key that decides when it is served: higher priority first, then members of
// broken gangs, then nominees by rank, then the class whose first entry was submitted first. With aging, priority is the
// number of the band and submitted the turn within the band (queue.age).
type readyTurn struct {
	submitted uint64
	priority  int32
	urgent    bool
	// The nomination of the first entry; nil: it has none.
	nominee *Nomination
	class   *class
}

// before orders turns. After a Respec two classes have an entry of one capsule: the older one is void, and comes first, so
// that it is dropped on the way to the other. Else without aging no two turns are equal; with aging either may come first.
func (t *readyTurn) before(o *readyTurn) bool {
	if t.priority != o.priority {
		return t.priority > o.priority
	}
	if t.urgent != o.urgent {
		return t.urgent
	}
	if t.nominee != nil || o.nominee != nil {
		return o.nominee == nil || t.nominee != nil && t.nominee.Outranks(o.nominee)
	}
	if t.submitted == o.submitted && t.class != nil && o.class != nil {
		return t.class.filed() < o.class.filed()
	}
	return t.submitted < o.submitted
}

// readyHeap is a heap of turns in which each turn has fanout children. A class knows the position of its turn
// (class.at).
//
// With many classes, nearly every capsule that is taken moves a turn from the top to the bottom. So the heap holds the
// keys themselves and is flat: a move down touches few cache lines and updates class.at of few classes.
type readyHeap []readyTurn

// fanout is the number of children of a turn in the heap.
const fanout = 4

// put inserts the turn of a class, or moves the class to the position of its new turn.
func (h *readyHeap) put(t readyTurn) {
	if t.class.at < 0 {
		t.class.at = len(*h)
		*h = append(*h, t)
	}
	h.sift(t.class.at, t)
}

// remove takes a class out of the heap, if it is in it.
func (h *readyHeap) remove(k *class) {
	if k.at < 0 {
		return
	}
	last := len(*h) - 1
	moved, at := (*h)[last], k.at
	(*h)[last] = readyTurn{}
	*h = (*h)[:last]
	if k.at = -1; at < last {
		h.sift(at, moved)
	}
}

// sift fills the gap at i: it moves other turns into the gap, up or down, until the given turn belongs there, and
// writes that turn.
func (h readyHeap) sift(i int, t readyTurn) {
	for i > 0 && t.before(&h[(i-1)/fanout]) {
		h.fill(i, h[(i-1)/fanout])
		i = (i - 1) / fanout
	}
	for {
		next := h.first(fanout*i + 1)
		if next < 0 || !h[next].before(&t) {
			break
		}
		h.fill(i, h[next])
		i = next
	}
	h.fill(i, t)
}

// first returns the position of the first in order among the children whose positions begin at from; -1: there are
// none.
func (h readyHeap) first(from int) int {
	if from >= len(h) {
		return -1
	}
	best := from
	for i := from + 1; i < min(from+fanout, len(h)); i++ {
		if h[i].before(&h[best]) {
			best = i
		}
	}
	return best
}

// fill writes a turn at position i and updates its class.
func (h readyHeap) fill(i int, t readyTurn) {
	h[i] = t
	t.class.at = i
}

const defaultBand = 10

// mostAging bounds how long it takes to rise through a band, so that times in nanoseconds do not overflow.
const mostAging = 50 * 365 * 24 * time.Hour

type (
	ageHeap = heap.Heap[age]
	endHeap = heap.Heap[roomEnd]
)

// slots returns the slots of all entries, void ones included, each once.
func (q *queue) slots() (slots []uint32) {
	add := func(entries ...entry) {
		for _, e := range entries {
			slots = append(slots, e.slot)
		}
	}
	for _, k := range q.classes {
		add(k.fifo[k.head:]...)
		add(k.back...)
		add(k.urgent...)
		for _, e := range k.nominees {
			add(e.entry)
		}
	}
	for _, t := range q.trials {
		add(t.entry)
	}
	for _, e := range q.delayed {
		add(e.entry)
	}
	add(q.batch...)
	add(q.held...)
	add(q.heldNominees...)
	slices.Sort(slots)
	return slices.Compact(slots)
}
