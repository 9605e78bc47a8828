package shard

import (
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// filteredView is a copy of another view in which some nodes are closed, that is, shown as unschedulable. The cost of
// bringing it up to date grows with the number of changes in the other view, and of nodes that are newly closed or
// opened.
type filteredView struct {
	view  *orbit.View
	state *orbit.State
	// cursor is the position in the changes of the other view.
	cursor uint64
}

// follow brings the filtered view up to the view from. The list others has the indices of further nodes to update:
// nodes that have not changed in from, but for which closed now returns another result than at the last call. follow
// returns a new View if the old one cannot be brought up to date.
func (v *filteredView) follow(ctx context.Context, from *orbit.View, others []int32, closed func(*orbit.NodeState) bool, telemetry orbit.Telemetry) (*orbit.View, error) {
	changed, next, all := from.Changed(v.cursor)
	v.cursor = next
	state := from.State()
	if len(changed)+len(others) > 0 && v.state != nil && state.Revision() == v.state.Revision() {
		all = true // a view does not read the same revision twice
	}
	var fixed pinned
	if all || v.view == nil {
		v.view, fixed.state = &orbit.View{}, state.Restricted(nil, nil, closed)
	} else {
		touched := unique(append(slices.Clone(changed), others...))
		fixed.state = state.Restricted(v.state, touched, closed)
	}
	v.state = fixed.state
	return v.view, v.view.Refresh(ctx, fixed, telemetry, from.Now())
}

// pinned is a ledger that has one fixed state, for a view to read.
type pinned struct {
	orbit.Ledger
	state *orbit.State
}

// Snapshot returns the pinned state.
func (p pinned) Snapshot(context.Context) (*orbit.State, error) { return p.state, nil }

// Changes returns none: a view sees from the states which nodes have changed.
func (p pinned) Changes(context.Context, orbit.Revision) ([]orbit.Change, error) { return nil, nil }
