package orbit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Navigator is a scheduler: which pending capsules are mine, and where should they go? It plans on its own
// view and proposes; it never talks to another navigator. An [Engine] runs it.
type Navigator interface {
	// Claims reports whether pending capsules of the module and class that are assigned to no engine are this
	// navigator's. It must always give the same answer; it is asked once for each pair.
	Claims(module string, class AppClass) bool
	// Plan proposes places for pending capsules, of which the highest priority comes first. The view and the
	// capsules are read-only and good until Plan returns. Plan ends when ctx does.
	//
	// A pass hands over at most MaxPlan capsules, and none of a class that is parked, so perhaps only some members of a
	// gang: the others are in State.Members.
	Plan(ctx context.Context, view *View, pending []*Capsule) (Plan, error)
}

// Plan is what a navigator makes of its pending capsules.
type Plan struct {
	// Proposals are sent in this order. Their ID and View, and the Place.At of their placements, may be left zero: the
	// engine sets them.
	Proposals []Proposal
	// Unplaced lists the capsules that the plan does not place, with reasons.
	Unplaced []Unplaced
	// Notes are measurements of the navigator, which the engine passes on in the Round.
	Notes []slog.Attr
}

// complete sets what a plan may leave zero. It requires that p shares no slice with the plan.
func (p *Proposal) complete(ids *idSource, view Revision, now Instant) {
	if p.ID.IsZero() {
		p.ID = ids.next()
	}
	if p.View == 0 {
		p.View = view
	}
	for i, do := range p.Do {
		if place, ok := do.(Place); ok && place.At == 0 {
			place.At = now
			p.Do[i] = place
		}
	}
}

// Unplaced is a capsule for which a plan has no place. As an error it is what a [Population] reports of a capsule that
// none of its engines plans.
type Unplaced struct {
	// Capsule is the capsule that has no place.
	Capsule *Capsule
	// Why is the reason. A *NoFit parks the capsule's class until a change could help it: a node offers more, members
	// of Spec.Near.Group or Spec.Start.Parent are placed or leave, a proposal of the same plan is refused, or
	// Engine.ParkFor has passed. Never a *NoFit for a member of a gang, nor an error that wraps one: it would put one
	// role aside, and the rest would be handed over without it.
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
	// Proposed counts the proposals that were sent: the plan's, those whose outcome was unknown, and releases of holds
	// that have ended, except those that another engine has released.
	Proposed int
	// Committed counts the proposals that were committed.
	Committed int
	// Conflicts counts the proposals that lost to another commit; their capsules are planned again in the next pass.
	Conflicts int
	// Infeasible counts the proposals that did not hold in their own view; if this rises pass after pass, the navigator
	// is wrong.
	Infeasible int
	// Invalid counts the proposals that were malformed, and those that were not sent because they do what is not for the
	// navigator to do ([State.Offence]).
	Invalid int
	// Unknown counts the proposals without a known outcome; they are sent again in the next pass.
	Unknown int
	// Failed counts the proposals that were sent in vain: the ledger was unavailable, or failed otherwise.
	Failed int
	// Unplaced lists the capsules that the plan did not place, with reasons.
	Unplaced []Unplaced
	// Parked counts the classes that are parked because they fit nowhere.
	Parked int
	// Notes are the Plan.Notes of the navigator.
	Notes []slog.Attr
	// Errors are all errors of the pass except conflicts, at most 16 of a kind.
	Errors []error

	// Something new was committed.
	fresh bool
	// The ledger had new work, or new room for parked work.
	roused bool
	// Capsules were placed, released or put aside: the next pass has less work.
	progress bool

	// Viewing, Planning and Proposing are the times that the stages of the pass took.
	Viewing, Planning, Proposing time.Duration
}

// maxErrors is how many errors of a kind a round keeps; the counts count them all.
const maxErrors = 16

// String sums the round up in a line.
func (r Round) String() string {
	return fmt.Sprintf("%s at %d: %d pending, %d proposed, %d committed, %d conflicts, %d infeasible, %d errors, %d unplaced, %d classes parked%s",
		r.Engine, r.View, r.Pending, r.Proposed, r.Committed, r.Conflicts, r.Infeasible, r.errors(), len(r.Unplaced), r.Parked, r.first())
}

// errors counts what went wrong but conflicts and infeasible proposals: refused or failed proposals, the
// navigator, the view.
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

// active reports whether there was anything to do.
func (r *Round) active() bool { return r.Pending > 0 || r.Proposed > 0 }
