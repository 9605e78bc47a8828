package score_test

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// Two empty nodes; the wish for an SSD outweighs that the bigger node would be less full.
func Example() {
	var ledger orbit.MemoryLedger
	ctx := context.Background()
	_, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "big", Capacity: orbit.Resources{orbit.CPU: 64_000}, Labels: map[string]string{"disk": "hdd"}}},
		orbit.PutNode{Node: orbit.Node{ID: "small", Capacity: orbit.Resources{orbit.CPU: 16_000}, Labels: map[string]string{"disk": "ssd"}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, _ := ledger.Snapshot(ctx)

	ssd := orbit.Predicate{Key: "disk", Op: "In", Values: []string{"ssd"}}
	spec := &orbit.Spec{
		Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 8_000}},
		Prefer:   []orbit.Preference{{Predicate: ssd, Weight: 1}},
	}
	policy := score.WeightedSum{
		{Weight: 1, Score: score.LeastAllocated{}},
		{Weight: 2, Score: score.Preferences{}},
	}
	for node := range state.Nodes() {
		value, _ := policy.Score(node, &orbit.Report{}, spec)
		fmt.Printf("%-5s %.3f\n", node.Node.ID, value)
	}
	// Output:
	// big   2.125
	// small 0.500
}

// Two nodes with one free device each. Most of the work to come wants a whole device and eight cores: a small
// share goes where there is no CPU for that, though the other node would end as full.
func ExampleFGD() {
	var ledger orbit.MemoryLedger
	ctx := context.Background()
	gpu := orbit.Devices{Model: "T4", Count: 1}
	_, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "much-cpu", Capacity: orbit.Resources{orbit.CPU: 16_000}, Devices: gpu}},
		orbit.PutNode{Node: orbit.Node{ID: "short-of-cpu", Capacity: orbit.Resources{orbit.CPU: 4_000}, Devices: gpu}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, _ := ledger.Snapshot(ctx)

	share := &orbit.Spec{
		Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1_000}},
		Devices:  orbit.DeviceRequest{Count: 1, Milli: 200},
	}
	whole := &orbit.Spec{
		Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 8_000}},
		Devices:  orbit.DeviceRequest{Count: 1, Milli: 1000},
	}
	policy := score.FGD{Typical: score.Typical([]*orbit.Spec{share, whole, whole, whole})}
	for node := range state.Nodes() {
		value, _ := policy.Score(node, &orbit.Report{}, share)
		fmt.Printf("%-12s %3.0f milli fragmented, score %.0f\n", node.Node.ID, policy.Fragmentation(node), value)
	}
	// Output:
	// much-cpu       0 milli fragmented, score -35
	// short-of-cpu 750 milli fragmented, score -53
}
