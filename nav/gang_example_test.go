package nav_test

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// A training job of a leader and four workers wants one rack, or else one block. Rack r2 is the one it fits
// tightest. A second job fits on no rack as a whole, and says how far it gets.
func ExampleGang() {
	ledger := &orbit.MemoryLedger{}
	ctx := context.Background()
	for i, rack := range []string{"r1", "r1", "r1", "r2", "r2"} {
		_, _ = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{
			ID:       orbit.NodeID(fmt.Sprint("node-", i)),
			Capacity: orbit.Resources{orbit.CPU: 10_000},
			Labels:   map[string]string{"rack": rack},
		}}}})
	}
	submit := func(id string) {
		worker := &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 4_000}}}
		leader := &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1_000}}}
		gang := &orbit.Gang{ID: orbit.GangID(id), Levels: []string{"rack"}, Roles: []orbit.Role{
			{Name: "leader", Spec: leader, Members: []orbit.CapsuleID{orbit.CapsuleID(id + "/leader")}},
			{Name: "worker", Spec: worker, Members: []orbit.CapsuleID{
				orbit.CapsuleID(id + "/0"), orbit.CapsuleID(id + "/1"), orbit.CapsuleID(id + "/2"), orbit.CapsuleID(id + "/3")}},
		}}
		_, _ = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{Gang: gang}}})
	}
	engine := orbit.Engine{Ledger: ledger, Navigator: &nav.Gang{}}

	submit("first")
	fmt.Println("committed:", engine.Pass(ctx).Committed)
	state, _ := ledger.Snapshot(ctx)
	for _, member := range []orbit.CapsuleID{"first/leader", "first/0", "first/3"} {
		fmt.Println(member, "on", state.Capsule(member).Node)
	}
	submit("second")
	submit("third")
	fmt.Println(engine.Pass(ctx).Unplaced[0].Why)
	// Output:
	// committed: 1
	// first/leader on node-3
	// first/0 on node-3
	// first/3 on node-4
	// gang "third": best rack r1 fits 3 of 5 (3 nodes lack cpu)
}
