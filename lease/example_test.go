package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// A term that has run out is refused for ever; the holder begins another one.
func ExampleKeeper() {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leases := lease.Keeper{Ledger: &orbit.MemoryLedger{}, Now: func() time.Time { return clock }}
	ctx := context.Background()
	term, _ := leases.Acquire(ctx, "scheduler", "process 1")
	_, err := leases.Acquire(ctx, "scheduler", "process 2")
	fmt.Println(errors.Is(err, lease.ErrHeld))

	clock = clock.Add(time.Minute)
	fmt.Println(leases.Refresh(term))
	round, _ := leases.Step(ctx)
	fmt.Println("ended:", round.Ended[0].Holder)
	term, _ = leases.Acquire(ctx, "scheduler", "process 2")
	fmt.Println("live:", term.Holder)
	// Output:
	// true
	// lease term is over: "scheduler", term 1: it was not refreshed in time, or has been ended; acquire a new term
	// ended: process 1
	// live: process 2
}

// A node joins, reports under its term, dies, and loses its capsule.
func ExampleMembers() {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := func() time.Time { return clock }
	ledger, ctx := &orbit.MemoryLedger{}, context.Background()
	members := lease.Members{Leases: &lease.Keeper{Ledger: ledger, Now: now}}
	board := telemetry.Board{Leases: members.Leases, Now: now}

	term, _ := members.Join(ctx, orbit.Node{ID: "a"}, "agent")
	_ = board.Report(orbit.Report{Node: "a", At: clock, Term: term.Epoch, FreeSlots: 8})
	_, _ = ledger.Propose(ctx, orbit.Proposal{
		Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{"sandbox"}, Spec: &orbit.Spec{}},
			orbit.Place{Capsule: "sandbox", Node: "a"},
		},
		If: []orbit.Precondition{orbit.MarkAt{Key: members.Leases.Key("a"), Revision: term.Epoch}},
	})

	clock = clock.Add(time.Minute)
	r, _ := board.Latest("a")
	round, _ := members.Step(ctx)
	fmt.Println("expired:", r.Expired, "ended:", len(round.Ended))
	clock = clock.Add(5 * time.Minute)
	round, _ = members.Step(ctx)
	fmt.Println("released:", round.Released)
	// Output:
	// expired: true ended: 1
	// released: [sandbox]
}
