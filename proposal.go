package orbit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Revision numbers the states of a ledger. Revisions rise with every commit and may have gaps. Zero is the revision
// before the first commit.
type Revision uint64

// Proposal asks a ledger to commit all of Do, in order, if every bet in If holds; or else nothing. A ledger keeps none
// of the slices after Propose has returned.
type Proposal struct {
	// ID identifies the proposal, which is applied at most once; zero: each call is another proposal. Never use the id of
	// one proposal for another. A ledger finds the id in the records of the capsules that the proposal places, or among
	// the ids of proposals that place nothing. There it refuses another proposal as [ErrInvalid], as long as its history
	// has the commit of the first. Afterwards it cannot tell the two apart, because it remembers ids and not what was
	// proposed, and answers with the revision of that commit.
	ID ProposalID
	// View is the revision of the view on which the proposal was planned. It tells a conflict (the obstacle is newer
	// than View) from a mistake (infeasible). It also tells a capsule from a later one with the same id: a commitment
	// about a capsule that was submitted after View, and not by this proposal, is a conflict. Zero: the proposal was
	// planned on no view. Every obstacle then counts as a conflict, except a record that never existed, and an id names
	// the capsule that has it now.
	View Revision
	// Do lists the commitments, which are applied in order, all or none.
	Do []Commitment
	// If lists the bets, which are judged before Do.
	If []Precondition
}

// Clone returns a copy that does not change with p. The copy shares no slice, map or pointer with p, except specs that
// a ledger has handed out. Every ledger works on a copy, which it makes before it checks anything; so does an [Engine].
func (p Proposal) Clone() Proposal {
	var c cloner
	c.proposal(&p)
	return p
}

// cloner copies proposals. Its copies share arrays, but no element. A ledger keeps no array of a proposal after it has
// answered. So it takes a cloner from the pool cloners and gives it back afterwards, and copying allocates no arrays.
type cloner struct {
	does []Commitment
	bets []Precondition
	// The spec that was copied last, and its copy.
	last, copied *Spec
}

var cloners = sync.Pool{New: func() any { return new(cloner) }}

// giveBack returns the cloner and its arrays to the pool. It requires that nothing refers to the arrays any more.
func (c *cloner) giveBack() {
	clear(c.does)
	clear(c.bets)
	c.does, c.bets, c.last, c.copied = c.does[:0], c.bets[:0], nil, nil
	cloners.Put(c)
}

// proposals replaces everything that the proposals of a batch refer to by copies. The batch itself must be the caller's
// own.
func (c *cloner) proposals(batch []Proposal) {
	does, bets := 0, 0
	for i := range batch {
		does, bets = does+len(batch[i].Do), bets+len(batch[i].If)
	}
	c.does, c.bets = slices.Grow(c.does, does), slices.Grow(c.bets, bets)
	for i := range batch {
		c.proposal(&batch[i])
	}
}

// proposal replaces everything that p refers to by a copy.
func (c *cloner) proposal(p *Proposal) {
	from := len(c.does)
	c.does = append(c.does, p.Do...)
	p.Do = slices.Clip(c.does[from:])
	from = len(c.bets)
	c.bets = append(c.bets, p.If...)
	p.If = slices.Clip(c.bets[from:])
	c.own(p.Do)
}

// commitments returns copies of the commitments of some changes, in the memory of those that it returned before.
func (c *cloner) commitments(changes []Change) []Commitment {
	c.does = c.does[:0]
	for i := range changes {
		c.does = append(c.does, changes[i].Do)
	}
	c.own(c.does)
	return slices.Clip(c.does)
}

// own replaces commitments that refer to memory of the caller by copies.
func (c *cloner) own(list []Commitment) {
	for i := range list {
		switch do := list[i].(type) {
		case PutNode:
			list[i] = PutNode{*do.Node.clone()}
		case Submit:
			list[i] = c.submit(do)
		case Adopt:
			do.Spec = c.spec(do.Spec)
			list[i] = do
		case Resize:
			do.Spec = c.spec(do.Spec)
			list[i] = do
		case Nominate:
			do.Parts = cloned(do.Parts)
			list[i] = do
		}
	}
}

