package orbit

import (
	"context"
	"log/slog"
)

// Navigator is a scheduler: which pending capsules are mine, and where should they go? It plans on its own
// view and proposes; it never talks to another navigator. An [Engine] runs it.
type Navigator interface {
	// Claims reports whether pending capsules of the module and class that nobody is assigned are this
	// navigator's. It must always give the same answer; it is asked once for each pair.
	Claims(module string, class AppClass) bool
	// Plan proposes places for pending capsules, of which the highest priority comes first. The view and the
	// capsules are read-only and good until Plan returns. Plan ends when ctx does.
	Plan(ctx context.Context, view *View, pending []*Capsule) (Plan, error)
}

// Plan is what a navigator makes of its pending capsules.
type Plan struct {
	// ID and View may be left zero: the engine fills them in.
	Proposals []Proposal
	Unplaced  []Unplaced
	// Whatever the navigator measured; handed on in the Round.
	Notes []slog.Attr
}

// Unplaced is a capsule for which a plan has no place.
type Unplaced struct {
	Capsule *Capsule
	// A *NoFit parks the capsule's class until a change could help it: a node offers more, members of
	// Spec.Near.Group or Spec.Start.Parent are placed or leave, a proposal of the same plan is refused, or
	// Engine.ParkFor has passed.
	Why error
}

// NavigatorFunc makes a navigator of a planning function. It claims everything.
type NavigatorFunc func(ctx context.Context, view *View, pending []*Capsule) (Plan, error)

// Claims returns true.
func (NavigatorFunc) Claims(string, AppClass) bool { return true }

// Plan calls f.
func (f NavigatorFunc) Plan(ctx context.Context, view *View, pending []*Capsule) (Plan, error) {
	return f(ctx, view, pending)
}
