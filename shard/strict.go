package shard

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
)

// GroupNoFit says that a capsule has no place in its scheduler's group. What its navigator said is wrapped, so a
// [*orbit.NoFit] in it still parks the capsule's class.
type GroupNoFit struct {
	// The scheduler.
	Scheduler string
	// Schedulable nodes in its group, and in the constellation.
	Group, Nodes int
	// The navigator's reason, which speaks of the group alone.
	Why error
}

// Error reads like "0 of 12 nodes fit: ...; the group of scheduler "a" has 3 of the 12 nodes; soft mode would look
// further".
func (e *GroupNoFit) Error() string {
	if e.Group == 0 {
		return fmt.Sprintf("%v; scheduler %q has none of the %d schedulable nodes: see that a Groups runs, and that it knows this scheduler",
			e.Why, e.Scheduler, e.Nodes)
	}
	return fmt.Sprintf("%v; the group of scheduler %q has %d of the %d schedulable nodes; soft mode would look further",
		e.Why, e.Scheduler, e.Group, e.Nodes)
}

// Unwrap makes errors.Is find [ErrGroup], and errors.As the navigator's reason.
func (e *GroupNoFit) Unwrap() []error { return []error{ErrGroup, e.Why} }

// strictNavigator is a navigator in strict mode. It plans as it is; what has no place is said to have none in the group.
type strictNavigator struct {
	orbit.Navigator
	partition *PartitionLedger
}

// Plan adds to why a capsule is not placed how much of the constellation was looked at, unless that is all.
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

// wrapOnce returns what was made of an error before, for there is one for each class and there may be many capsules.
func wrapOnce(said map[error]error, why error, wrap func() error) error {
	if known := said[why]; known != nil {
		return known
	}
	said[why] = wrap()
	return said[why]
}

// size returns how many schedulable nodes the scheduler sees, and how many there are.
func (l *PartitionLedger) size() (open, nodes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.open, l.view.nodes
}
