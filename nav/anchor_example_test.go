package nav_test

import (
	"context"
	"fmt"
	"log"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Four capsules must each be in one rack with a member of their own group. No member is placed yet, so Services alone
// would wait for ever. An Anchor around Services places one member first and holds room for the others, which follow.
func ExampleAnchor() {
	ctx, ledger := context.Background(), &orbit.MemoryLedger{}
	propose := func(do ...orbit.Commitment) {
		if _, err := ledger.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			log.Fatal(err)
		}
	}
	for _, rack := range []string{"r1", "r2"} {
		for _, name := range []string{"a", "b"} {
			propose(orbit.PutNode{Node: orbit.Node{
				ID:       orbit.NodeID(rack + name),
				Capacity: orbit.Resources{orbit.CPU: 4_000},
				Labels:   map[string]string{"rack": rack},
			}})
		}
	}
	train := &orbit.Spec{
		Module:   "train",
		Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 2_000}},
		Group:    "train",
		Near:     orbit.Near{Group: "train", Level: "rack"},
	}
	propose(orbit.Submit{IDs: []orbit.CapsuleID{"t1", "t2", "t3", "t4"}, Spec: train})

	alone := &orbit.Engine{Ledger: ledger, Navigator: &nav.Services{}}
	fmt.Println("services:", alone.Pass(ctx).Unplaced[0].Why)

	engine := &orbit.Engine{Ledger: ledger, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
	engine.Pass(ctx) // the anchor, and room for the others
	engine.Pass(ctx) // the others
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []orbit.CapsuleID{"t1", "t2", "t3", "t4"} {
		c := state.Capsule(id)
		fmt.Printf("%s on %s %q\n", c.ID, c.Node, c.Note())
	}
	// Output:
	// services: 0 of 4 nodes fit: 4 wait for group train, of which nothing is placed
	// t1 on r1a "anchor"
	// t2 on r1a ""
	// t3 on r1b ""
	// t4 on r1b ""
}
