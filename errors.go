package orbit

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// The outcomes of a proposal that was not committed, to be tested with errors.Is. The first three come as a
// [*Rejection], to be read with errors.As.
var (
	// ErrConflict: another commit came first. Expected; plan again on a view at least as new as Rejection.At.
	ErrConflict = errors.New("conflict")
	// ErrInfeasible: it never held, even in the proposal's own view. The navigator's mistake: a rising count
	// means that it repeats itself.
	ErrInfeasible = errors.New("infeasible")
	// ErrInvalid: malformed, or over the ledger's limits. Refused before anything is looked at.
	ErrInvalid = errors.New("invalid")
	// ErrUnknown: it may or may not have been committed. Send the same proposal again: it has one effect.
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
	// Do is the index in Proposal.Do of the commitment at fault, if Bet is nil (for a dump: the line); -1 if all of
	// them together are at fault.
	Do int
	// Reason says what failed and by how much.
	Reason string
	// Capsule is the capsule at fault.
	Capsule CapsuleID
	// Node is the node at fault.
	Node NodeID
	// Budget is the budget that would be broken: Want members have to be healthy, Free would be.
	Budget BudgetID
	// Dimension is the resource dimension, or the device instance, that is short.
	Dimension string
	// Want is how much of Dimension the proposal asks for, or how many healthy members Budget asks for.
	Want int64
	// Free is how much of Dimension is free, or how many members would be healthy.
	Free int64
	// At is the revision of the state that was judged; the next view must have reached it.
	At Revision
	// TakenAt is the revision of the newest change of what the proposal rests on.
	TakenAt Revision
	// TakenBy is the proposal that made this change, if the ledger still knows it.
	TakenBy ProposalID

	// What to do, where the advice for the kind would not help; empty: that advice.
	advice string
}

// anotherID is the advice where an id is taken: no newer view makes it free.
const anotherID = "choose another id"

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

// Unwrap makes errors.Is find the kind.
func (r *Rejection) Unwrap() error { return r.Kind }

// invalidf returns a rejection for malformed input.
func invalidf(format string, args ...any) error {
	return &Rejection{Kind: ErrInvalid, Do: -1, Reason: fmt.Sprintf(format, args...)}
}
