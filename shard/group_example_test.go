package shard_test

import (
	"context"
	"fmt"
	"log"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/shard"
)

// constellation returns a ledger with nodes of 8 cores each.
func constellation(nodes int) *orbit.MemoryLedger {
	ledger := &orbit.MemoryLedger{}
	for i := range nodes {
		propose(ledger, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{orbit.CPU: 8000}}})
	}
	return ledger
}

func propose(ledger orbit.Ledger, do ...orbit.Commitment) {
	if _, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil {
		log.Fatal(err)
	}
}

// Twelve nodes are divided among three schedulers. Scheduler c gives up its lease, and its nodes go to the others at once. When it
// comes back, it gets its share by handoffs: Groups asks the owners for nodes, the owners agree in their next passes, and
// Groups then ends the handoffs.
func ExampleGroups() {
	ctx := context.Background()
	ledger := constellation(12)
	leases := &lease.Keeper{Ledger: ledger, Prefix: shard.LeasePrefix}
	terms, engines := map[string]lease.Term{}, map[string]*orbit.Engine{}
	for _, name := range []string{"a", "b", "c"} {
		term, err := leases.Acquire(ctx, name, "process-1")
		if err != nil {
			log.Fatal(err)
		}
		terms[name] = term
		partition := &shard.PartitionLedger{Ledger: ledger, Scheduler: name, Mode: shard.Strict}
		engines[name] = &orbit.Engine{Name: name, Ledger: partition, Navigator: partition.Navigator(func() orbit.Navigator { return &nav.Services{} })}
	}
	groups := &shard.Groups{Ledger: ledger, Leases: leases}
	step := func() {
		r := groups.Step(ctx)
		for _, g := range r.Groups {
			fmt.Printf("%s has %d  ", g.Scheduler, g.Nodes)
		}
		fmt.Printf("grouped %d, moved %d, handoffs under way %d, ended %d\n", r.Grouped, len(r.Moved), r.Waiting, r.Ended)
	}
	step()
	if err := leases.Resign(ctx, terms["c"]); err != nil {
		log.Fatal(err)
	}
	step()
	if _, err := leases.Acquire(ctx, "c", "process-2"); err != nil {
		log.Fatal(err)
	}
	step()
	for _, engine := range engines { // in a program each engine does this in its Run
		engine.Pass(ctx)
	}
	step()
	// Output:
	// a has 4  b has 4  c has 4  grouped 12, moved 0, handoffs under way 0, ended 0
	// a has 6  b has 6  grouped 0, moved 4, handoffs under way 0, ended 0
	// a has 4  b has 4  c has 4  grouped 0, moved 4, handoffs under way 4, ended 0
	// a has 4  b has 4  c has 4  grouped 0, moved 0, handoffs under way 0, ended 4
}

// Scheduler a has more work than its group of nodes has capacity for. The mode decides whether it may use the nodes of b, too.
func ExamplePartitionLedger() {
	for _, mode := range []shard.Mode{shard.Strict, shard.Soft, shard.Shared} {
		ledger := constellation(4)
		groups := &shard.Groups{Ledger: ledger, Schedulers: []string{"a", "b"}}
		groups.Step(context.Background())
		spec := &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 4000}}}
		propose(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"w-1", "w-2", "w-3", "w-4", "w-5"}, Spec: spec, Owner: "a"})

		partition := &shard.PartitionLedger{Ledger: ledger, Scheduler: "a", Mode: mode}
		engine := &orbit.Engine{Name: "a", Ledger: partition, Navigator: partition.Navigator(func() orbit.Navigator { return &nav.Services{} })}
		r := engine.Pass(context.Background())
		fmt.Printf("%v: %d placed\n", mode, r.Committed)
		for _, u := range r.Unplaced {
			fmt.Printf("  %s: %v\n", u.Capsule.ID, u.Why)
		}
	}
	// Output:
	// strict: 4 placed
	//   w-5: 0 of 4 nodes fit: 2 are unschedulable, 2 lack cpu; the group of scheduler "a" has 2 of the 4 schedulable nodes; soft mode would use the others too
	// soft: 5 placed
	// shared: 5 placed
}
