package orbit

import (
	"cmp"
	"errors"
	"fmt"
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

// evicts reports whether a proposal evicts a capsule.
func (p *Proposal) evicts() bool {
	return slices.ContainsFunc(p.Do, func(do Commitment) bool { _, evicts := do.(Evict); return evicts })
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

// own replaces commitments that refer to memory of the caller by copies. Those have a method own.
func (c *cloner) own(list []Commitment) {
	for i := range list {
		if do, ok := list[i].(interface{ own(*cloner) Commitment }); ok && isCommitment(list[i]) {
			list[i] = do.own(c)
		}
	}
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
	// Queue is the queue that has too little quota for Capsule, or that Capsule is not evicted from; and Level is the queue on its path
	// to the root where the amount is used up: Queue itself, or one above it. Borrowers are queues that borrow of it, those with
	// the highest share first, at most 8. Dimension then is the name of the resource: the importer's for a dimension, or as in [Queue].
	Queue, Level QueueID
	Borrowers    []QueueID
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
	// Until the reason is complete: the level of the rule Even that refuses an arrival, and the domain with the fewest
	// members; empty: there is none.
	level, fewest string
	// The dimension of [Resources] that Dimension names, plus 1; 0: Dimension names something else.
	dimension uint8
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
		b.WriteString(": " + r.shortage())
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

// shortage says how much is wanted, and how much is free, in units that people read where there are any. What is wanted is
// rounded up and what is free down, so that the texts differ wherever the amounts do.
func (r *Rejection) shortage() string {
	switch int(r.dimension) - 1 {
	case CPU:
		return fmt.Sprintf("wants %s, %s free", plural(cores(r.Want), "core"), cores(r.Free))
	case Memory, Disk:
		return fmt.Sprintf("wants %s of %s, %s free", binaryBytes(r.Want, true), r.Dimension, binaryBytes(r.Free, false))
	}
	return fmt.Sprintf("wants %d of %s, %d free", r.Want, r.Dimension, r.Free)
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
