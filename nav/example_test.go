package nav_test

import (
	"context"
	"fmt"
	"log"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Services, a co-location group, a sweep and gangs, side by side on one ledger. The Anchor takes the place of the
// Services that it wraps. A round says what could not be placed, and why: here a gang that no rack can ever take.
func Example() {
	ledger := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	for i := range 8 {
		do = append(do, orbit.PutNode{Node: orbit.Node{
			ID:       orbit.NodeID(fmt.Sprint("node-", i)),
			Capacity: orbit.Resources{orbit.CPU: 16_000},
			Labels:   map[string]string{"rack": fmt.Sprint("r", i/4)},
		}})
	}
	spec := func(module string, class orbit.AppClass, cpu int64) *orbit.Spec {
		s := &orbit.Spec{Module: module, Class: class}
		s.Envelope.Reservation[orbit.CPU] = cpu
		return s
	}
	ids := func(prefix string, n int) (out []orbit.CapsuleID) {
		for i := range n {
			out = append(out, orbit.CapsuleID(fmt.Sprint(prefix, "-", i)))
		}
		return out
	}
	cache := spec("cache", orbit.LatencySensitive, 2_000)
	cache.Group, cache.Near = "cache", orbit.Near{Group: "cache", Level: "rack"}
	train := &orbit.Gang{ID: "train", Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "leader", Spec: spec("train", orbit.GangClass, 1_000), Members: ids("leader", 1)},
		{Name: "worker", Spec: spec("train", orbit.GangClass, 4_000), Members: ids("worker", 4), Min: 2},
	}}
	huge := &orbit.Gang{ID: "huge", Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "worker", Spec: spec("huge", orbit.GangClass, 16_000), Members: ids("huge", 5)},
	}}
	do = append(do,
		orbit.Submit{IDs: ids("web", 4), Spec: spec("web", orbit.LatencySensitive, 500)},
		orbit.Submit{IDs: ids("cache", 6), Spec: cache},
		orbit.Submit{IDs: ids("sweep", 20), Spec: spec("sweep", orbit.Batch, 1_000)},
		orbit.Submit{Gang: train},
		orbit.Submit{Gang: huge},
	)
	if _, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil {
		log.Fatal(err)
	}

	engines := []*orbit.Engine{
		{Name: "services", Ledger: ledger, Navigator: &nav.Anchor{Navigator: &nav.Services{}}},
		{Name: "batch", Ledger: ledger, Navigator: &nav.Batch{}},
		{Name: "gangs", Ledger: ledger, Navigator: &nav.Gang{}},
	}
	var why error
	for range 2 { // an orbit.Population runs them all at once; pass by pass the output is the same each time
		for _, e := range engines {
			round := e.Pass(context.Background())
			fmt.Println(e.Name, "committed:", round.Committed)
			for _, u := range round.Unplaced {
				why = u.Why
			}
		}
	}
	fmt.Println(why)

	state, err := ledger.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []orbit.CapsuleID{"cache-0", "cache-5", "leader-0", "worker-3"} {
		n := state.Node(state.Capsule(id).Node).Node
		fmt.Println(id, "on", n.ID, "in", n.Labels["rack"])
	}
	// Output:
	// services committed: 5
	// batch committed: 20
	// gangs committed: 1
	// services committed: 5
	// batch committed: 0
	// gangs committed: 0
	// gang "huge": best rack r1 fits 4 of 5 (4 nodes lack cpu)
	// cache-0 on node-0 in r0
	// cache-5 on node-0 in r0
	// leader-0 on node-2 in r0
	// worker-3 on node-3 in r0
}
