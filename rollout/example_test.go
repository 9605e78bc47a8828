package rollout_test

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/rollout"
)

// A service of two that may miss nobody goes from version 1 to 2. In place of engine and agent, the example places and
// confirms by hand.
func ExampleService_Step() {
	ctx := context.Background()
	ledger := &orbit.MemoryLedger{}
	commit := func(do ...orbit.Commitment) *orbit.State {
		if _, err := ledger.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			fmt.Println(err)
		}
		state, _ := ledger.Snapshot(ctx)
		return state
	}
	state := commit(orbit.PutNode{Node: orbit.Node{ID: "a", Confirms: true, Capacity: orbit.Resources{orbit.CPU: 4000}}})
	web := &rollout.Service{
		Name: "web", Count: 2, Surge: 1, Version: "1",
		Spec: &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1000}}},
	}
	for _, web.Version = range []string{"1", "2"} {
		for done := false; !done; {
			do, err := web.Step(state, time.Now())
			if err != nil {
				fmt.Println(err)
				return
			}
			if len(do) > 0 {
				state = commit(do...)
			}
			for c := range state.Capsules() { // what engine and agent do meanwhile
				switch {
				case c.Remains() != nil:
					state = commit(orbit.Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true})
				case c.Pending():
					state = commit(orbit.Place{Capsule: c.ID, Node: "a"})
				case c.Placed() && !c.Ready:
					state = commit(orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Ready: true})
				}
			}
			status, _ := web.Status(state)
			if done = status.Done; len(do) > 0 || done {
				fmt.Printf("version %s: %d new, %d old, %d serve\n", web.Version, status.Newest, status.Old, status.Serving)
			}
		}
	}
	// Output:
	// version 1: 2 new, 0 old, 0 serve
	// version 1: 2 new, 0 old, 2 serve
	// version 2: 1 new, 2 old, 2 serve
	// version 2: 2 new, 1 old, 2 serve
	// version 2: 3 new, 0 old, 2 serve
	// version 2: 2 new, 0 old, 2 serve
}
