package place_test

import (
	"context"
	"fmt"
	"log"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// three returns a ledger with three nodes of 4 cores, of which node-b has a task of 2 cores with priority 1.
func three() *orbit.MemoryLedger {
	ledger := &orbit.MemoryLedger{}
	for _, id := range []orbit.NodeID{"node-a", "node-b", "node-c"} {
		commit(ledger, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 4_000}}})
	}
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"task"}, Spec: asks(2_000, 1)}, orbit.Place{Capsule: "task", Node: "node-b"})
	return ledger
}

func commit(ledger orbit.Ledger, do ...orbit.Commitment) {
	if _, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil {
		log.Fatal(err)
	}
}

func asks(milliCores int64, priority int32) *orbit.Spec {
	return &orbit.Spec{Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: milliCores}}}
}

// choose submits one capsule and prints on which node an engine with a navigator has placed it, or why it has not.
func choose(navigator orbit.Navigator, spec *orbit.Spec) {
	ledger := three()
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: spec})
	round := (&orbit.Engine{Name: "one", Ledger: ledger, Navigator: navigator}).Pass(context.Background())
	if len(round.Unplaced) > 0 {
		fmt.Println("new waits:", round.Unplaced[0].Why)
		return
	}
	fmt.Println("new on", snapshot(ledger).Capsule("new").Node)
}

func snapshot(ledger orbit.Ledger) *orbit.State {
	state, err := ledger.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	return state
}

// A navigator gets its placement engine, and the engine its score: BestFit fills the fullest node first, Spread the emptiest.
func ExampleIndexed() {
	choose(&nav.Services{Placement: &place.Indexed{Score: score.BestFit{}}}, asks(1_000, 0))
	choose(&nav.Services{Placement: &place.Indexed{Score: score.Spread{}}}, asks(1_000, 0))
	// Output:
	// new on node-b
	// new on node-a
}

// A filter says why it refuses a node; what it says is counted where nothing fits.
func ExampleFilter() {
	filter := func(node *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
		if node.Node.ID != "node-b" {
			return "are for tests only"
		}
		return ""
	}
	choose(&nav.Services{Placement: &place.Indexed{Filter: filter}}, asks(3_000, 0))
	// Output: new waits: 0 of 3 nodes fit: 2 are for tests only, 1 lacks cpu
}

// Where nothing fits, BestEvicting finds the node whose victims are best, and On takes the steps on the draft.
func ExampleIndexed_BestEvicting() {
	engine, draft := &place.Indexed{}, &orbit.Draft{}
	navigator := nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
		draft.Sync(view)
		for _, c := range pending {
			eviction, err := engine.BestEvicting(draft, c)
			if err == nil {
				err = eviction.On(draft, c)
			}
			if err != nil {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
				continue
			}
			plan.Proposals = append(plan.Proposals, draft.Propose())
		}
		return plan, nil
	})
	small := three()
	commit(small, orbit.RemoveNode{Node: "node-a"}, orbit.RemoveNode{Node: "node-c"})
	commit(small, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: asks(4_000, 9)})
	(&orbit.Engine{Name: "one", Ledger: small, Navigator: navigator}).Pass(context.Background())
	state := snapshot(small)
	fmt.Println("urgent on", state.Capsule("urgent").Node)
	fmt.Println("task waits:", state.Capsule("task").Pending())
	// Output:
	// urgent on node-b
	// task waits: true
}
