package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/orbitsched/orbit"
)

// Navigator returns the navigator for an engine on the partition ledger. Every call of fresh must return a new
// navigator of the same kind, because soft mode needs two: one for the scheduler's own group and one for all nodes.
//
//	Strict   one navigator; the reason of an unplaced capsule says how many nodes the group has ([*GroupNoFit])
//	Soft     one navigator for the own group, and one for all nodes, which gets what the first cannot place
//	Shared   one navigator
//
// In soft mode the own group takes precedence over every preference of the navigator: a gang that prefers one rack is
// spread over several racks of the group even if another group has a rack with enough free capacity.
func (l *PartitionLedger) Navigator(fresh func() orbit.Navigator) orbit.Navigator {
	switch l.Mode {
	case Strict:
		return &strictNavigator{Navigator: fresh(), partition: l}
	case Soft:
		return &soft{near: fresh(), far: fresh(), closed: l.closed, telemetry: l.Telemetry}
	}
	return fresh()
}

// closed reports whether a node is outside the scheduler's group, or leaving it.
func (l *PartitionLedger) closed(n *orbit.NodeState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.closed(n)
}

// soft is the navigator of soft mode. It calls near, a navigator for the own group, and then far, one for all nodes.
//
//	pending ─► near, on a view of the own group ─┬─► placed
//	                                             └─► not ─► far, on a view of all nodes except those
//	                                                        that near has just planned on
//
// So the two never plan on the same node in one pass. They cannot share an [orbit.Draft], because each navigator keeps
// one of its own. Nor does far plan on a state with near's proposals applied: a proposal of far would then rest on one
// of near's that may not be committed, and would be refused as infeasible, which counts as a mistake of the navigator.
// A capsule that needs one of the nodes that near has planned on might wait for ever behind a stream of small capsules.
// After a pass in which that may have happened, far plans first and alone, on all nodes. If that places nothing, far
// does so again after twice as many passes, at most 64.
//
// In soft mode a group is only a preference. Proposals have no bet on it, so they are committed even if a node changes
// its owner meanwhile, and a scheduler in strict mode beside this one gets conflicts on its own nodes too.
type soft struct {
	near, far orbit.Navigator
	closed    func(*orbit.NodeState) bool
	telemetry orbit.Telemetry

	home, wide filteredView
	// planned are the nodes that wide closes.
	planned map[orbit.NodeID]bool
	// behind are the capsules that may need nodes that near had planned on.
	behind map[orbit.CapsuleID]bool
	// wait is the number of passes until far goes first, pause the number to wait the next time.
	wait, pause int
}

// Claims asks the navigator.
func (s *soft) Claims(module string, class orbit.AppClass) bool { return s.far.Claims(module, class) }

// Plan calls near, and then far with the capsules that near has not placed. Its notes are those of near. If far was
// called they also have the number of its proposals ("far.proposals") and its notes in a group "far".
func (s *soft) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	home, err := s.home.follow(ctx, view, nil, s.closed, s.telemetry)
	if err != nil {
		return orbit.Plan{}, fmt.Errorf("shard: view of the own group: %w", err)
	}
	if waiting, others := divideUnits(pending, s.unitsBehind(pending)); len(waiting) > 0 && len(others) > 0 && s.turn() {
		return s.farAlone(ctx, view, waiting, others)
	}
	failing, others := divideUnits(pending, failed(view.State(), pending)) // the former look for another node anywhere
	plan, err := s.planNear(ctx, home, others)
	if err != nil || len(plan.Unplaced)+len(failing) == 0 {
		s.behind = nil
		return plan, err
	}
	planned := targets(plan.Proposals)
	left, rest := s.splitUnplaced(view.State(), &plan, others)
	failing, late := withoutBegun(view.State(), &plan, failing)
	left = append(left, late...)
	far, err := s.planFar(ctx, view, inOrder(pending, rest, failing), planned)
	s.noteBehind(view.State(), far.Unplaced, planned)
	withoutRepeats(view.State(), &far, plan.Proposals, left)
	plan.Proposals, plan.Unplaced = slices.Concat(plan.Proposals, far.Proposals), slices.Concat(left, far.Unplaced)
	plan.Notes = slices.Concat(plan.Notes, far.Notes)
	return plan, err
}

// unitsBehind returns the units of which a capsule is behind: a gang that has got further members meanwhile is planned as
// a whole.
func (s *soft) unitsBehind(pending []*orbit.Capsule) map[unit]bool {
	units := map[unit]bool{}
	for _, c := range pending {
		if s.behind[c.ID] {
			units[unitOf(c)] = true
		}
	}
	return units
}

// planNear calls near on the scheduler's own nodes.
func (s *soft) planNear(ctx context.Context, home *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if len(pending) == 0 {
		return orbit.Plan{}, nil
	}
	return s.near.Plan(ctx, home, slices.Clone(pending))
}

// turn reports whether far goes first in this pass.
func (s *soft) turn() bool {
	if s.wait > 0 {
		s.wait--
		return false
	}
	return true
}

// maxPause is the greatest number of passes between two in which far goes first.
const maxPause = 64

// farAlone calls far with the capsules that have waited, on all nodes. Near does not plan in this pass.
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
	errTurn   = errors.New("shard: capsules that need several groups are planned alone in this pass; this one is planned in the next")
	errBehind = errors.New("shard: it may fit on a node that this pass has used for other capsules; it is planned again in the next")
)

// planFar calls far on all nodes except those in planned.
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
