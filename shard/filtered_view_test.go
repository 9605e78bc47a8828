package shard

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// TestFilteredView: a filteredView closes the right nodes even if nothing else has changed. It shows nodes that join,
// leave and come back with another index, and reports, including those that are older than their node.
func TestFilteredView(t *testing.T) {
	ctx := context.Background()
	ledger, board, now := &orbit.MemoryLedger{}, &telemetry.Board{}, time.Now()
	commit(t, ledger, fleet(20, orbit.Resources{4})...)
	require.NoError(t, board.Report(orbit.Report{Node: "late", At: now, FreeSlots: 7}))
	var view orbit.View
	var v filteredView
	shown := map[string]bool{}
	follow := func(others ...orbit.NodeID) *orbit.View {
		require.NoError(t, view.Refresh(ctx, ledger, board, now))
		var indices []int32
		for _, id := range others {
			shown[string(id)] = !shown[string(id)]
			indices = append(indices, int32(view.State().Node(id).Index()))
		}
		out, err := v.follow(ctx, &view, indices, func(n *orbit.NodeState) bool { return !shown[string(n.Node.ID)] }, board)
		require.NoError(t, err)
		assert.Equal(t, view.Revision(), out.Revision())
		require.NoError(t, out.State().Verify())
		for n := range view.State().Nodes() {
			assert.Equal(t, !shown[string(n.Node.ID)], !out.State().Node(n.Node.ID).Node.Schedulable())
			assert.Equal(t, *view.Report(n), *out.Report(out.State().Node(n.Node.ID)))
		}
		return out
	}
	first := follow()
	assert.NotSame(t, first, follow("n01"), "nothing has changed but what is closed")
	second := follow("n01", "n02")
	commit(t, ledger, orbit.PutNode{Node: orbit.Node{ID: "late"}})
	commit(t, ledger, orbit.Mark{Key: "something", Value: "else"})
	_, cursor, _ := second.Changed(0)
	third := follow("n03")
	assert.Same(t, second, third)
	changed, _, all := third.Changed(cursor)
	assert.False(t, all)
	assert.Contains(t, changed, int32(view.State().Node("n03").Index()))
	assert.Contains(t, changed, int32(view.State().Node("late").Index()))
	commit(t, ledger, orbit.RemoveNode{Node: "n04"}, orbit.RemoveNode{Node: "n05"})
	commit(t, ledger, orbit.PutNode{Node: orbit.Node{ID: "n04"}}, orbit.PutNode{Node: orbit.Node{ID: "other"}})
	follow()
	require.NoError(t, board.Report(orbit.Report{Node: "n03", At: now, FreeSlots: 3}))
	follow()
}

// TestSoftDoubts: a class is not parked if it may fit on the nodes that this pass has used for other capsules.
func TestSoftDoubts(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(2, orbit.Resources{4})...)
	give(t, ledger, "a", "n00")
	commit(t, ledger, orbit.PutNode{Node: orbit.Node{ID: "n01", Capacity: orbit.Resources{1}}})
	spec := func(cores int64, priority int32) *orbit.Spec {
		return &orbit.Spec{Module: "m", Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{cores}}}
	}
	commit(t, ledger, orbit.Submit{IDs: []orbit.CapsuleID{"small"}, Spec: spec(1, 2), Owner: "a"},
		orbit.Submit{IDs: []orbit.CapsuleID{"big"}, Spec: spec(4, 1), Owner: "a"})
	engine := modeEngine(ledger, "a", Soft, ready["services"])
	r := engine.Pass(context.Background())
	require.Equal(t, 1, r.Committed, "%v", r)
	require.Len(t, r.Unplaced, 1)
	assert.ErrorIs(t, r.Unplaced[0].Why, errBehind)
	assert.Zero(t, r.Parked)
	r = engine.Pass(context.Background())
	require.Len(t, r.Unplaced, 1)
	assert.Equal(t, 1, r.Parked, "now it is known")
}
