package nav_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// surging returns a ledger with nodes that confirm, and members that are ready on the first, permit surges, and none of which
// may be missing.
func surging(t *testing.T, nodes []orbit.NodeID, room int64, members ...orbit.CapsuleID) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	for _, id := range nodes {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: room}, Confirms: true}})
	}
	s := spec(1, 0)
	s.Surge, s.Group = true, "web"
	commit(t, l, orbit.Submit{IDs: members, Spec: s}, orbit.PutBudget{Budget: orbit.Budget{ID: "web", Group: "web", Expected: len(members)}})
	for _, id := range members {
		commit(t, l, orbit.Place{Capsule: id, Node: nodes[0], At: orbit.Instant(time.Now().UnixNano())})
		serve(t, l, id)
	}
	return l
}

// serve confirms that a capsule is ready where it is placed.
func serve(t *testing.T, l orbit.Ledger, id orbit.CapsuleID) {
	commit(t, l, orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).PlacedAt, Ready: true})
}

// healthy returns how many members the budget counts.
func healthy(t *testing.T, l orbit.Ledger) int {
	for b := range snapshot(t, l).Budgets() {
		return b.Healthy
	}
	return -1
}

// TestDrainSurges: members none of which may be missing are moved off a cordoned node by surges, as many as fit elsewhere. One that
// fails there is back, and moved again. The node is empty when what surges has stopped.
func TestDrainSurges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := surging(t, []orbit.NodeID{"n1", "n2"}, 2, "a", "b")
		cordon(t, l, true, "n1")
		d := &nav.Drain{Ledger: l}
		round := d.Pass(t.Context())
		slices.Sort(round.Moved)
		require.Equal(t, []orbit.CapsuleID{"a", "b"}, round.Moved)
		require.Equal(t, []orbit.CapsuleID{"a", "b"}, on(t, l, "n2"))
		require.Equal(t, 2, healthy(t, l))
		require.Empty(t, d.Pass(t.Context()).Emptied, "both run on there")
		commit(t, l, orbit.Release{Capsule: "a", Stopped: true})
		require.Equal(t, []orbit.CapsuleID{"a"}, on(t, l, "n1"))
		require.Equal(t, []orbit.CapsuleID{"a"}, d.Pass(t.Context()).Moved)
		for _, id := range []orbit.CapsuleID{"a", "b"} {
			serve(t, l, id)
			require.Equal(t, 2, healthy(t, l))
			commit(t, l, orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).Surge().Since, Stopped: true})
		}
		require.Equal(t, []orbit.NodeID{"n1"}, d.Pass(t.Context()).Emptied)
	})
}

// TestDefragSurges: a node is emptied by surges where a budget lets none be missing.
func TestDefragSurges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := surging(t, []orbit.NodeID{"n1", "n2"}, 4, "a", "b")
		other := spec(2, 0)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: other}, orbit.Place{Capsule: "other", Node: "n2"})
		time.Sleep(2 * time.Hour)
		d := &nav.Defrag{Ledger: l, Goal: nav.EmptyNodes{}}
		round := d.Pass(context.Background())
		require.Empty(t, round.Errors)
		require.Len(t, round.Moved, 2)
		require.Equal(t, []orbit.CapsuleID{"a", "b", "other"}, on(t, l, "n2"))
		require.Equal(t, 2, healthy(t, l))
		require.NotNil(t, snapshot(t, l).Capsule("a").Surge())
	})
}
