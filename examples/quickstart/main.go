// Quickstart: three navigators race for one small cluster; the ledger settles who won.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// team is a services navigator that owns one module.
type team struct {
	nav.Services
	module string
}

func (t *team) Claims(module string, _ orbit.AppClass) bool { return module == t.module }

// Plan takes its time, as planning for a large cluster does: what it saw may be gone when it proposes.
func (t *team) Plan(ctx context.Context, v *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	defer time.Sleep(time.Millisecond)
	return t.Services.Plan(ctx, v, pending)
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	ledger := &orbit.MemoryLedger{}

	// Twelve machines, and three modules that together want every core of them.
	var setup orbit.Proposal
	for i := range 12 {
		setup.Do = append(setup.Do, orbit.PutNode{Node: orbit.Node{
			ID:       orbit.NodeID(fmt.Sprintf("node-%02d", i)),
			Capacity: orbit.Resources{orbit.CPU: 32_000, orbit.Memory: 128 << 30},
		}})
	}
	population, totals := orbit.Population{}, [3]orbit.Round{}
	for i, module := range []string{"web", "search", "ads"} {
		room := orbit.Resources{orbit.CPU: 4_000, orbit.Memory: 8 << 30}
		submit := orbit.Submit{Spec: &orbit.Spec{Module: module, Envelope: orbit.Envelope{Reservation: room}}}
		for k := range 32 {
			submit.IDs = append(submit.IDs, orbit.CapsuleID(fmt.Sprintf("%s-%d", module, k)))
		}
		setup.Do = append(setup.Do, submit)
		population.Engines = append(population.Engines, &orbit.Engine{
			Name: module, Ledger: ledger, Navigator: &team{module: module}, MaxPlan: 16,
			Hook: func(r orbit.Round) {
				totals[i].Committed += r.Committed
				totals[i].Conflicts += r.Conflicts
			},
		})
	}
	if _, err := ledger.Propose(ctx, setup); err != nil {
		log.Fatal(err)
	}
	go stopWhenPlaced(ctx, stop, ledger)
	if err := population.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%-10s %10s %10s\n", "navigator", "committed", "conflicts")
	for i, e := range population.Engines {
		fmt.Printf("%-10s %10d %10d\n", e.Name, totals[i].Committed, totals[i].Conflicts)
	}
	if state, _ := ledger.Snapshot(context.Background()); state.Verify() == nil && state.PendingCount() == 0 {
		fmt.Println("verify: ok")
	}
}

// stopWhenPlaced ends the program once nothing is pending any more.
func stopWhenPlaced(ctx context.Context, stop func(), ledger orbit.Ledger) {
	for state, err := ledger.Snapshot(ctx); err == nil && state.PendingCount() > 0; state, err = ledger.Snapshot(ctx) {
		_, _ = ledger.Wait(ctx, state.Revision())
	}
	stop()
}
