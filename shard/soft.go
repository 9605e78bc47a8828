package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/orbitsched/orbit"
)

// Navigator returns what is to run in the mode, over the lens. What make returns must be a new navigator of the same
// kind in every call: in soft mode there are two, one for the own group and one for all nodes.
//
//	Strict   the navigator; of what it does not place it says how much it has seen ([*GroupNoFit])
//	Soft     one for the own group first; what that does not place the other one places anywhere
//	Shared   the navigator
func (l *Lens) Navigator(make func() orbit.Navigator) orbit.Navigator {
	switch l.Mode {
	case Strict:
		return &narrow{Navigator: make(), lens: l}
	case Soft:
		return &soft{lens: l, near: make(), far: make()}
	}
	return make()
}

// soft is a navigator for the own group, and behind it one for all nodes.
//
//	pending ─► near, on a view of the own group ─┬─► placed
//	                                             └─► not ─► far, on the view of all nodes
//
// Neither knows what the other has just planned. So where both ask for room on one node the one that came second is left
// out, and planned again in the next pass, when the other's is committed. That is far, but after a pass in which
// something of it was left out near: nobody waits for ever behind a stream of small work.
//
// Groups are preferences here: no bet rests on them, so what is planned while a node changes hands is committed all the
// same, and a strict neighbour meets what it meets in shared mode, on its nodes too.
type soft struct {
	lens      *Lens
	near, far orbit.Navigator
	// What near plans on.
	view orbit.View
	// Something of far was left out in the last plan.
	behind bool
}

// Claims asks the navigator.
func (s *soft) Claims(module string, class orbit.AppClass) bool { return s.far.Claims(module, class) }

// Plan lets near plan, and far what that has left. Its notes are those of near, and if far was asked how many of its
// proposals stand ("far.proposals"), how many of either were "leftOut", and those of far in a group "far".
func (s *soft) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if err := s.view.Refresh(ctx, home{s.lens}, s.lens.Telemetry, view.Now()); err != nil {
		return orbit.Plan{}, fmt.Errorf("shard: scheduler %q: view of its group: %w", s.lens.Scheduler, err)
	}
	first, err := s.near.Plan(ctx, &s.view, pending)
	rest := missing(first.Unplaced, pending)
	if err != nil || len(rest) == 0 {
		s.behind = false
		return first, err
	}
	second, err := s.far.Plan(ctx, view, rest)
	return s.join(first, second), err
}

// missing returns the capsules that are not placed, in the order in which they were pending.
func missing(unplaced []orbit.Unplaced, pending []*orbit.Capsule) []*orbit.Capsule {
	if len(unplaced) == 0 {
		return nil
	}
	is := make(map[orbit.CapsuleID]bool, len(unplaced))
	for _, u := range unplaced {
		is[u.Capsule.ID] = true
	}
	out := make([]*orbit.Capsule, 0, len(is))
	for _, c := range pending {
		if is[c.ID] {
			out = append(out, c)
		}
	}
	return out
}

// errBehind says why a capsule waits that both had a place for.
var errBehind = errors.New("shard: its node has been planned on for the own group in this pass; planned again in the next")

// join puts both plans together.
func (s *soft) join(near, far orbit.Plan) orbit.Plan {
	first, second := near.Proposals, far.Proposals
	if s.behind {
		first, second = second, first
	}
	kept, left := apart(first, second)
	leftFar := left
	if s.behind {
		leftFar = nil
	}
	plan := orbit.Plan{Proposals: slices.Concat(first, kept), Unplaced: far.Unplaced, Notes: slices.Clone(near.Notes)}
	for _, p := range left {
		plan.Unplaced = append(plan.Unplaced, s.leftOut(p)...)
	}
	s.behind = len(leftFar) > 0
	plan.Notes = append(plan.Notes, slog.Int("far.proposals", len(far.Proposals)-len(leftFar)),
		slog.Int("leftOut", len(left)), slog.Attr{Key: "far", Value: slog.GroupValue(far.Notes...)})
	return plan
}

// apart divides proposals into those that have no node, capsule or hold in common with the first ones, and the others.
// Of those that are kept none comes after one that is left out on the same node.
func apart(first, second []orbit.Proposal) (kept, left []orbit.Proposal) {
	taken := map[any]bool{}
	take := func(p orbit.Proposal) {
		for _, c := range p.Do {
			for _, what := range touches(c) {
				taken[what] = true
			}
		}
	}
	for _, p := range first {
		take(p)
	}
	for _, p := range second {
		if slices.ContainsFunc(p.Do, func(c orbit.Commitment) bool {
			return slices.ContainsFunc(touches(c), func(what any) bool { return taken[what] })
		}) {
			take(p)
			left = append(left, p)
		} else {
			kept = append(kept, p)
		}
	}
	return kept, left
}

// touches returns what a commitment of a plan changes: nodes, capsules and holds.
func touches(c orbit.Commitment) []any {
	switch c := c.(type) {
	case orbit.Place:
		return []any{c.Node, c.Capsule}
	case orbit.Hold:
		return []any{c.Node, c.ID}
	case orbit.Release:
		if c.Hold != "" {
			return []any{c.Hold}
		}
		return []any{c.Capsule}
	}
	return nil
}

// leftOut says why the capsules of a proposal wait.
func (s *soft) leftOut(p orbit.Proposal) (out []orbit.Unplaced) {
	for _, c := range p.Do {
		if place, ok := c.(orbit.Place); ok {
			if capsule := s.view.State().Capsule(place.Capsule); capsule != nil {
				out = append(out, orbit.Unplaced{Capsule: capsule, Why: errBehind})
			}
		}
	}
	return out
}

// home is the ledger as a strict scheduler would see it, at the revision of the lens's last snapshot. It is for
// views alone.
type home struct{ *Lens }

// Snapshot returns what the lens sees.
func (h home) Snapshot(context.Context) (*orbit.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sight.shown == nil {
		return nil, fmt.Errorf("shard: %w: the engine of scheduler %q does not run on its Lens", orbit.ErrInvalid, h.Scheduler)
	}
	return h.sight.shown, nil
}

// Changes returns those of the ledger, announced.
func (h home) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	changes, _, err := h.announced(ctx, after)
	return changes, err
}
