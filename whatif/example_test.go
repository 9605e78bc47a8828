package whatif_test

import (
	"context"
	"fmt"
	"log"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/whatif"
)

// two returns a ledger with two nodes of 4 cores, on each of which 3 are in use.
func two() *orbit.MemoryLedger {
	ledger := &orbit.MemoryLedger{}
	for _, id := range []string{"a", "b"} {
		node, web := orbit.NodeID("node-"+id), orbit.CapsuleID("web-"+id)
		if _, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.PutNode{Node: orbit.Node{ID: node, Capacity: orbit.Resources{orbit.CPU: 4000}}},
			orbit.Submit{IDs: []orbit.CapsuleID{web}, Spec: cpu(3000)},
			orbit.Place{Capsule: web, Node: node},
		}}); err != nil {
			log.Fatal(err)
		}
	}
	return ledger
}

func cpu(milli int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: milli}}}
}

// What would the schedulers do with this work? The report shows it, and Commit does just that.
func ExamplePlan() {
	ctx, ledger := context.Background(), two()
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	report, err := whatif.Plan(ctx, state, []orbit.Navigator{&nav.Services{}}, orbit.Submit{IDs: []orbit.CapsuleID{"new", "large"}, Spec: cpu(1000)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report)
	done, err := report.Commit(ctx, ledger)
	fmt.Println(done, "proposals committed,", err)
	// Output:
	// at revision 2: 2 placed, 0 moved, 0 displaced, 0 ended, 0 left unplaced; 3 proposals, 0 conflicts, 3 rounds
	//   + large on node-b
	//   + new on node-a
	// 3 proposals committed, <nil>
}

// Why does it not fit, and what would help?
func ExampleExplain() {
	ctx, ledger := context.Background(), two()
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	spec := cpu(2000)
	spec.Priority = 100
	explanation, err := whatif.Explain(ctx, state, spec)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(explanation)
	// Output:
	// 0 of 2 nodes fit
	//        2: lacks cpu, as node-a
	// it would fit if you
	//   * evict "web-b", which has a lower priority: then node node-b takes it
	//   * ask for 1000 less of cpu: then node node-a takes it
	//   * add a node like node-a
}
