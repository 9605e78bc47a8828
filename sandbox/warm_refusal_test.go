package sandbox_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// reasonsOfFirst plans, and returns how many nodes do not take the first capsule, and why.
func reasonsOfFirst(t *testing.T, w *sandbox.Warm, view *orbit.View) map[string]int {
	plan, err := w.Plan(context.Background(), view, view.State().Pending())
	require.NoError(t, err)
	require.NotEmpty(t, plan.Unplaced)
	var fit *orbit.NoFit
	require.ErrorAs(t, plan.Unplaced[0].Why, &fit)
	return fit.Reasons()
}

// The end of a lease is a mark and changes no node: what is said of a class is looked up again when the ledger has moved on.
func TestWarmRefusalFollowsTheMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 0, 0, 0)
		leases := &lease.Keeper{Ledger: f.ledger}
		term, err := leases.Acquire(context.Background(), "a", "agent")
		require.NoError(t, err)
		submit(t, f.ledger, "c", 1, bootSpec(code))
		// The navigator is told of terms; the reports that its view is joined with are not under them.
		w, view := &sandbox.Warm{Board: &telemetry.Board{Leases: leases}}, &orbit.View{}
		see := func() {
			require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
		}
		see()
		require.Equal(t, map[string]int{"have no free slot": 1}, reasonsOfFirst(t, w, view))
		require.NoError(t, leases.Resign(context.Background(), term))
		require.Equal(t, map[string]int{"have no free slot": 1}, reasonsOfFirst(t, w, view), "the view stands still")
		see()
		require.Equal(t, map[string]int{"have no live lease": 1}, reasonsOfFirst(t, w, view))
	})
}

// pinned is a ledger of one state.
type pinned struct {
	orbit.Ledger
	state *orbit.State
}

func (p pinned) Snapshot(context.Context) (*orbit.State, error) { return p.state, nil }

// One revision may be seen in several ways: with nodes closed or not (State.Restricted). Each view is told of what it shows.
func TestWarmRefusalIsOfItsView(t *testing.T) {
	f := newFleet(t)
	f.host("a", 0, 0, 0)
	f.host("b", 0, 0, 0)
	f.host("c", 0, 0, 0)
	submit(t, f.ledger, "c", 1, bootSpec(code))
	open := snapshot(t, f.ledger)
	w, views := &sandbox.Warm{}, [3]orbit.View{}
	said := [3]map[string]int{{"have no free slot": 3},
		{"have no free slot": 2, "are unschedulable": 1},
		{"are unschedulable": 2, "have no free slot": 1}}
	for i, closed := range []string{"", "a", "ab"} {
		state := open.Restricted(nil, nil, func(n *orbit.NodeState) bool { return strings.Contains(closed, string(n.Node.ID)) })
		require.NoError(t, views[i].Refresh(context.Background(), pinned{f.ledger, state}, f.board, time.Now()))
	}
	for range 2 {
		for i := range views {
			require.Equal(t, said[i], reasonsOfFirst(t, w, &views[i]))
		}
	}
}

// Warm indexes nodes by the volumes that they report now. It drops a volume from the index once no node reports it or
// its node is removed.
func TestWarmFilesVolumes(t *testing.T) {
	f := newFleet(t)
	w, view, at := &sandbox.Warm{}, &orbit.View{}, time.Now()
	have := func(id string, volumes ...string) {
		at = at.Add(time.Millisecond)
		require.NoError(t, f.board.Report(orbit.Report{Node: orbit.NodeID(id), At: at, FreeSlots: 9, Volumes: volumes}))
	}
	filed := func() map[string]int {
		require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, at))
		_, err := w.Plan(context.Background(), view, nil)
		require.NoError(t, err)
		return sandbox.Holders(w)
	}
	f.join("a", 9)
	f.join("b", 9)
	have("a", "v", "w")
	have("b", "w")
	require.Equal(t, map[string]int{"v": 1, "w": 2}, filed())
	have("a", "x")
	require.Equal(t, map[string]int{"w": 1, "x": 1}, filed())
	commit(t, f.ledger, orbit.RemoveNode{Node: "b"})
	require.Equal(t, map[string]int{"x": 1}, filed())
}

// What was planned and came to nothing is forgotten in the next plan, also where no board takes the claims back and the
// node has not changed; and nothing is kept of it.
func TestWarmForgetsWhatWasLost(t *testing.T) {
	f := newFleet(t)
	f.host("a", 2, 1, 0)
	submit(t, f.ledger, "c", 2, bootSpec(code))
	w, view := &sandbox.Warm{}, &orbit.View{}
	for range 5 {
		require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
		plan, err := w.Plan(context.Background(), view, view.State().Pending())
		require.NoError(t, err)
		require.Len(t, plan.Proposals, 2)
		require.Equal(t, sandbox.WarmNote, plan.Proposals[0].Do[0].(orbit.Place).Note)
		require.LessOrEqual(t, sandbox.Steps(w), 4)
	}
}
