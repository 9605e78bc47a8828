package nav_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// TestEndsWithoutCascade lets urgent work evict pods: these end, so that the engine evicts no others for them. Pods that a
// user deletes stop by themselves: what comes is placed where nothing stops, and a group is spread without them.
func TestEndsWithoutCascade(t *testing.T) {
	ctx, l := context.Background(), &orbit.MemoryLedger{}
	commit := func(do ...orbit.Commitment) {
		t.Helper()
		if _, err := l.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			t.Fatal(err)
		}
	}
	now := func() *orbit.State { s, _ := l.Snapshot(ctx); return s }
	room := func(cpu int64) orbit.Envelope { return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}} }
	for _, id := range []orbit.NodeID{"a", "b", "c"} {
		commit(orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 10}, Labels: map[string]string{"pool": string(id)}, Confirms: true}})
	}
	pod := func(id orbit.CapsuleID, s *orbit.Spec, n orbit.NodeID) {
		commit(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Adopt{Capsule: id, Node: n})
	}
	for i := range 10 {
		pod(orbit.CapsuleID(fmt.Sprint("victim", i)), &orbit.Spec{Priority: 10, Envelope: room(1), Ends: true}, "a")
		pod(orbit.CapsuleID(fmt.Sprint("other", i)), &orbit.Spec{Priority: 5, Envelope: room(1), Ends: true}, "b")
	}
	commit(orbit.PutNode{Node: orbit.Node{ID: "c", State: orbit.Cordoned}})
	urgent := &orbit.Spec{Priority: 100, Envelope: room(1), Require: []orbit.Predicate{{Key: "pool", Op: "In", Values: []string{"a"}}}}
	commit(orbit.Submit{IDs: []orbit.CapsuleID{"u0", "u1", "u2", "u3"}, Spec: urgent})
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
	for range 5 {
		e.Pass(ctx)
	}
	ended, others := 0, 0
	for c := range now().Capsules() {
		if c.Spec.Priority == 10 && c.Released() {
			ended++
		}
		if c.Spec.Priority == 5 && c.Placed() {
			others++
		}
	}
	if ended != 4 || others != 10 || now().PendingCount() != 0 {
		t.Errorf("%d victims have ended and %d others are placed, %d capsules wait; it must be 4, 10 and 0", ended, others, now().PendingCount())
	}

	// A node is drained of pods: they stay, because only their controller may end them.
	commit(orbit.PutNode{Node: orbit.Node{ID: "b", Capacity: orbit.Resources{orbit.CPU: 10}, Confirms: true, State: orbit.Cordoned}})
	d := &nav.Drain{Ledger: l, MayWait: func(*orbit.Capsule) bool { return true }}
	for range 3 {
		d.Pass(ctx)
	}
	if n := now().Node("b").Capsules; n != 10 {
		t.Errorf("%d pods are left on a node that is drained; it must be 10", n)
	}
}

// TestDeletedPod releases a pod for good while it runs: it stops by itself. It takes room, so work goes elsewhere as long
// as there is room; it is not healthy; it keeps others apart; and it is not counted by Even.
func TestDeletedPod(t *testing.T) {
	ctx, l := context.Background(), &orbit.MemoryLedger{}
	commit := func(do ...orbit.Commitment) {
		t.Helper()
		if _, err := l.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			t.Fatal(err)
		}
	}
	now := func() *orbit.State { s, _ := l.Snapshot(ctx); return s }
	for _, id := range []orbit.NodeID{"a", "b"} {
		commit(orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 2}, Labels: map[string]string{"zone": string(id)}, Confirms: true}})
	}
	spec := func(cpu int64) *orbit.Spec {
		return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}, Group: "g"}
	}
	commit(orbit.PutBudget{Budget: orbit.Budget{ID: "g", Group: "g", Expected: 1}})
	commit(orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: spec(2)}, orbit.Adopt{Capsule: "old", Node: "a"})
	commit(orbit.Confirm{Capsule: "old", Since: now().Capsule("old").PlacedAt, Ready: true})
	if b, _ := now().Budget("g"); b.Healthy != 1 {
		t.Errorf("%d are healthy; it must be 1", b.Healthy)
	}
	commit(orbit.Release{Capsule: "old", Final: true})
	if b, _ := now().Budget("g"); b.Healthy != 0 {
		t.Errorf("%d are healthy while the only one stops", b.Healthy)
	}
	even := spec(1)
	even.Even = []orbit.Even{{Group: "g", Level: "zone", MaxSkew: 1}}
	commit(orbit.Submit{IDs: []orbit.CapsuleID{"e1", "e2"}, Spec: even})
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{}}
	e.Pass(ctx)
	for _, id := range []orbit.CapsuleID{"e1", "e2"} { // one in each zone: the one that stops is not counted
		if c := now().Capsule(id); !c.Placed() || c.Waits != (c.Node == "a") {
			t.Errorf("capsule %q is on node %q and waits: %v", id, c.Node, c.Waits)
		}
	}
	apart := spec(0)
	apart.Apart = []orbit.Apart{{Group: "g", Level: orbit.NodeKey}}
	commit(orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: apart})
	commit(orbit.Release{Capsule: "e1", Final: true}, orbit.Release{Capsule: "e2", Final: true})
	if _, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "x", Node: "a"}}}); err == nil {
		t.Error("what still stops does not keep others apart")
	}
}
