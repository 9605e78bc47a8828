package shard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/shard"
)

// A dispatcher assigns capsules round robin to the schedulers that live, and reassigns those of a scheduler that dies.
func ExampleDispatcher() {
	ctx := context.Background()
	ledger := &orbit.MemoryLedger{}
	leases := &lease.Keeper{Ledger: ledger, Prefix: shard.LeasePrefix}
	east, _ := leases.Acquire(ctx, "east", "process 1")
	_, _ = leases.Acquire(ctx, "west", "process 2")
	small := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500}}}
	_, _ = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: small},
	}})

	dispatcher := &shard.Dispatcher{Ledger: ledger, Leases: leases}
	fmt.Println(dispatcher.Step(ctx).Dispatched)

	_ = leases.Resign(ctx, east)
	for _, r := range dispatcher.Step(ctx).Redispatched {
		fmt.Printf("%s: from %s to %s: %s\n", r.Capsule, r.From, r.To, r.Why)
	}
	// Output:
	// map[east:2 west:1]
	// a: from east to west: owner gone
	// c: from east to west: owner gone
}

// A population under one dispatcher: two schedulers, each an engine with a lease.
func ExampleScheduler() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ledger := &orbit.MemoryLedger{}
	leases := &lease.Keeper{Ledger: ledger, Prefix: shard.LeasePrefix}
	dispatcher := &shard.Dispatcher{Ledger: ledger, Leases: leases}
	go leases.Run(ctx)
	go dispatcher.Run(ctx)
	for _, name := range []string{"east", "west"} {
		scheduler := &shard.Scheduler{Name: name, Navigator: &nav.Services{}, Leases: leases}
		engine := &orbit.Engine{Name: name, Ledger: ledger, Navigator: scheduler}
		go scheduler.Keep(ctx, nil)
		go engine.Run(ctx)
	}
	small := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500}}}
	_, _ = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "node", Capacity: orbit.Resources{orbit.CPU: 4000}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: small},
	}})
	for {
		state, _ := ledger.Snapshot(ctx)
		if state.PendingCount() == 0 {
			fmt.Println(state.Node("node").Capsules, "placed")
			return
		}
		time.Sleep(time.Millisecond)
	}
	// Output: 3 placed
}

// An owner chosen by the user is pinned. Two owners for one capsule are refused, and nothing is submitted.
func ExampleImport() {
	ctx := context.Background()
	ledger := &orbit.MemoryLedger{}
	small := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500}}}

	_, err := shard.Import(ctx, ledger,
		shard.Submission{Submit: orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: small}},
		shard.Submission{Submit: orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: small}, Schedulers: []string{"east", "west"}},
	)
	var contradiction *shard.Error
	if errors.As(err, &contradiction) {
		fmt.Println(contradiction.Capsule, contradiction.Schedulers)
	}

	_, err = shard.Import(ctx, ledger,
		shard.Submission{Submit: orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: small}},
		shard.Submission{Submit: orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: small}, Schedulers: []string{"east"}},
	)
	state, _ := ledger.Snapshot(ctx)
	pinned, _ := state.Mark("pinned/b")
	fmt.Println(err, state.Capsule("b").Owner(), pinned)
	// Output:
	// b [east west]
	// <nil> east east
}

// A policy of the importer's own: each tenant has a scheduler, and all other capsules go to the least loaded one.
func ExamplePolicyFunc() {
	tenants := map[string]string{"acme": "east"}
	policy := shard.PolicyFunc(func(c *orbit.Capsule, among *shard.Candidates) string {
		if own := tenants[c.Spec.Module]; among.Has(own) {
			return own
		}
		return among.Least()
	})
	ctx := context.Background()
	ledger := &orbit.MemoryLedger{}
	_, _ = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: &orbit.Spec{Module: "acme"}},
		orbit.Submit{IDs: []orbit.CapsuleID{"d"}, Spec: &orbit.Spec{Module: "other"}},
	}})
	dispatcher := &shard.Dispatcher{Ledger: ledger, Schedulers: []string{"east", "west"}, Policy: policy}
	fmt.Println(dispatcher.Step(ctx).Dispatched)
	// Output: map[east:3 west:1]
}
