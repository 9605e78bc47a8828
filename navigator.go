package orbit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Navigator is a scheduler. It answers two questions: which pending capsules are mine, and where should they go? It
// plans on its own view and proposes; it never talks to another navigator. An [Engine] runs it.
type Navigator interface {
	// Claims reports whether pending capsules of this module and class that are assigned to no engine are this
	// navigator's. It must always give the same answer for a pair, and is asked once for each pair. A call may take 1
	// s.
	Claims(module string, class AppClass) bool
	// Plan proposes placements for pending capsules, which are sorted by priority, the highest first. The view and the
	// capsules are read-only and valid until Plan returns. Plan must return when ctx ends.
	//
	// A pass hands over at most MaxPlan capsules, and none of a class that is parked. So pending may have only some
	// members of a gang: the others are in State.Members.
	Plan(ctx context.Context, view *View, pending []*Capsule) (Plan, error)
}

// Plan is the result of [Navigator].Plan.
type Plan struct {
	// Proposals are sent in this order. The engine sets their ID, so leave it zero: a proposal with an id is not sent.
	// Their View, and At of their placements and releases, may be left zero; then the engine sets them too. What else a
	// plan may not do, [State.JudgePlan] says.
	Proposals []Proposal
	// Unplaced lists the capsules that the plan does not place, with reasons.
	Unplaced []Unplaced
	// Notes are measurements of the navigator, which the engine copies to Round.Notes.
	Notes []slog.Attr
}

// maySilence reports whether a plan may leave out some of the capsules that the navigator was given without a reason.
func (p *Plan) maySilence(given int) bool {
	left := given - len(p.Unplaced)
	if len(p.Proposals) >= left { // nearly all proposals place one capsule or more
		return false
	}
	p.eachPlace(func(*Place) { left-- })
	return left > 0
}

// eachPlace calls f with each placement of the plan.
func (p *Plan) eachPlace(f func(*Place)) {
	for i := range p.Proposals {
		for _, do := range p.Proposals[i].Do {
			if place, ok := do.(Place); ok {
				f(&place)
			}
		}
	}
}

// Unplaced is a capsule for which a plan has no place. As an error it is what a [Population] reports for a capsule that
// none of its engines plans.
type Unplaced struct {
	// Capsule is the capsule that has no place.
	Capsule *Capsule
	// Why is the reason. A *NoFit parks the capsule's class until a change could help it: a node offers more, members
	// of Spec.Near.Group or Spec.Start.Parent are placed or leave, a proposal of the same plan is refused, or
	// Engine.ParkFor has passed. Do not give a *NoFit, or an error that wraps one, for a member of a gang: it would
	// park the class of one role, and the next passes would hand over the other roles without it.
	Why error
}

// Error names the capsule and the reason.
func (u Unplaced) Error() string {
	if u.Capsule == nil {
		return fmt.Sprintf("no capsule is not placed: %v", u.Why)
	}
	return fmt.Sprintf("capsule %q is not placed: %v", u.Capsule.ID, u.Why)
}

// Unwrap returns the reason.
func (u Unplaced) Unwrap() error { return u.Why }

