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
