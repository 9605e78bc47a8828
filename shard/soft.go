package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/orbitsched/orbit"
)

// Navigator returns what is to run in the mode, over the partition ledger. What fresh returns must be a new navigator of the same
// kind in every call: in soft mode there are two, one for the own group and one for all nodes.
//
//	Strict   the navigator; of what it does not place it says how much it has seen ([*GroupNoFit])
//	Soft     one for the own group first; what that does not place the other one places anywhere
//	Shared   the navigator
//
// In soft mode the own group comes before all else that a navigator weighs: a gang that only prefers a rack is placed
// across racks of the group where another group has a rack for it.
func (l *PartitionLedger) Navigator(fresh func() orbit.Navigator) orbit.Navigator {
	switch l.Mode {
	case Strict:
		return &strictNavigator{Navigator: fresh(), partition: l}
	case Soft:
		return &soft{near: fresh(), far: fresh(), closed: l.closed, telemetry: l.Telemetry}
	}
	return fresh()
}

// closed reports whether a node is not in the group, or is leaving it.
func (l *PartitionLedger) closed(n *orbit.NodeState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.closed(n)
}

// soft is a navigator for the own group, and behind it one for all nodes.
//
//	pending ─► near, on a view of the own group ─┬─► placed
//	                                             └─► not ─► far, on a view of all nodes but those that
//	                                                        near has just planned on
//
// So neither gets in the other's way, and what far says of a node holds. What needs just those nodes might wait for
// ever behind a stream of small work: after a pass in which that may have been so far goes first, alone, on all nodes.
// If that was in vain it does so again after twice as many passes, 64 at most.
//
// Groups are preferences here: no bet rests on them, so what is planned while a node changes hands is committed all the
// same, and a strict neighbour meets what it meets in shared mode, on its own nodes too.
type soft struct {
	near, far orbit.Navigator
	closed    func(*orbit.NodeState) bool
	telemetry orbit.Telemetry

	home, wide filteredView
	// What wide closes.
	planned map[orbit.NodeID]bool
	// Capsules that waited for nodes that near had planned on.
	behind map[orbit.CapsuleID]bool
	// Passes until far goes first, and how many it will be the next time.
	wait, pause int
}

// Claims asks the navigator.
func (s *soft) Claims(module string, class orbit.AppClass) bool { return s.far.Claims(module, class) }

// Plan lets near plan, and far what that has left. Its notes are those of near, and if far was asked how many proposals
// it made ("far.proposals"), and its own notes in a group "far".
func (s *soft) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	home, err := s.home.follow(ctx, view, nil, s.closed, s.telemetry)
	if err != nil {
		return orbit.Plan{}, fmt.Errorf("shard: view of the own group: %w", err)
	}
	if waiting, others := divide(pending, s.behind); len(waiting) > 0 && len(others) > 0 && s.turn() {
		return s.farAlone(ctx, view, waiting, others)
	}
	plan, err := s.near.Plan(ctx, home, slices.Clone(pending))
	if err != nil || len(plan.Unplaced) == 0 {
		s.behind = nil
		return plan, err
	}
	planned := targets(plan.Proposals)
	left, rest := s.leave(view.State(), &plan, pending)
	far, err := s.planFar(ctx, view, rest, planned)
	s.doubt(view.State(), far.Unplaced, planned)
	withoutSpent(view.State(), &far, released(plan.Proposals))
	plan.Proposals, plan.Unplaced = slices.Concat(plan.Proposals, far.Proposals), slices.Concat(left, far.Unplaced)
	plan.Notes = slices.Concat(plan.Notes, far.Notes)
	return plan, err
}

// turn reports whether it is far's turn to go first.
func (s *soft) turn() bool {
	if s.wait > 0 {
		s.wait--
		return false
	}
	return true
}

// maxPause is for how many passes what waits in vain lets others go first.
const maxPause = 64

// farAlone lets far plan what has waited, and nobody else.
func (s *soft) farAlone(ctx context.Context, view *orbit.View, waiting, others []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := s.planFar(ctx, view, waiting, nil)
	s.behind = nil
	if len(plan.Proposals) > 0 {
		s.pause = 0
	} else {
		s.pause = min(max(1, 2*s.pause), maxPause)
	}
	s.wait = s.pause
	for _, c := range others {
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: errTurn})
	}
	return plan, err
}

var (
	errTurn   = errors.New("shard: others have waited for room in several groups and are planned first; this follows in the next pass")
	errBehind = errors.New("shard: may fit on a node on which others have been planned in this pass")
)

// planFar plans on all nodes but those that are planned on.
func (s *soft) planFar(ctx context.Context, view *orbit.View, pending []*orbit.Capsule, planned map[orbit.NodeID]bool) (orbit.Plan, error) {
	if len(pending) == 0 {
		return orbit.Plan{}, nil
	}
	var others []int32
	for _, set := range [2]map[orbit.NodeID]bool{s.planned, planned} {
		for id := range set {
			if n := view.State().Node(id); n != nil {
				others = append(others, int32(n.Index()))
			}
		}
	}
	s.planned = planned
	wide, err := s.wide.follow(ctx, view, others, func(n *orbit.NodeState) bool { return planned[n.Node.ID] }, s.telemetry)
	if err != nil {
		return orbit.Plan{}, fmt.Errorf("shard: view of all nodes: %w", err)
	}
	plan, err := s.far.Plan(ctx, wide, pending)
	plan.Notes = []slog.Attr{slog.Int("far.proposals", len(plan.Proposals)), {Key: "far", Value: slog.GroupValue(plan.Notes...)}}
	return plan, err
}
