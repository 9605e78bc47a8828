package orbit

import (
	"fmt"
	"slices"
	"time"
)

// tx is the write-set of one proposal over a state that it never writes to: records are copied on first
// touch, commitments change the copies. The zero value is ready; reset makes it ready again.
//
// Invariants: now of an entry is was plus the commitments executed so far. asked is the sum of what this
// proposal newly puts on a node, whatever it takes away. A fresh entry has a slot that no record uses.
type tx struct {
	s *State
	p Proposal
	// What the changes are stamped with.
	rev   Revision
	order submission // the one made last; 0: none
	// The commitment being executed.
	at int
	// The bets are being judged.
	bets bool

	nodes    overlay[NodeID, txNode]
	capsules overlay[CapsuleID, txCapsule]
	gangs    overlay[GangID, txGang]
	holds    overlay[HoldID, txHold]
	marks    overlay[string, txMark]
	budgets  overlay[BudgetID, txBudget]
	company  txCompany
	// The node of each commitment executed.
	touched []NodeID
	places  int // Place commitments in the proposal
	// What it has nominated so far.
	nominations []*Nomination
	beside      []*Nomination // of a draft: what earlier proposals of the plan may have nominated
	// A nomination is made or ends; a node offers less than before.
	nominates, lowers bool
	// A capsule is released for good.
	finals bool
	// The proposal is one that has been committed: no victim is spared.
	replays bool
	// Evictions that make way, by their position in Do, and those of them whose victim has left.
	evictions, passed []int
	// Where each commitment was in the proposal before victims were spared; nil: where it is.
	origin []int

	// Where vacant slots are looked for next.
	nodeSlot, capsuleSlot uint32

	// The records that were looked up and do not exist. Nil: no footprint is requested.
	missed *Footprint
}

type txNode struct {
	// Nil: fresh.
	was          *NodeState
	now          NodeState
	dirty, gone  bool
	asked        Resources
	askedDevices DeviceSet
	// The last commitment that asked, and the newest spec of a capsule that did.
	asker int
	asks  Revision
	// Room on it is nominated by this proposal; and the commitment by which it has joined, if it has.
	claimed bool
	joined  int
	// This proposal makes it ready, or did at some point; it changes what still runs there of what has left.
	ready, stops bool
}

type txCapsule struct {
	// Nil: fresh.
	was   *Capsule
	now   Capsule
	dirty bool
	// Its own, and that of the node it is placed on by this proposal.
	slot, node uint32
	// The proposal submits the id again; the slot of the record that it replaces; it is in the queue of those to be dropped.
	anew, queued bool
	former       uint32
	// It has been taken off its node by this proposal, to be placed on another; or evicted, by the commitment that says so; or it need not leave.
	moves, evicted, stays bool
	evictedBy             int
	// A wish has taken it off its node; this proposal has placed it.
	wished, arrives bool
	// What arrives runs there already; it is to begin after what runs on its node still; its protection ends.
	adopted, after, unprotects bool
	// How long its new placement is protected, and by how much it grows where it is.
	protects time.Duration
	grows    Resources
}

type txGang struct {
	// Nil: fresh.
	was *GangState
	// A copy of its own once dirty.
	now *GangState
	// This proposal has released its last member: what it places after that is a first placement again.
	restarts bool
	// The proposal submits a gang under the id of one that has ended.
	anew bool
	// A member leaves its node by a wish; one has been released from a cordoned node.
	wished, drains bool
	// A member is evicted; one was found running.
	evicts, adopts bool
	// Why a member may not be released that is on a ready node; nil: none is.
	displaced error
}

type txHold struct{ was, now *holdRecord }

type txMark struct {
	was, now markRecord
	dirty    bool
}

// reset forgets everything, so that the next proposal starts from nothing, also after one that was refused
// half way.
func (t *tx) reset() {
	t.s, t.p, t.order, t.at, t.places, t.nodeSlot, t.capsuleSlot = nil, Proposal{}, 0, 0, 0, 0, 0
	t.nodes.reset()
	t.capsules.reset()
	t.gangs.reset()
	t.holds.reset()
	t.marks.reset()
	t.budgets.reset()
	t.touched = t.touched[:0]
	t.finals, t.replays, t.company = false, false, txCompany{moved: t.company.moved[:0]}
	t.evictions, t.passed, t.origin = t.evictions[:0], t.passed[:0], nil
	t.nominations, t.beside, t.nominates, t.lowers = nil, nil, false, false
}

