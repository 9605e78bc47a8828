package shard

import (
	"context"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// filteredView is a view of what another view shows, with some nodes closed. It follows that one at the cost of what has changed
// in it, and of what it closes otherwise than before.
type filteredView struct {
	view  *orbit.View
	state *orbit.State
	// Of the view that it follows.
	cursor uint64
	// What it shows while it is brought up to date.
	pinned
}

// follow brings it up to a view. Others are the indices of nodes for which closed answers otherwise than it did
// and that have not changed in the view. What it returns is another View if the old one cannot be brought up to date.
func (v *filteredView) follow(ctx context.Context, from *orbit.View, others []int32, closed func(*orbit.NodeState) bool, telemetry orbit.Telemetry) (*orbit.View, error) {
	changed, next, all := from.Changed(v.cursor)
	v.cursor = next
	state := from.State()
	if len(changed)+len(others) > 0 && v.state != nil && state.Revision() == v.state.Revision() {
		all = true // a view does not look twice at one revision
	}
	if all || v.view == nil {
		v.view, v.pinned = &orbit.View{}, pinned{state: state.Closed(nil, nil, closed)}
	} else {
		touched := unique(append(slices.Clone(changed), others...))
		v.pinned = pinned{state: state.Closed(v.state, touched, closed)}
		v.changes = changesBetween(v.state, v.pinned.state, touched)
	}
	v.state = v.pinned.state
	return v.view, v.refresh(ctx, telemetry, from.Now())
}

// refresh shows the view what is pinned.
func (v *filteredView) refresh(ctx context.Context, telemetry orbit.Telemetry, now time.Time) error {
	err := v.view.Refresh(ctx, v.pinned, telemetry, now)
	v.pinned = pinned{}
	return err
}

// changesBetween says of nodes, by index, that they have left and that they are there, which makes a view look at them.
func changesBetween(was, now *orbit.State, touched []int32) []orbit.Change {
	out := make([]orbit.Change, 0, len(touched))
	for _, i := range touched {
		before, after := was.NodeByIndex(int(i)), now.NodeByIndex(int(i))
		if before != nil && (after == nil || after.Node.ID != before.Node.ID) {
			out = append(out, orbit.Change{Revision: now.Revision(), Do: orbit.RemoveNode{Node: before.Node.ID}, Node: before.Node.ID})
		}
		if after != nil { // at the revision at which it joined, if it has: its report is looked up then
			out = append(out, orbit.Change{Revision: after.Specification, Do: orbit.PutNode{Node: *after.Node}, Node: after.Node.ID})
		}
	}
	return out
}

// pinned is a ledger of one state, for a view to look at.
type pinned struct {
	orbit.Ledger
	state   *orbit.State
	changes []orbit.Change
}

// Snapshot returns the state.
func (p pinned) Snapshot(context.Context) (*orbit.State, error) { return p.state, nil }

// Changes returns what has changed in it.
func (p pinned) Changes(context.Context, orbit.Revision) ([]orbit.Change, error) {
	return p.changes, nil
}
