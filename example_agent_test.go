package orbit_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// agent runs on a node and starts and stops what the ledger says. In a real one start and stop are calls to a runtime, and run
// is a list of what that runs, so that an agent which has crashed goes on where it was.
type agent struct {
	ledger orbit.Ledger
	node   orbit.NodeID
	run    map[orbit.CapsuleID]orbit.Revision // capsules that run, and when each was placed
}

// step brings the node in line with one state of the ledger. Call it again when Node of a watch.Index returns, which it does when
// something on the node has changed.
func (a *agent) step(ctx context.Context) error {
	state, err := a.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	for r := range state.Remains(a.node) { // taken off this node: stop it first, and say so once it has stopped
		if a.run[r.Capsule] == r.Since {
			fmt.Println(a.node, "stops", r.Capsule)
			delete(a.run, r.Capsule)
		}
		if err := a.confirm(ctx, orbit.Confirm{Capsule: r.Capsule, Since: r.Since, Stopped: true}); err != nil {
			return err
		}
	}
	for c := range state.On(a.node) { // placed here: say so, and start it only after the ledger has agreed
		if a.run[c.ID] == c.PlacedAt {
			continue
		}
		err := a.confirm(ctx, orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: true})
		switch {
		case errors.Is(err, orbit.ErrConflict) || errors.Is(err, orbit.ErrInfeasible):
			fmt.Println(a.node, "waits with", c.ID) // something has to stop first; the next step tries again
			continue
		case err != nil:
			return err
		}
		fmt.Println(a.node, "starts", c.ID)
		a.run[c.ID] = c.PlacedAt
	}
	return nil
}

func (a *agent) confirm(ctx context.Context, do orbit.Confirm) error {
	_, err := a.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{do}})
	return err
}

// The agent of a node with Confirms reports what begins and what has stopped. A capsule that is moved does not run twice: the
// agent of its new node waits until that of the old one has stopped it.
func ExampleConfirm() {
	ctx, ledger := context.Background(), &orbit.MemoryLedger{}
	for _, id := range []orbit.NodeID{"node-a", "node-b"} {
		commit(ledger, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 4_000}, Confirms: true}})
	}
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"db"}, Spec: cores(1)}, orbit.Place{Capsule: "db", Node: "node-a"})
	a := &agent{ledger: ledger, node: "node-a", run: map[orbit.CapsuleID]orbit.Revision{}}
	b := &agent{ledger: ledger, node: "node-b", run: map[orbit.CapsuleID]orbit.Revision{}}
	step := func(agents ...*agent) {
		for _, a := range agents {
			if err := a.step(ctx); err != nil {
				fmt.Println(err)
			}
		}
	}
	step(a, b)

	node := snapshot(ledger).Node("node-a").Node.Clone()
	node.State = orbit.Cordoned
	commit(ledger, orbit.PutNode{Node: node})
	(&nav.Drain{Ledger: ledger}).Pass(ctx) // moves the capsule, because its node is cordoned
	step(b, a, b)
	// Output:
	// node-a starts db
	// node-b waits with db
	// node-a stops db
	// node-b starts db
}