// begin prepares the tx to judge the proposal on s and to stamp changes with rev. It returns the revision at which the
// proposal has been committed before, 0 if it has not. It requires a prepared proposal and an empty tx.
func (t *tx) begin(s *State, rev Revision, p *Proposal) (done Revision) {
	t.s, t.p, t.rev = s, *p, rev
	return t.committedBefore()
}

// run judges and executes the proposal on s, and stamps changes with rev. It has the results and preconditions of
// begin.
func (t *tx) run(s *State, rev Revision, p *Proposal) (done Revision, err error) {
	if done = t.begin(s, rev, p); done != 0 {
		return done, nil
	}
	t.bets = true
	for _, bet := range p.If {
		if err := t.judge(bet); err != nil {
			return 0, err
		}
	}
	t.bets = false
	if err := t.executeAll(); err != nil {
		return 0, err
	}
	if err := t.spare(); err != nil {
		return 0, err
	}
	return 0, t.judgeTotals()
}

// executeAll executes the commitments in order, until one is refused.
func (t *tx) executeAll() error {
	for t.at = range t.p.Do {
		node, err := t.execute(t.p.Do[t.at])
		if err != nil {
			return err
		}
		t.touched = append(t.touched, node)
	}
	t.lend()
	return nil
}

// committedBefore looks for the proposal's id where it would be: in the records that it placed or, if it
// places nothing, among the recent ids.
func (t *tx) committedBefore() Revision {
	for _, c := range t.p.Do {
		place, ok := c.(Place)
		if !ok {
			continue
		}
		t.places++
		if t.p.ID.IsZero() {
			continue
		}
		if c := t.capsule(place.Capsule); c != nil {
			if at := c.now.placedBy(t.p.ID); at != 0 {
				return at
			}
		}
	}
	if t.places > 0 {
		return 0
	}
	return t.s.recent.find(t.p.ID)
}

// vacantNode returns a slot for a node that joins.
func (t *tx) vacantNode() (slot uint32) {
	slot = t.s.nodes.Vacant(t.nodeSlot)
	t.nodeSlot = slot + 1
	return slot
}

// vacantCapsule returns a slot for a capsule that is submitted.
func (t *tx) vacantCapsule() (slot uint32) {
	slot = t.s.capsules.Vacant(t.capsuleSlot)
	t.capsuleSlot = slot + 1
	return slot
}

// node returns the entry of a member, nil if there is none. The pointer holds until the next node joins the
// write-set.
func (t *tx) node(id NodeID) *txNode {
	if e := t.nodes.find(id); e != nil {
		if e.gone {
			return nil
		}
		return e
	}
	was := t.s.Node(id)
	if was == nil {
		if t.missed != nil {
			t.missed.Nodes = append(t.missed.Nodes, id)
		}
		return nil
	}
	e := t.nodes.add(was.Node.ID)
	e.was, e.now = was, *was
	return e
}

// capsule returns the entry of a capsule, nil if there is no record of it. The pointer holds until the next
// capsule joins the write-set.
func (t *tx) capsule(id CapsuleID) *txCapsule {
	if e := t.capsules.find(id); e != nil {
		return e
	}
	was, slot := t.s.findCapsule(id)
	if was == nil {
		if t.missed != nil {
			t.missed.Capsules = append(t.missed.Capsules, id)
		}
		return nil
	}
	e := t.capsules.add(was.ID)
	e.was, e.now, e.slot = was, *was, slot
	t.forgetEnded(e)
	return e
}

// gang returns the entry of a gang, nil if there is none.
func (t *tx) gang(id GangID) *txGang {
	if e := t.gangs.find(id); e != nil {
		return e
	}
	was := t.s.Gang(id)
	if was == nil {
		if t.missed != nil {
			t.missed.Gangs = append(t.missed.Gangs, id)
		}
		return nil
	}
	e := t.gangs.add(was.Gang.ID)
	e.was, e.now = was, was
	return e
}