// submit copies the ids, the spec and the gang.
func (c *cloner) submit(s Submit) Submit {
	s.IDs, s.Spec, s.Labels = slices.Clone(s.IDs), c.spec(s.Spec), maps.Clone(s.Labels)
	if s.Gang != nil {
		s.Gang = c.gang(s.Gang)
	}
	return s
}

// gang copies a gang.
func (c *cloner) gang(g *Gang) *Gang {
	own := *g
	own.Levels, own.Roles = cloned(g.Levels), cloned(g.Roles)
	for i := range own.Roles {
		r := &own.Roles[i]
		r.Members, r.Spec = cloned(r.Members), c.spec(r.Spec)
	}
	return &own
}

// spec copies a spec: once for consecutive uses of the same one, and not at all if a ledger has handed it out.
func (c *cloner) spec(s *Spec) *Spec {
	if s == nil || s.self == s {
		return s
	}
	if s != c.last {
		c.last, c.copied = s, s.clone()
	}
	return c.copied
}

// Commitment is one change of the world. The set is closed: [PutNode], [RemoveNode], [Submit], [Place], [Release],
// [Evict], [Confirm], [Adopt], [Resize], [Hold], [Nominate], [Assign], [Mark], [PutBudget], [RemoveBudget], [Protect];
// as values, not pointers.
type Commitment interface{ commitment() }

// PutNode lets a node join, or replaces the description of one that has joined: capacity, labels, devices, state.
// Capacity may shrink below what is used; then nothing new is admitted. A node that is Lost stays Lost.
type PutNode struct {
	// Node is the description of the node.
	Node Node `json:"node"`
}

// RemoveNode lets a node leave. It is refused while capsules, [Remains] or holds are on the node, and while it is
// nominated. For a dead node, put it as Lost, release its capsules in batches, then remove it. The engine of a nominee ends
// its nomination on a node that is not ready; where that engine does not run, end it in the proposal that removes the
// node (a [Nominate] without Parts).
type RemoveNode struct {
	// Node is the node to remove.
	Node NodeID `json:"node"`
}

// Submit adds pending capsules: either one for each of IDs, all of one Spec, or all members of a Gang. With neither it
// adds none, which is no error. The id of a capsule that has been released for good may be used again at once, also in
// the proposal that releases it. The new capsule takes over two things from the former one: what still runs of it
// ([Remains]), so that db-0 does not run twice, and the ids of the proposals that have placed it, so that these are
// still applied only once.
type Submit struct {
	// IDs are the ids of the new capsules; empty if Gang is set.
	IDs []CapsuleID `json:"ids,omitempty"`
	// Spec is the spec of each capsule of IDs; it may be nil if there are none.
	Spec *Spec `json:"spec,omitempty"`
	// Owner is the name of the engine to which the capsules are assigned; empty: they belong to the engine that claims
	// them.
	Owner string `json:"owner,omitempty"`
	// Gang is the gang whose members are submitted; nil if IDs is set.
	Gang *Gang `json:"gang,omitempty"`
	// At is when the capsules began to wait, by the submitter's clock; 0: unknown. A ledger stores it and never reads
	// it. Navigators and engines count from it how long the capsules have waited.
	At Instant `json:"at,omitempty"`
	// Labels are stored with each of the capsules, which share one copy. No rule of a ledger reads them.
	Labels map[string]string `json:"labels,omitempty"`
}

// Place puts a pending capsule on a node and, if the capsule asks for devices, on these device instances
// ([NodeState.PickDevices] chooses them).
type Place struct {
	// Capsule is the pending capsule to place.
	Capsule CapsuleID `json:"capsule"`
	// Node is the node to place it on.
	Node NodeID `json:"node"`
	// Devices are the device instances that the capsule gets there.
	Devices DeviceSet `json:"devices,omitempty"`
	// After makes the capsule wait until everything has stopped that has left the node and still runs there, also what
	// leaves the node by this proposal. Without After the capsule waits only if it does not fit beside what still runs.
	// See [Remains].
	After bool `json:"after,omitempty"`
	// Note is stored with the placement, for example "warm".
	Note string `json:"note,omitempty"`
	// At is when the capsule was placed, by the proposer's clock; an engine sets it where a plan leaves it 0. A ledger
	// stores it and never reads it.
	At Instant `json:"at,omitempty"`
}

