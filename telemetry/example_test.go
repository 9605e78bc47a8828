package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

func ExampleBoard() {
	var board telemetry.Board
	now := time.Now()
	for _, id := range []orbit.NodeID{"a", "b"} {
		_ = board.Report(orbit.Report{Node: id, At: now, FreeSlots: 8})
	}
	_, version, _ := board.Reports(context.Background(), 0)

	// A second later a says the same again, and b has less.
	_ = board.Report(orbit.Report{Node: "a", At: now.Add(time.Second), FreeSlots: 8})
	_ = board.Report(orbit.Report{Node: "b", At: now.Add(time.Second), FreeSlots: 5})
	reports, _, _ := board.Reports(context.Background(), version)
	for _, r := range reports {
		fmt.Println(r.Node, "now has", r.FreeSlots, "free slots")
	}

	fmt.Println(board.Report(orbit.Report{Node: "c", At: now, FreeSlots: -1}))
	// Output:
	// b now has 5 free slots
	// telemetry: invalid report of node "c": FreeSlots is -1; correct the reporter
}

// Between two reports of a node its slots are given away, and readers see it.
func ExampleBoard_Claim() {
	var board telemetry.Board
	now := time.Now()
	_ = board.Report(orbit.Report{Node: "a", At: now, FreeSlots: 8, Warm: map[string]int{"python": 1}})
	show := func() {
		r, _ := board.Latest("a")
		fmt.Println(r.FreeSlots, "free,", r.Warm["python"], "warm")
	}

	first := board.Claim("a", "python")
	fmt.Println("warm:", first.Warm())
	second := board.Claim("a", "python")
	fmt.Println("warm:", second.Warm())
	show()
	board.Unclaim(first)
	show()
	_ = board.Report(orbit.Report{Node: "a", At: now.Add(10 * time.Second), FreeSlots: 7, Warm: map[string]int{"python": 1}})
	show()
	// Output:
	// warm: true
	// warm: false
	// 6 free, 0 warm
	// 7 free, 1 warm
	// 7 free, 1 warm
}

// A term that has run out is refused for ever; the holder begins another one.
func ExampleLeases() {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leases := telemetry.Leases{Ledger: &orbit.MemoryLedger{}, Now: func() time.Time { return clock }}
	ctx := context.Background()
	term, _ := leases.Acquire(ctx, "scheduler", "process 1")
	_, err := leases.Acquire(ctx, "scheduler", "process 2")
	fmt.Println(errors.Is(err, telemetry.ErrHeld))

	clock = clock.Add(time.Minute)
	fmt.Println(leases.Refresh(term))
	round, _ := leases.Step(ctx)
	fmt.Println("ended:", round.Ended[0].Holder)
	term, _ = leases.Acquire(ctx, "scheduler", "process 2")
	fmt.Println("live:", term.Holder)
	// Output:
	// true
	// telemetry: lease term is over: "scheduler", term 1: it was not refreshed in time, or has been ended; acquire a new term
	// ended: process 1
	// live: process 2
}

// A node joins, reports under its term, dies, and loses its capsule.
func ExampleMembers() {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := func() time.Time { return clock }
	ledger, ctx := &orbit.MemoryLedger{}, context.Background()
	members := telemetry.Members{Leases: &telemetry.Leases{Ledger: ledger, Now: now}}
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
