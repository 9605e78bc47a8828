package shard

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
)

// GroupNoFit says that a capsule does not fit on the nodes of its scheduler's group. It wraps the navigator's reason,
// so the engine still finds a [*orbit.NoFit] in it and sets the capsule's equivalence class aside.
type GroupNoFit struct {
	// Scheduler is the scheduler's name.
	Scheduler string
	// Group is the number of schedulable nodes in the group, Nodes the number in the constellation.
	Group, Nodes int
	// Why is the navigator's reason, which is about the nodes of the group only.
	Why error
}

// Error returns the navigator's reason and the size of the group, as in: 0 of 12 nodes fit: ...; the group of scheduler
// "a" has 3 of the 12 schedulable nodes; soft mode would use the others too.
func (e *GroupNoFit) Error() string {
	if e.Group == 0 {
		return fmt.Sprintf("%v; scheduler %q has none of the %d schedulable nodes: see that a Groups runs, and that it knows this scheduler",
			e.Why, e.Scheduler, e.Nodes)
	}
	return fmt.Sprintf("%v; the group of scheduler %q has %d of the %d schedulable nodes; soft mode would use the others too",
		e.Why, e.Scheduler, e.Group, e.Nodes)
}

// Unwrap makes errors.Is find [ErrGroup], and errors.As the navigator's reason.
func (e *GroupNoFit) Unwrap() []error { return []error{ErrGroup, e.Why} }

// strictNavigator wraps a navigator in strict mode. It changes only the reasons of unplaced capsules.
type strictNavigator struct {
	orbit.Navigator
	partition *PartitionLedger
}

// Plan calls the navigator. It wraps the reason of each unplaced capsule in a GroupNoFit, unless the group has all
// nodes.
func (n *strictNavigator) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := n.Navigator.Plan(ctx, view, pending)
	if len(plan.Unplaced) == 0 {
		return plan, err
	}
	open, nodes := n.partition.size()
	if open >= nodes {
		return plan, err
	}
	unplaced, said := make([]orbit.Unplaced, len(plan.Unplaced)), map[error]error{}
	for i, u := range plan.Unplaced {
		if u.Why != nil {
			u.Why = wrapOnce(said, u.Why, func() error { return &GroupNoFit{n.partition.Scheduler, open, nodes, u.Why} })
		}
		unplaced[i] = u
	}
	plan.Unplaced = unplaced
	return plan, err
}

// wrapOnce wraps an error, or returns the wrapper that was made before: many capsules of one class share an error.
func wrapOnce(said map[error]error, why error, wrap func() error) error {
	if known := said[why]; known != nil {
		return known
	}
	said[why] = wrap()
	return said[why]
}

// size returns the number of schedulable nodes that the scheduler sees, and the number that there are.
func (l *PartitionLedger) size() (open, nodes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.open, l.view.nodes
}