// Release ends a placement or a hold: exactly one of Capsule and Hold is set. A final release is for the owner of the
// work, and is never refused. Without Final a placed capsule returns to pending. That is refused on a Ready node,
// because it would be a way to make room for other work; use [Evict] to move a capsule. It is accepted:
//
//   - from a Lost node, as a loss;
//   - from a Cordoned node, if budgets allow it and the gang of the capsule stays whole, at its minimums, or unplaced;
//   - from any node for a whole gang that is broken, or one member of which is on a Cordoned node; budgets count too;
//   - from any node for a capsule that waits to begin ([State.Waiting]): it has never run there, so no rule is judged;
//   - with Stopped.
type Release struct {
	// Capsule is the capsule to release; empty if Hold is set.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// From is the node that the capsule must be on; empty: any node.
	From NodeID `json:"from,omitempty"`
	// Final ends the capsule for good. Without Final it returns to pending.
	Final bool `json:"final,omitempty"`
	// Stopped says that the capsule does not run although it should, for example because its start has failed. It
	// returns to pending from any node, as a loss. Only the agent of the node says so, in a proposal that contains only
	// releases that are Stopped or Final, and placements of capsules that have stopped.
	Stopped bool `json:"stopped,omitempty"`
	// At is when the capsule failed, if Stopped is set, or when it was released to pending, by the proposer's clock; an
	// engine sets it where a plan leaves it 0. A ledger stores it with the [Failures] of the capsule and never compares
	// it with a clock. 0 for a final release and for a hold.
	At Instant `json:"at,omitempty"`
	// Hold is the hold to release; empty if Capsule is set.
	Hold HoldID `json:"hold,omitempty"`
}

// HoldID names a hold.
type HoldID string

// Hold reserves room on a node for a later placement. The room counts as used. The navigator that the hold is for
// releases it in the proposal that uses the room. Every hold has an end. A ledger has no clock, so every engine
// releases holds whose end has passed before it plans; where no engine runs, they stay. A ledger accepts a hold whose
// end has passed already.
type Hold struct {
	// ID identifies the hold.
	ID HoldID `json:"id"`
	// Node is the node on which the hold is.
	Node NodeID `json:"node"`
	// Room is the amount of each resource that the hold takes.
	Room Resources `json:"room"`
	// Devices are the device instances on which the hold takes Milli.
	Devices DeviceSet `json:"devices,omitempty"`
	// Milli is how much the hold takes of each of Devices, in thousandths.
	Milli int `json:"milli,omitempty"`
	// For says what the hold is for; navigators read it, the ledger does not.
	For string `json:"for,omitempty"`
	// Ends is when engines release the hold.
	Ends time.Time `json:"ends"`
}

// A mark whose key begins with one of these prefixes pins a capsule, or all members of a gang, to the owner that is its
// value: the id of the capsule or gang follows the prefix. See [Assign].
const (
	PinPrefix     = "pinned/"
	PinGangPrefix = "pinned-gang/"
)

// Assign changes the owner of a capsule. It is a compare-and-swap: the owner must be From now (empty: none). While the
// capsule, or the gang that it is a member of, is pinned to an owner ([PinPrefix]), Assign to another one is refused
// unless the proposal bets on that mark ([MarkAt]), and so shows that the proposer knows of the pin. To take a capsule
// from its owner and leave it without one is always allowed.
type Assign struct {
	// Capsule is the capsule to assign.
	Capsule CapsuleID `json:"capsule"`
	// From is the owner that the capsule must have now; empty: none.
	From string `json:"from,omitempty"`
	// Owner is the new owner; empty: the engine that claims the capsule.
	Owner string `json:"owner,omitempty"`
}

