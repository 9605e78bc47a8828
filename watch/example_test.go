package watch_test

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/watch"
)

// The agent of a node looks at the ledger when something on its node has changed, and sleeps through all else.
func ExampleIndex() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ledger := &orbit.MemoryLedger{}
	propose := func(do ...orbit.Commitment) {
		if _, err := ledger.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			fmt.Println(err)
		}
	}
	for _, id := range []orbit.NodeID{"node-a", "node-b"} {
		propose(orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 4_000}}})
	}
	index := &watch.Index{Ledger: ledger}
	go func() { _ = index.Run(ctx) }()

	seen, _ := index.Node(ctx, "node-a", 0) // at once, to begin with what is there
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1_000}}}
	propose(orbit.Submit{IDs: []orbit.CapsuleID{"web", "db"}, Spec: spec}, orbit.Place{Capsule: "web", Node: "node-b"})
	propose(orbit.Place{Capsule: "db", Node: "node-a"})
	if _, err := index.Node(ctx, "node-a", seen); err != nil {
		fmt.Println(err)
	}
	state, _ := ledger.Snapshot(ctx)
	for c := range state.On("node-a") {
		fmt.Println("node-a runs", c.ID)
	}
	// Output: node-a runs db
}
