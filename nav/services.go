// Package nav has navigators that are ready to run. [Services] is the first; batch work and gangs need one of
// your own so far (an [orbit.Population] reports what nobody claims).
package nav

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/orbitsched/orbit"
)

// Services is the navigator for latency-sensitive and best-effort capsules: greedy feasibility plus scoring,
// one capsule at a time, highest priority first, reserving as it goes so that it never oversubscribes by
// itself. The zero value spreads ([orbit.SpreadScore]) over all nodes.
type Services struct {
	// Placement chooses the nodes; it belongs to this navigator alone. Nil: an [orbit.Indexed].
	Placement orbit.PlacementEngine
}

// Claims reports whether the class is LatencySensitive or BestEffort.
func (s *Services) Claims(_ string, class orbit.AppClass) bool {
	return class == orbit.LatencySensitive || class == orbit.BestEffort
}

// noter is a placement engine that says what it has done.
type noter interface{ Notes() []slog.Attr }

// Plan finds the best node for each capsule. Within one plan room only shrinks, so a class that did not fit
// is not tried again.
func (s *Services) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if s.Placement == nil {
		s.Placement = &orbit.Indexed{}
	}
	s.Placement.Sync(view)
	plan, err := greedy(ctx, s.Placement, pending)
	if n, ok := s.Placement.(noter); ok {
		plan.Notes = n.Notes()
	}
	return plan, err
}

// greedy places capsule by capsule. When ctx ends it returns what it has so far, and the context's error.
func greedy(ctx context.Context, placement orbit.PlacementEngine, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan := orbit.Plan{Proposals: make([]orbit.Proposal, 0, len(pending))}
	full := map[*orbit.Spec]error{}
	for _, c := range pending {
		if c.Gang != "" {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf(
				"capsule %q is a member of gang %q, which is placed whole; give its specs the class Gang", c.ID, c.Gang)})
			continue
		}
		if err := ctx.Err(); err != nil {
			return plan, err
		}
		why := full[c.Spec]
		if why == nil {
			choice, err := placement.Best(c.Spec)
			if err == nil {
				plan.Proposals = append(plan.Proposals, placement.Reserve(c, choice))
				continue
			}
			why = err
			full[c.Spec] = why
		}
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
	}
	return plan, nil
}