// Mark stores a small value under a key: a lease term, a node group, a failed mark. An empty value deletes the mark.
type Mark struct {
	// Key identifies the mark.
	Key string `json:"key"`
	// Value is the new value; empty: the mark is deleted.
	Value string `json:"value,omitempty"`
}

func (PutNode) commitment()    {}
func (RemoveNode) commitment() {}
func (Submit) commitment()     {}
func (Place) commitment()      {}
func (Release) commitment()    {}
func (Hold) commitment()       {}
func (Assign) commitment()     {}
func (Mark) commitment()       {}

// Precondition is a bet on the state before the proposal. The set is closed: [NodeFreeOf],
// [GangUnplaced], [NodeAt], [GroupIn], [MarkAt]; as values, not pointers.
type Precondition interface{ precondition() }

// leaves returns the capsule that a commitment takes off its node, empty if it takes none.
func leaves(c Commitment) CapsuleID {
	switch c := c.(type) {
	case Release:
		return c.Capsule
	case Evict:
		return c.Capsule
	}
	return ""
}

// NodeFreeOf bets that at least this much is still free on the node.
type NodeFreeOf struct {
	// Node is the node that the bet is about.
	Node NodeID
	// AtLeast is the amount of each resource that must be free.
	AtLeast Resources
}

// GangUnplaced bets that no member of the gang is placed.
type GangUnplaced struct {
	// Gang is the gang that the bet is about.
	Gang GangID `json:"gang"`
}

// NodeAt is the strict, coarse bet: nothing at all has changed on the node since these counters were read. A counter
// that is zero is not compared.
type NodeAt struct {
	// Node is the node that the bet is about.
	Node NodeID `json:"node"`
	// Usage and Specification are the counters that were read; zero: not compared.
	Usage         Revision `json:"usage,omitempty"`
	Specification Revision `json:"specification,omitempty"`
}

// GroupIn bets that a placed capsule of the group is in this domain of the level.
type GroupIn struct {
	// Group names the group, Level the label of nodes that divides them into domains, and Domain the value of that label.
	Group  string `json:"group"`
	Level  string `json:"level"`
	Domain string `json:"domain"`
}

// MarkAt bets that the mark was last set at this revision; zero: that there is no such mark.
type MarkAt struct {
	// Key identifies the mark that the bet is about.
	Key string `json:"key"`
	// Revision is the revision at which the mark was set; zero: the mark does not exist.
	Revision Revision `json:"revision,omitempty"`
}

func (NodeFreeOf) precondition()   {}
func (GangUnplaced) precondition() {}
func (NodeAt) precondition()       {}
func (GroupIn) precondition()      {}
func (MarkAt) precondition()       {}

// The outcomes of a proposal that was not committed, to be tested with errors.Is. The first three come as a
// [*Rejection], to be read with errors.As.
var (
	// ErrConflict: another commit came first. Expected; plan again on a view at least as new as Rejection.At.
	ErrConflict = errors.New("conflict")
	// ErrInfeasible: the proposal never held, even in its own view. This is the navigator's mistake; a rising count
	// means that it repeats the mistake.
	ErrInfeasible = errors.New("infeasible")
	// ErrInvalid: the proposal is wrong in every state: it is malformed, or over the ledger's limits, or it rests on a
	// record that was changed through a plain copy of what the ledger returned ([Node.Clone], [Spec.Clone]).
	ErrInvalid = errors.New("invalid")
	// ErrNewer: stored data has a field or a kind that this version of orbit does not know. It was written by a newer
	// version, and is not damaged. The error is ErrInvalid, too.
	ErrNewer = fmt.Errorf("%w: written by a newer version", ErrInvalid)
	// ErrUnknown: the proposal may or may not have been committed, and may still be. Send the same proposal again through
	// the same Ledger: it has one effect, and a refusal then says that no copy of it ever will. A refusal by another
	// process says so only of the copy that was sent there.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: the ledger cannot be reached. Nothing was sent.
	ErrUnavailable = errors.New("ledger unavailable")
	// ErrCompacted: the history no longer reaches back that far. Take a snapshot.
	ErrCompacted = errors.New("history compacted")
)

