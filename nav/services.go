package nav

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// Services is the navigator for latency-sensitive and best-effort capsules. It filters and scores nodes for one capsule
// at a time, highest priority first, and reserves as it goes, so that its own placements never oversubscribe a node.
// The zero value spreads ([score.Spread]) over all nodes, and first over the domains of the level that a spec names
// ([orbit.Spec] Spread): while each domain has room, none has two members more than another, if no other engine places
// members of the same set at the same time. Work without devices goes to nodes with devices only when it fits on no
// other.
//
// Within one priority it plans class by class, in the order in which the classes first occur in the pass, because
// another capsule of the same class costs a fraction of the first one. If there is not room for all capsules of a pass,
// the order of submission matters: Services then plans again in that order.
//
// A capsule that must be near a group of which nothing is placed waits. If that is its own group, and all of the group
// wait like it, they wait for ever: put the Services in an [Anchor]. Members of gangs are not placed, whatever their
// class.
type Services struct {
	// Placement chooses the nodes; nothing else may use it. Nil: a [place.Indexed].
	Placement orbit.PlacementEngine
	// InOrder plans in order of submission even where there is room for all.
	InOrder bool

	draft orbit.Draft
}

// Claims reports whether the class is LatencySensitive or BestEffort.
func (s *Services) Claims(_ string, class orbit.AppClass) bool {
	return class == orbit.LatencySensitive || class == orbit.BestEffort
}

// noter is a placement engine with notes about its work.
type noter interface{ Notes() []slog.Attr }

// Plan finds the best node for each capsule. Within one plan room only shrinks, so a class that did not fit is not
// tried again, unless the plan's placements may have opened nodes to it by the rules of company. Its notes are those of
// the placement engine, if it has any.
func (s *Services) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if s.Placement == nil {
		s.Placement = &place.Indexed{}
	}
	s.draft.Sync(view)
	plan, err := s.plan(ctx, pending)
	if n, ok := s.Placement.(noter); ok {
		plan.Notes = n.Notes()
	}
	return plan, err
}

// plan plans class by class. If that leaves anything out, it may be another capsule than the one that was submitted
// last; plan then starts again in order of submission.
func (s *Services) plan(ctx context.Context, pending []*orbit.Capsule) (orbit.Plan, error) {
	if s.InOrder {
		return s.greedy(ctx, pending)
	}
	sorted, same := byClass(pending)
	start := s.draft.Checkpoint()
	plan, err := s.greedy(ctx, sorted)
	if err != nil || same || len(plan.Unplaced) == 0 {
		return plan, err
	}
	s.draft.Rollback(start)
	return s.greedy(ctx, pending)
}

// greedy places capsule by capsule. If ctx ends it returns the plan so far, and the context's error.
func (s *Services) greedy(ctx context.Context, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan := orbit.Plan{Proposals: make([]orbit.Proposal, 0, len(pending))}
	full := map[*orbit.Spec]noRoom{}
	for _, c := range pending {
		if c.Gang() != "" {
			plan.Unplaced = append(plan.Unplaced, leftToItsGang(c))
			continue
		}
		if err := ctx.Err(); err != nil {
			return plan, err
		}
		why := full[c.Spec].still(&s.draft, c.Spec)
		if why == nil || c.Nomination().Lives() { // room may be nominated for this capsule alone
			why = s.draft.PlaceBest(s.Placement, c)
			if why == nil {
				plan.Proposals = append(plan.Proposals, s.draft.Propose())
				continue
			}
			full[c.Spec] = noRoomFor(&s.draft, c.Spec, why)
		}
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
	}
	return plan, nil
}

// noRoom is why a class has found no node within a plan, and the draft's version of the rules of company then.
type noRoom struct {
	why   error
	rules uint64
}

func noRoomFor(draft *orbit.Draft, spec *orbit.Spec, why error) noRoom {
	_, rules := draft.RuleLevels(spec)
	return noRoom{why, rules}
}

// still returns why there is no node, or nil if what the plan has placed since may have opened one by the rules.
func (n noRoom) still(draft *orbit.Draft, spec *orbit.Spec) error {
	if n.why != nil {
		if _, rules := draft.RuleLevels(spec); rules != n.rules {
			return nil
		}
	}
	return n.why
}

// leftToItsGang returns why a member of a gang is not placed by itself.
func leftToItsGang(c *orbit.Capsule) orbit.Unplaced {
	return orbit.Unplaced{Capsule: c, Why: &ofGang{c.ID, c.Gang(), c.Spec.Class}}
}

// ofGang is the reason why a navigator of single capsules leaves a member of a gang out.
type ofGang struct {
	capsule orbit.CapsuleID
	gang    orbit.GangID
	class   orbit.AppClass
}

func (e *ofGang) Error() string {
	return fmt.Sprintf("capsule %q is a member of gang %q, and its spec has the class %v: only specs of the class Gang are placed as gangs; submit the gang with Spec.Class orbit.GangClass", e.capsule, e.gang, e.class)
}

// byClass puts the capsules of a class together, at the position of the first of them; within a class they keep their
// order. A placement engine places another capsule of the same class much more cheaply than one of another class.
// Priorities stay in order, because they are part of the spec. same reports whether the order has not changed.
func byClass(pending []*orbit.Capsule) (sorted []*orbit.Capsule, same bool) {
	number := make(map[*orbit.Spec]int, len(pending))
	var classes [][]*orbit.Capsule
	for _, c := range pending {
		k, known := number[c.Spec]
		if !known {
			k = len(classes)
			number[c.Spec] = k
			classes = append(classes, nil)
		}
		classes[k] = append(classes[k], c)
	}
	sorted = slices.Concat(classes...)
	return sorted, slices.Equal(sorted, pending)
}
