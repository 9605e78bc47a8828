package diskledger_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
)

// What a ledger has answered is there when its folder is opened again.
func Example() {
	dir, err := os.MkdirTemp("", "orbit")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for range 2 { // two lives of a process
		if err := live(dir); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// opened at revision 0, committed 1
	// opened at revision 1, committed 1
}

// live opens the ledger, proposes and closes it. The proposal has an id, so the second life gets the answer of the first.
func live(dir string) error {
	ctx := context.Background()
	ledger, err := diskledger.Open(dir, diskledger.Options{OnError: func(err error) { log.Print(err) }})
	if err != nil {
		return err
	}
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	revision, err := ledger.Propose(ctx, orbit.Proposal{ID: orbit.ProposalID{1}, Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "node-a", Capacity: orbit.Resources{orbit.CPU: 4_000}}},
	}})
	if err != nil {
		return err
	}
	fmt.Printf("opened at revision %d, committed %d\n", state.Revision(), revision)
	return ledger.Close()
}