// Rejection is the receipt for a proposal that was refused. Fields that do not apply are zero.
type Rejection struct {
	// Kind is ErrConflict, ErrInfeasible or ErrInvalid.
	Kind error
	// Bet is the bet that failed; nil if a rule of the ledger refused the proposal.
	Bet Precondition
	// Do is the index in Proposal.Do of the commitment at fault, if Bet is nil (for a dump: the line); -1 if all
	// commitments together are at fault.
	Do int
	// Reason says what failed and by how much.
	Reason string
	// Capsule is the capsule at fault.
	Capsule CapsuleID
	// Node is the node at fault.
	Node NodeID
	// Budget is the budget that would be broken: it asks for Want healthy members, and Free would be left.
	Budget BudgetID
	// Protected is how long engines let the protection of Capsule last ([Protect]), if the protection is the reason;
	// else 0.
	Protected time.Duration
	// Until is about when the protection is over, by the clock of the proposer that placed Capsule ([Place.At]); 0:
	// unknown.
	Until Instant
	// Group is the group of the rule of company that would be broken ([Apart], [Even]), and Domain is the domain where.
	// The domain would have Want, and may have Free.
	Group, Domain string
	// Dimension is the resource dimension, or the device instance, that is short.
	Dimension string
	// Want is how much of Dimension the proposal asks for, or how many healthy members Budget asks for.
	Want int64
	// Free is how much of Dimension is free, or how many members would be healthy.
	Free int64
	// At is the revision of the state that was judged; the next view must have reached it.
	At Revision
	// TakenAt is the revision of the newest change to a record on which the proposal rests; if Group is set, the
	// revision of the newest commit of all.
	TakenAt Revision
	// TakenBy is the id of the proposal that made this change, if the ledger still knows it.
	TakenBy ProposalID

	// The advice in the error text; empty: the general advice for the kind.
	advice string
}

// Error says what failed, by how much, and what to do.
func (r *Rejection) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "orbit: %v: ", r.Kind)
	switch {
	case r.Bet != nil:
		fmt.Fprintf(&b, "bet %T: ", r.Bet)
	case r.Do >= 0 && !errors.Is(r.Kind, ErrInvalid):
		fmt.Fprintf(&b, "commitment %d: ", r.Do)
	}
	b.WriteString(r.Reason)
	if r.Dimension != "" {
		fmt.Fprintf(&b, ": wants %d of %s, %d free", r.Want, r.Dimension, r.Free)
	}
	switch {
	case errors.Is(r.Kind, ErrConflict):
		fmt.Fprintf(&b, "; changed at revision %d; ", r.TakenAt)
		b.WriteString(cmp.Or(r.advice, fmt.Sprintf("plan again on a view at %d or later", r.At)))
	case errors.Is(r.Kind, ErrInfeasible):
		b.WriteString("; nothing it rests on has changed since its view; ")
		b.WriteString(cmp.Or(r.advice, "correct the plan"))
	}
	return b.String()
}

// Unwrap returns the kind, so that errors.Is finds it.
func (r *Rejection) Unwrap() error { return r.Kind }

// invalidf returns a rejection for malformed input.
func invalidf(format string, args ...any) error {
	return &Rejection{Kind: ErrInvalid, Do: -1, Reason: fmt.Sprintf(format, args...)}
}

// Change is one committed commitment. Changes in the order of revision and sequence are the history of a ledger:
// applied to the state before them, they give the state after them ([State.Apply]).
type Change struct {
	// Revision is the revision of the commit.
	Revision Revision
	// Seq is the position among the changes of one revision.
	Seq int
	// ID is the id of the proposal that was committed.
	ID ProposalID
	// Do is the commitment. Its maps and lists are shared with all readers: do not write to them.
	Do Commitment
	// Node is the node that the commitment changed, if any: for a Release the node that the capsule left.
	Node NodeID
}
