package telemetry_test

import (
	"context"
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
