package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// twoHosts are those of the worked example: pz20 has 18 slots warm, n1v2 has 5.
func twoHosts() (*orbit.MemoryLedger, *telemetry.Board) {
	ledger, board := &orbit.MemoryLedger{}, &telemetry.Board{}
	for _, r := range []orbit.Report{
		{Node: "pz20", Warm: map[string]int{"code-interpreter": 18}, FreeSlots: 21, CPUPercent: 31},
		{Node: "n1v2", Warm: map[string]int{"code-interpreter": 5}, FreeSlots: 23, CPUPercent: 12, Volumes: []string{"data"}},
	} {
		r.At, r.Templates = time.Now(), []string{"code-interpreter"}
		if err := board.Report(r); err != nil {
			log.Fatal(err)
		}
		host := orbit.Node{ID: r.Node, Capacity: orbit.Resources{orbit.Slots: 16_384}}
		if _, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: host}}}); err != nil {
			log.Fatal(err)
		}
	}
	return ledger, board
}

// A queue of sandboxes: an engine places 14 that start from a template and one that opens a volume as well. A warm slot
// is worth a hundred free ones, and what has been promised counts at once, long before the hosts report again.
func ExampleWarm() {
	ledger, board := twoHosts()
	spec := &orbit.Spec{Module: "sandbox", Start: orbit.Start{Template: "code-interpreter"}}
	spec.Envelope.Reservation[orbit.Slots] = 1
	withData := *spec
	withData.Start.Volumes = []string{"data"}
	var ids []orbit.CapsuleID
	for i := range 14 {
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("sandbox-", i)))
	}
	_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.Submit{IDs: ids, Spec: spec},
		orbit.Submit{IDs: []orbit.CapsuleID{"with-data"}, Spec: &withData},
	}})
	if err != nil {
		log.Fatal(err)
	}

	engine := &orbit.Engine{Ledger: ledger, Telemetry: board, Navigator: &sandbox.Warm{Board: board}}
	round := engine.Pass(context.Background()) // or let it Run
	fmt.Println("committed:", round.Committed, round.Notes[:2])

	state, err := ledger.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []orbit.CapsuleID{"sandbox-0", "sandbox-13", "with-data"} {
		c := state.Capsule(id)
		fmt.Println(id, "on", c.Node, c.Note())
	}
	// Output:
	// committed: 15 [warm=15 cold=0]
	// sandbox-0 on pz20 warm
	// sandbox-13 on n1v2 warm
	// with-data on n1v2 warm
}

// An API that creates sandboxes while its callers wait. The first node does not answer, so the create goes to the next
// best one. What cannot be is said at once.
func ExampleGateway() {
	ledger, board := twoHosts()
	gateway := &sandbox.Gateway{
		Ledger: ledger,
		Board:  board,
		Start: func(_ context.Context, c sandbox.Created) (warm bool, err error) {
			if c.Node == "pz20" { // forward the create to the node
				return false, errors.New("502 bad gateway")
			}
			return c.Warm, nil
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	spec := &orbit.Spec{Start: orbit.Start{Template: "code-interpreter"}}
	made, err := gateway.Create(ctx, "sandbox-1", spec)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("on %s, warm %v, retried %v\n", made.Node, made.Warm, made.Retried)

	_, err = gateway.Create(ctx, "sandbox-2", &orbit.Spec{Start: orbit.Start{Template: "browser"}})
	fmt.Println(errors.Is(err, sandbox.ErrNoTemplate), err)
	fmt.Println(gateway.Delete(ctx, "sandbox-1"))
	// Output:
	// on n1v2, warm true, retried true
	// true sandbox: create "sandbox-2": template "browser": no such template: 0 of 2 nodes fit: 2 do not support template "browser"; build it, or bring up a host that has it
	// <nil>
}
