package nav_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// TestEndsWithoutCascade lets urgent work evict pods: these end, so that the engine evicts no others for them. Pods that a
// user deletes stop by themselves: what comes is placed where nothing stops, and a group is spread without them.
func TestEndsWithoutCascade(t *testing.T) {
	ctx, l := context.Background(), &orbit.MemoryLedger{}
	now := func() *orbit.State { return snapshot(t, l) }
	room := func(cpu int64) orbit.Envelope { return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}} }
	for _, id := range []orbit.NodeID{"a", "b", "c"} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 10}, Labels: map[string]string{"pool": string(id)}, Confirms: true}})
	}
	pod := func(id orbit.CapsuleID, s *orbit.Spec, n orbit.NodeID) {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Adopt{Capsule: id, Node: n})
	}
	for i := range 10 {
		pod(orbit.CapsuleID(fmt.Sprint("victim", i)), &orbit.Spec{Priority: 10, Envelope: room(1), Ends: true}, "a")
		pod(orbit.CapsuleID(fmt.Sprint("other", i)), &orbit.Spec{Priority: 5, Envelope: room(1), Ends: true}, "b")
	}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "c", State: orbit.Cordoned}})
	urgent := &orbit.Spec{Priority: 100, Envelope: room(1), Require: []orbit.Predicate{{Key: "pool", Op: "In", Values: []string{"a"}}}}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"u0", "u1", "u2", "u3"}, Spec: urgent})
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
	for range 5 {
		e.Pass(ctx)
	}
	ended, others := 0, 0
	for c := range now().Capsules() {
		ended += btoi(c.Spec.Priority == 10 && c.Released())
		others += btoi(c.Spec.Priority == 5 && c.Placed())
	}
	require.Equal(t, []int{4, 10, 0}, []int{ended, others, now().PendingCount()}, "victims that have ended, others that are placed, capsules that wait")

	// A node is drained of pods: they stay, because only their controller may end them.
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "b", Capacity: orbit.Resources{orbit.CPU: 10}, Confirms: true, State: orbit.Cordoned}})
	d := &nav.Drain{Ledger: l, MayWait: func(*orbit.Capsule) bool { return true }}
	for range 3 {
		d.Pass(ctx)
	}
	require.Equal(t, int32(10), int32(now().Node("b").Capsules), "pods on a node that is drained")
}

// TestDeletedPod releases a pod for good while it runs: it stops by itself. It takes room, so work goes elsewhere as long
// as there is room; it is not healthy; it keeps others apart; and it is not counted by Even.
func TestDeletedPod(t *testing.T) {
	ctx, l := context.Background(), &orbit.MemoryLedger{}
	now := func() *orbit.State { return snapshot(t, l) }
	for _, id := range []orbit.NodeID{"a", "b"} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 2}, Labels: map[string]string{"zone": string(id)}, Confirms: true}})
	}
	spec := func(cpu int64) *orbit.Spec {
		return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}, Group: "g"}
	}
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "g", Group: "g", Expected: 1}})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: spec(2)}, orbit.Adopt{Capsule: "old", Node: "a"})
	commit(t, l, orbit.Confirm{Capsule: "old", Since: now().Capsule("old").PlacedAt, Ready: true})
	healthy := func() int {
		b, _ := now().Budget("g")
		return b.Healthy
	}
	require.Equal(t, 1, healthy())
	commit(t, l, orbit.Release{Capsule: "old", Final: true})
	require.Zero(t, healthy(), "the only one stops")
	even := spec(1)
	even.Even = []orbit.Even{{Group: "g", Level: "zone", MaxSkew: 1}}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"e1", "e2"}, Spec: even})
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{}}
	e.Pass(ctx)
	for _, id := range []orbit.CapsuleID{"e1", "e2"} { // one in each zone: the one that stops is not counted
		c := now().Capsule(id)
		require.True(t, c.Placed(), id)
		require.Equal(t, c.Node == "a", c.Waits, id)
	}
	apart := spec(0)
	apart.Apart = []orbit.Apart{{Group: "g", Level: orbit.NodeKey}}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: apart})
	commit(t, l, orbit.Release{Capsule: "e1", Final: true}, orbit.Release{Capsule: "e2", Final: true})
	_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "x", Node: "a"}}})
	require.Error(t, err, "what still stops keeps others apart")
}