// hold returns the entry of a hold, with a nil record if there is none.
func (t *tx) hold(id HoldID) *txHold {
	if e := t.holds.find(id); e != nil {
		return e
	}
	was, _ := t.s.holds.Get(&holdRecord{Hold: Hold{ID: id}})
	e := t.holds.add(id)
	e.was, e.now = was, was
	return e
}

// mark returns the entry of a mark, with a zero record if there is none.
func (t *tx) mark(key string) *txMark {
	if e := t.marks.find(key); e != nil {
		return e
	}
	was, _ := t.s.marks.Get(markRecord{key: key})
	e := t.marks.add(key)
	e.was, e.now = was, was
	return e
}

// refuse completes a rejection: a conflict if what it rests on has changed after the proposal's view, else
// the proposer's mistake.
func (t *tx) refuse(r Rejection, newest Revision, format string, args ...any) error {
	r.Kind = ErrInfeasible
	if newest > t.p.View {
		r.Kind = ErrConflict
	}
	r.Do = t.at
	switch {
	case t.bets:
		r.Do = -1
	case t.origin != nil && t.at >= 0:
		r.Do = t.origin[t.at]
	}
	r.At, r.TakenAt = t.s.rev, newest
	r.Reason = fmt.Sprintf(format, args...)
	return &r
}

// refusePlace refuses a placement for what its capsule or its node is.
func (t *tx) refusePlace(c *Place, newest Revision, format string, args ...any) error {
	return t.refuse(Rejection{Capsule: c.Capsule, Node: c.Node}, newest, format, args...)
}

// newest is when anything about the node that a plan rests on last changed.
func (n *txNode) newest() Revision {
	if n.was == nil {
		return 0
	}
	return max(n.was.Usage, n.was.Specification)
}

// short fills in the first dimension in which want exceeds free.
func (t *tx) short(r *Rejection, want *Resources, free Resources) {
	for d := range want {
		if want[d] > 0 && want[d] > free[d] {
			r.Dimension, r.Want, r.Free = t.s.names.name(d), want[d], free[d]
			return
		}
	}
}

// overlay holds the entries of a write-set by key: a short list at first, with a map once it is long.
type overlay[K comparable, E any] struct {
	keys    []K
	entries []E
	at      map[K]int // positions of the first len(at) keys, once there are many
}

// Beyond few entries a map is faster than comparing; beyond many the memory is not kept for the next use.
const (
	overlayFew  = 8
	overlayMany = 1 << 12
)

// find returns the entry, nil if there is none. The pointer holds until the next add.
func (o *overlay[K, E]) find(key K) *E {
	if len(o.keys) <= overlayFew {
		for i := range o.keys {
			if o.keys[i] == key {
				return &o.entries[i]
			}
		}
		return nil
	}
	if o.at == nil {
		o.at = make(map[K]int, 2*len(o.keys))
	}
	for i := len(o.at); i < len(o.keys); i++ {
		o.at[o.keys[i]] = i
	}
	if i, ok := o.at[key]; ok {
		return &o.entries[i]
	}
	return nil
}

// add appends a zero entry under a key that is not there yet. What lies beyond the end has been cleared.
func (o *overlay[K, E]) add(key K) *E {
	o.keys = append(o.keys, key)
	o.entries = slices.Grow(o.entries, 1)
	o.entries = o.entries[:len(o.entries)+1]
	return &o.entries[len(o.entries)-1]
}

// changed returns the keys of the entries for which the predicate holds.
func (o *overlay[K, E]) changed(is func(*E) bool) (keys []K) {
	for i := range o.entries {
		if is(&o.entries[i]) {
			keys = append(keys, o.keys[i])
		}
	}
	return keys
}

// reset empties the overlay and lets go of what it referred to, and of its memory if it grew large.
func (o *overlay[K, E]) reset() {
	if len(o.keys) == 0 {
		return
	}
	if cap(o.keys) > overlayMany {
		*o = overlay[K, E]{}
		return
	}
	clear(o.entries)
	o.keys, o.entries, o.at = o.keys[:0], o.entries[:0], nil
}
