package orbit

import (
	"fmt"
	"slices"
	"time"
)

// tx is the write-set of one proposal over a state that it never writes to: records are copied on first
// touch, commitments change the copies. The zero value is ready; reset makes it ready again.
//
// Invariants: the field now of an entry is its field was plus the commitments executed so far. The field asked of a
// node is the sum of all room that this proposal newly takes there, without deduction of what it releases. A fresh
// entry has a slot that no record uses.
type tx struct {
	s *State
	p Proposal
	// The revision and the last submission number that the changes are stamped with; order is 0 until the proposal
	// submits.
	rev   Revision
	order submission
	// The position in Do of the commitment that is executed or judged; -1: an error concerns no single commitment.
	at int
	// The preconditions are being judged, before any commitment.
	bets bool

	nodes    overlay[NodeID, txNode]
	capsules overlay[CapsuleID, txCapsule]
	gangs    overlay[GangID, txGang]
	holds    overlay[HoldID, txHold]
	marks    overlay[string, txMark]
	budgets  overlay[BudgetID, txBudget]
	queues   overlay[QueueID, txQueue]
	company  txCompany
	// The node of each executed commitment, empty if it concerns none.
	touched []NodeID
	places  int // Place commitments in the proposal
	// The nominations that the proposal has made so far.
	nominations []*Nomination
	beside      []*Nomination // in a draft: nominations that earlier proposals of the plan may have made
	// The proposal makes or ends a nomination; it lowers the capacity of a node.
	nominates, lowers bool
	// The proposal releases a capsule for good.
	finals bool
	// The queues are up to date for all that the proposal does with capsules (chargeQueues).
	charged bool
	// The proposal has been committed before and is applied again, by a mirror for example: no victim is spared.
	replays bool
	// The positions in Do of evictions that make way: those that are executed, and those that are passed over because
	// the victim has left.
	evictions, passed []int
	// The positions in Do of descriptions that equal those that the nodes have.
	equal []int
	// The original position in Do of each commitment, if others were left out (spare) or added (vacate); nil: they are
	// unchanged.
	origin []int
	// The commitments before this position, as far as they are not executed yet, were added by vacate.
	vacated int

	// What the last submission, of this proposal or of one before it, gave to its capsules.
	common *common

	// Where the search for vacant slots goes on.
	nodeSlot, capsuleSlot uint32
}

type txNode struct {
	// Nil: fresh.
	was          *NodeState
	now          NodeState
	dirty, gone  bool
	asked        Resources
	askedDevices DeviceSet
	// The position of the last commitment that asks for room here, and the newest revision of the specs of the capsules
	// that ask.
	asker int
	asks  Revision
	// This proposal nominates room here; and the position of the commitment by which the node has joined, 0 if it was a
	// member before.
	claimed bool
	joined  int
	// The node is ready at some point during this proposal, because it says so; this proposal changes the remains on
	// the node.
	ready, stops bool
}

type txCapsule struct {
	// Nil: fresh.
	was   *Capsule
	now   Capsule
	dirty bool
	// The slot of the capsule, and the slot of the node on which this proposal places it.
	slot, node uint32
	// anew: the proposal submits the id again, and former is the slot of the record that this replaces.
	// queued: the record is in the queue of ended records that are dropped in time.
	anew, queued bool
	former       uint32
	// moves: this proposal takes the capsule off its node to place it again. evicted: this proposal evicts it, by the
	// commitment at position evictedBy. stays: it is a victim that is spared.
	moves, evicted, stays bool
	evictedBy             int
	// wished: a wish (a voluntary disruption, see rule_evict.go) has taken the capsule off its node. arrives: this
	// proposal has placed it.
	wished, arrives bool
	// ends: the capsule ends because it was taken off its node ([Spec.Ends]); until the proposal has been judged, it counts
	// as a capsule that is pending again.
	ends bool
	// adopted: the capsule that arrives runs on the node already. after: it must begin after the remains on its node
	// have ended (Place.After). unprotects: its protection ends.
	adopted, after, unprotects bool
	// For how long its new placement is protected, and by what it grows on its node (grown); nil: by nothing.
	protects time.Duration
	grows    *Spec
	// The record of its failures with those of this proposal; nil: the proposal adds none.
	failures *Failures
}

// alive returns the spec that the record has after the proposal, nil if it has been released for good or ends.
func (c *txCapsule) alive() *Spec {
	if c.ends {
		return nil
	}
	return c.now.alive()
}

