package shard

import (
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// filteredView is a view of what another view shows, with some nodes closed. The cost of bringing it up to date grows with
// the number of changes in the other view, and of nodes that are newly closed or opened.
type filteredView struct {
	view  *orbit.View
	state *orbit.State
	// cursor is the position in the changes of the other view.
	cursor uint64
}

// follow brings the filtered view up to another view. The list others has the indices of nodes that have not changed in
// that view for which closed, however, returns another result than the last time. It returns a new View if the old one cannot
// be brought up to date.
func (v *filteredView) follow(ctx context.Context, from *orbit.View, others []int32, closed func(*orbit.NodeState) bool, telemetry orbit.Telemetry) (*orbit.View, error) {
	changed, next, all := from.Changed(v.cursor)
	v.cursor = next
	state := from.State()
	if len(changed)+len(others) > 0 && v.state != nil && state.Revision() == v.state.Revision() {
		all = true // a view does not read the same revision twice
	}
	var fixed pinned
	if all || v.view == nil {
		v.view, fixed.state = &orbit.View{}, state.Closed(nil, nil, closed)
	} else {
		touched := unique(append(slices.Clone(changed), others...))
		fixed.state = state.Closed(v.state, touched, closed)
		fixed.changes = changesBetween(v.state, fixed.state, touched)
	}
	v.state = fixed.state
	return v.view, v.view.Refresh(ctx, fixed, telemetry, from.Now())
}

// changesBetween returns changes that make a view read some nodes again: for each index, that the old node has left and
// that the new one has joined.
func changesBetween(was, now *orbit.State, touched []int32) []orbit.Change {
	out := make([]orbit.Change, 0, len(touched))
	for _, i := range touched {
		before, after := was.NodeByIndex(int(i)), now.NodeByIndex(int(i))
		if before != nil && (after == nil || after.Node.ID != before.Node.ID) {
			out = append(out, orbit.Change{Revision: now.Revision(), Do: orbit.RemoveNode{Node: before.Node.ID}, Node: before.Node.ID})
		}
		if after != nil { // with the revision at which the node joined, so that a new node's report is looked up
			out = append(out, orbit.Change{Revision: after.Specification, Do: orbit.PutNode{Node: *after.Node}, Node: after.Node.ID})
		}
	}
	return out
}

// pinned is a ledger that has one fixed state, for a view to read.
type pinned struct {
	orbit.Ledger
	state   *orbit.State
	changes []orbit.Change
}

// Snapshot returns the pinned state.
func (p pinned) Snapshot(context.Context) (*orbit.State, error) { return p.state, nil }

// Changes returns the changes that led to the pinned state.
func (p pinned) Changes(context.Context, orbit.Revision) ([]orbit.Change, error) {
	return p.changes, nil
}
