package nav_test

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Two sweeps want more than there is: one of large tasks, one of small. Most tasks are placed if some of the large
// ones wait. The notes say that no way of packing places more.
func ExampleBatch() {
	ctx, ledger := context.Background(), &orbit.MemoryLedger{}
	join := orbit.Proposal{}
	for _, id := range []orbit.NodeID{"a", "b", "c"} {
		n := orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 32_000, orbit.Memory: 128 << 30}}
		join.Do = append(join.Do, orbit.PutNode{Node: n})
	}
	sweep := func(module string, n int, cpu, memory int64) orbit.Submit {
		s := orbit.Submit{Spec: &orbit.Spec{Module: module, Class: orbit.Batch}}
		s.Spec.Envelope.Reservation = orbit.Resources{orbit.CPU: cpu, orbit.Memory: memory}
		for i := range n {
			s.IDs = append(s.IDs, orbit.CapsuleID(fmt.Sprint(module, "-", i)))
		}
		return s
	}
	join.Do = append(join.Do, sweep("large", 9, 8000, 32<<30), sweep("small", 40, 1000, 4<<30))
	if _, err := ledger.Propose(ctx, join); err != nil {
		panic(err)
	}

	engine := orbit.Engine{Ledger: ledger, Navigator: &nav.Batch{}, MaxPlan: 5000}
	round := engine.Pass(ctx)
	for _, note := range round.Notes[:4] {
		fmt.Println(note)
	}
	fmt.Println(round.Unplaced[0].Capsule.ID, "waits:", round.Unplaced[0].Why)
	// Output:
	// pending=49
	// placed=47
	// bound=47
	// gap=0
	// large-7 waits: 0 of 3 nodes fit: 3 lack cpu
}