// newest returns the revision at which the capsule last changed before this proposal; 0 if it is fresh.
func (c *txCapsule) newest() Revision {
	if c.was == nil {
		return 0
	}
	return c.was.Changed
}

// newestSpec returns an upper bound of the revision at which the capsule got its spec before this proposal. That is the
// revision of its submission, which may be a little too high if very many capsules were submitted at once; or, if the
// spec was replaced since, the last change of the record.
func (c *txCapsule) newestSpec() Revision {
	if c.was != nil && c.was.Respecified {
		return c.was.Changed
	}
	return c.submittedAt()
}

// submittedAt returns the revision at which the capsule was submitted before this proposal; 0 if it is fresh.
func (c *txCapsule) submittedAt() Revision {
	if c.was == nil {
		return 0
	}
	return c.was.SubmittedAt()
}

type txGang struct {
	// Nil: fresh.
	was *GangState
	// The same pointer as was until the proposal changes the record; then a copy (ownGang).
	now *GangState
	// This proposal has released the gang's last placed member: later placements count as the gang's first again.
	restarts bool
	// The proposal submits a gang under the id of a gang that has ended.
	anew bool
	// A wish takes a member off its node; a member is released from a cordoned node.
	wished, drains bool
	// This proposal evicts a member; it adopts a member that was found running.
	evicts, adopts bool
	// The error if a member on a ready node is released, or moved without consent, and the whole gang does not leave; nil:
	// there is no such member. See judgeWishes.
	displaced error
}

// newest returns the revision at which the gang last changed before this proposal; 0 if it is fresh.
func (g *txGang) newest() Revision {
	if g.was == nil {
		return 0
	}
	return g.was.Changed
}

// reset empties the tx for the next proposal, also after a proposal that was refused half way. It keeps memory for
// reuse.
func (t *tx) reset() {
	t.s, t.p, t.order, t.at, t.places, t.common, t.nodeSlot, t.capsuleSlot = nil, Proposal{}, 0, 0, 0, nil, 0, 0
	t.nodes.reset()
	t.capsules.reset()
	t.gangs.reset()
	t.holds.reset()
	t.marks.reset()
	t.budgets.reset()
	t.queues.reset()
	t.touched = t.touched[:0]
	t.finals, t.replays, t.charged, t.company = false, false, false, txCompany{moved: t.company.moved[:0]}
	t.evictions, t.passed, t.equal, t.origin = t.evictions[:0], t.passed[:0], t.equal[:0], nil
	t.vacated = 0
	t.nominations, t.beside, t.nominates, t.lowers = nil, nil, false, false
}

// begin prepares the tx to judge the proposal on s and to stamp changes with rev. It returns the revision at which the
// proposal has been committed before, 0 if it has not. It requires a proposal that check has prepared, and an empty tx.
func (t *tx) begin(s *State, rev Revision, p *Proposal) (done Revision) {
	t.s, t.p, t.rev, t.common = s, *p, rev, s.common
	return t.committedBefore()
}

// run judges and executes the proposal on s, and stamps changes with rev. Done is that of begin: if it is not 0,
// nothing has been executed. If the proposal is found to change nothing, t.p is empty afterwards, and nothing is to be
// published. The requirements are those of begin.
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
	if err := t.judgeSum(); err != nil {
		return 0, err
	}
	t.endEnding()
	return 0, nil
}

// judgeSum judges the sum of all commitments by every rule. A history that is applied again is not judged: what was
// committed is a fact.
func (t *tx) judgeSum() error {
	for _, settle := range settles {
		settle(t)
	}
	if t.replays {
		return nil
	}
	for _, judge := range judges {
		if err := judge(t); err != nil {
			return err
		}
	}
	return nil
}

// executeAll executes the commitments in order, until one is refused.
func (t *tx) executeAll() error {
	for t.at = 0; t.at < len(t.p.Do); t.at++ {
		t.vacate()
		node, err := t.p.Do[t.at].execute(t)
		if err != nil {
			return err
		}
		t.touched = append(t.touched, node)
	}
	t.lend()
	return nil
}

// committedBefore returns the revision at which the proposal's id was committed, 0 if it was not. The id is kept in the
// records of the capsules that the proposal placed, or among the recent ids if it places none.
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
	return t.s.recent.Find(t.p.ID)
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
		return nil
	}
	e := t.gangs.add(was.Gang.ID)
	e.was, e.now = was, was
	return e
}

// refuse completes a rejection. Newest is the revision of the latest change that the refusal rests on. If that is after
// the proposal's view, the rejection is a conflict; else the proposer's mistake, ErrInfeasible.
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

