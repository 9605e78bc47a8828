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
	//   * ask for 1 core less: then node node-a takes it
	//   * add a node like node-a
}

// Which nodes have to join for what waits, and which can go when some of it has ended? The first answer is one commit; then
// start the machine. The second is one commit for each node; then remove it.
func ExampleScaleUp() {
	ctx, ledger := context.Background(), two()
	state := func(do ...orbit.Commitment) *orbit.State {
		if _, err := ledger.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			log.Fatal(err)
		}
		state, err := ledger.Snapshot(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return state
	}
	movable := cpu(2000)
	movable.Movable = true
	up := &whatif.ScaleUp{Kinds: []whatif.NodeKind{
		{Name: "small", Price: 1, Node: orbit.Node{Capacity: orbit.Resources{orbit.CPU: 2000}}},
		{Name: "large", Price: 2.5, Node: orbit.Node{Capacity: orbit.Resources{orbit.CPU: 8000}}},
	}}
	answer, err := up.Plan(ctx, state(orbit.Submit{IDs: []orbit.CapsuleID{"x", "y", "z"}, Spec: movable}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	if _, err := answer.Commit(ctx, ledger); err != nil {
		log.Fatal(err)
	}

	down := &whatif.ScaleDown{Price: func(n *orbit.Node) float64 { return float64(n.Capacity[orbit.CPU]) / 4000 }}
	answer, err = down.Plan(ctx, state(orbit.Release{Capsule: "web-a", Final: true}, orbit.Release{Capsule: "z", Final: true}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	// Output:
	// join: 1 nodes that cost 2.5, bound 2.5
	//   large-1: 2.5
	// at revision 3: 3 placed, 0 moved, 0 displaced, 0 ended, 0 left unplaced; 1 proposals, 0 conflicts, 0 rounds
	//   + x on large-1
	//   + y on large-1
	//   + z on large-1
	// go: 1 nodes that save 2, bound 2.25
	//   large-1: 2
	// at revision 5: 0 placed, 2 moved, 0 displaced, 0 ended, 0 left unplaced; 1 proposals, 0 conflicts, 0 rounds
	//   ~ x from large-1 to node-a
	//   ~ y from large-1 to node-a
}