// Round is what one pass of an engine did.
type Round struct {
	// Engine is the name of the engine.
	Engine string
	// View is the revision of the view that the pass planned on.
	View Revision
	// Pending counts the capsules that the pass gave to the navigator.
	Pending int
	// Proposed counts the proposals that were sent: those of the plan, those sent again because their outcome was
	// unknown, and the ends of holds, protections and nominations, except for ends that another engine has committed
	// first.
	Proposed int
	// Committed counts the proposals that were committed.
	Committed int
	// Evicted counts the capsules that committed proposals took off their nodes to wait, and Moved those that they placed elsewhere.
	Evicted, Moved int
	// Conflicts counts the proposals that lost to another commit; their capsules are planned again in the next pass.
	Conflicts int
	// Infeasible counts the proposals that did not hold in their own view. If this rises pass after pass, the navigator
	// is wrong.
	Infeasible int
	// Invalid counts the proposals that were malformed, and those that were not sent because they do what their
	// navigator may not do ([State.JudgePlan]).
	Invalid int
	// Unknown counts the proposals without a known outcome; they are sent again in the next pass.
	Unknown int
	// Failed counts the proposals that failed because the ledger was unavailable, or with any other error.
	Failed int
	// Unplaced lists the capsules that the plan did not place, with reasons. What waits in a parked class is not planned, such as
	// a victim of an eviction that joins it: [Backlog] lists all that waits.
	Unplaced []Unplaced
	// Parked counts the classes that are parked because they fit nowhere.
	Parked int
	// Notes are the Plan.Notes of the navigator.
	Notes []slog.Attr
	// Errors has all errors of the pass except conflicts, at most 16 of a kind.
	Errors []error

	// By is the engine that made the round, for example for a [Backlog] of its work.
	By *Engine

	// Why nothing could be planned; nil: it could.
	trouble error
	// Something new was committed.
	fresh bool
	// The ledger had new work, or new room for parked work.
	roused bool
	// Capsules were placed, released or put aside: the next pass has less work.
	progress bool

	// Start is when the pass began; zero: it did not begin, because the engine has a fault or its last Plan still ran.
	Start time.Time
	// Viewing, Planning and Proposing are the times that the stages of the pass took.
	Viewing, Planning, Proposing time.Duration

	// Settled lists the proposals that Proposed counts, in the order in which they were sent. It is filled in only for
	// an engine with an OnRound, because it takes memory. Read it, never write it.
	Settled []Settled
	// State is the state that the pass planned on; nil where Settled is not filled in, and where the view could not be
	// built. Keeping the round keeps the state in memory.
	State *State
}

// Settled is a proposal that an engine has sent, and its outcome.
type Settled struct {
	// Proposal is the proposal as it was sent, with its id and view. All ids that one engine sets begin with the same
	// eight bytes, and no other engine's ids do. So these bytes of [Rejection].TakenBy tell which engine's proposal has
	// won.
	Proposal Proposal
	// Outcome is the answer of the ledger. For a conflict its Err is the receipt, a [*Rejection].
	Outcome Outcome
}

// maxErrors is the number of errors of a kind that a round keeps; the counts count all of them.
const maxErrors = 16

// String sums the round up in a line.
func (r Round) String() string {
	left := ""
	if r.Evicted > 0 {
		left = fmt.Sprintf(", %d evicted", r.Evicted)
	}
	if r.Moved > 0 {
		left += fmt.Sprintf(", %d moved", r.Moved)
	}
	return fmt.Sprintf("%s at %d: %d pending, %d proposed, %d committed%s, %d conflicts, %d infeasible, %d errors, %d unplaced, %d classes parked%s",
		r.Engine, r.View, r.Pending, r.Proposed, r.Committed, left, r.Conflicts, r.Infeasible, r.errors(), len(r.Unplaced), r.Parked, r.first())
}

// errors counts all errors except conflicts and infeasible proposals: invalid and failed proposals, unknown outcomes,
// and errors of the navigator and the view.
func (r Round) errors() int {
	kept := min(r.Infeasible, maxErrors) + min(r.Invalid, maxErrors) + min(r.Unknown, maxErrors) + min(r.Failed, maxErrors)
	return r.Invalid + r.Unknown + r.Failed + max(0, len(r.Errors)-kept)
}

// first quotes the first line of the first error.
func (r Round) first() string {
	if len(r.Errors) == 0 {
		return ""
	}
	line, _, _ := strings.Cut(r.Errors[0].Error(), "\n")
	return "; " + line
}

// countEvictions counts whom a committed proposal has taken off its node.
func (r *Round) countEvictions(p *Proposal) {
	for _, c := range p.Do {
		if e, ok := c.(Evict); ok {
			r.Evicted++
			if slices.ContainsFunc(p.Do, func(c Commitment) bool { p, ok := c.(Place); return ok && p.Capsule == e.Capsule }) {
				r.Evicted, r.Moved = r.Evicted-1, r.Moved+1
			}
		}
	}
}

// fail notes an error that kept the pass from planning.
func (r *Round) fail(err error) {
	r.Errors = append(r.Errors, err)
	r.trouble = err
}

// active reports whether the pass had anything to plan or to send.
func (r *Round) active() bool { return r.Pending > 0 || r.Proposed > 0 }