// breaks reports whether a rule is broken. While a history is replayed none is: what was committed is a fact, though it
// may have been judged by older rules. Only what cannot be represented is refused then.
func (t *tx) breaks(rule bool) bool { return rule && !t.replays }

// refusePlace is refuse for a Place: it fills in the capsule and the node.
func (t *tx) refusePlace(c *Place, newest Revision, format string, args ...any) error {
	return t.refuse(Rejection{Capsule: c.Capsule, Node: c.Node}, newest, format, args...)
}

// newest returns the revision of the last change of the node's use or specification; 0 for a node that joins by this
// proposal.
func (n *txNode) newest() Revision {
	if n.was == nil {
		return 0
	}
	return max(n.was.Usage, n.was.Specification)
}

// newestSpec returns the revision at which the node's description last changed before this proposal; 0 if it is fresh.
func (n *txNode) newestSpec() Revision {
	if n.was == nil {
		return 0
	}
	return n.was.Specification
}

// short fills in the first dimension in which want exceeds free.
func (t *tx) short(r *Rejection, want *Resources, free Resources) {
	for d := range want {
		if want[d] > 0 && want[d] > free[d] {
			r.Dimension, r.dimension, r.Want, r.Free = t.s.names.name(d), uint8(d+1), want[d], free[d]
			return
		}
	}
}

// appendChanges appends the changes of a published proposal to a list.
func (t *tx) appendChanges(list []Change) []Change {
	for i, c := range t.p.Do {
		list = append(list, Change{Revision: t.rev, Seq: i, ID: t.p.ID, Do: c, Node: t.touched[i]})
	}
	return list
}

// meant returns the entry of the capsule that a commitment names. It refuses a capsule that was submitted after the
// proposal's view, because the proposer can only have meant an earlier capsule with that id.
func (t *tx) meant(id CapsuleID) (*txCapsule, error) {
	e := t.capsule(id)
	switch {
	case e == nil:
		return nil, t.noCapsule(id)
	case t.p.View != 0 && t.at >= t.vacated && !e.anew && e.submittedAt() > t.p.View:
		return nil, t.refuse(Rejection{Capsule: id, Node: e.now.Node}, e.submittedAt(), "capsule %q was submitted after the view", id)
	}
	return e, nil
}

// invalid is the rejection of a commitment that is wrong in every state.
func (t *tx) invalid(r Rejection, format string, args ...any) error {
	err := t.refuse(r, 0, format, args...).(*Rejection) //nolint:errorlint // made here, and never wrapped
	err.Kind, err.TakenAt = ErrInvalid, 0
	return err
}

// noCapsule refuses a commitment that names a capsule of which there is no record.
func (t *tx) noCapsule(id CapsuleID) error {
	return t.refuse(Rejection{Capsule: id}, t.s.left.Capsules, "there is no capsule %q", id)
}

// refuseEnded returns the error of any commitment about a capsule that has been released for good.
func (t *tx) refuseEnded(e *txCapsule) error {
	return t.refuse(Rejection{Capsule: e.now.ID, advice: "submit it again if it is to run again"}, e.newest(),
		"capsule %q has been released for good", e.now.ID)
}

// madeAt reports whether a placement or a nomination was made at the revision (since) that a commitment names. It is
// false for the proposal's own revision. Nobody knows that revision before the commit, and in a ledger of several
// processes a guess that is right on one state is wrong on the next.
//
// The histories of ledgers that did not yet know this rule have such guesses.
func (t *tx) madeAt(made, since Revision) bool { return made == since && !t.breaks(since >= t.rev) }

// overlay holds the entries of a write-set by key. find scans the list of keys while it is short, and uses a map once
// it is long.
type overlay[K comparable, E any] struct {
	keys    []K
	entries []E
	at      map[K]int // positions of the first len(at) keys, once there are many
}

// With more than overlayFew entries a map is faster than a scan. The memory of more than overlayMany entries is not
// kept for reuse.
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

// add appends a zero entry under a key that is not there yet. It need not clear reused memory, because reset has done
// so.
func (o *overlay[K, E]) add(key K) *E {
	o.keys = append(o.keys, key)
	o.entries = slices.Grow(o.entries, 1)
	o.entries = o.entries[:len(o.entries)+1]
	return &o.entries[len(o.entries)-1]
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

// anotherID is the advice if an id is taken: planning again on a newer view does not make it free.
const anotherID = "choose another id"
