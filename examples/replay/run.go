package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim"
)

// curve has the allocated part of the device capacity in percent. Entry i is the part when i×10% of the capacity have
// been requested; the last entry is the part at the end of the run.
type curve []float64

// run replays one sequence of arrivals on an empty cluster.
func run(ctx context.Context, nodes []orbit.Node, arrivals []sim.Capsule, placement orbit.PlacementEngine) (curve, error) {
	ledger := &orbit.MemoryLedger{}
	for i := range nodes {
		if _, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: nodes[i]}}}); err != nil {
			return nil, err
		}
	}
	engine := &orbit.Engine{
		Name: "replay", Ledger: ledger, MaxPlan: len(arrivals),
		Navigator: &nav.Services{Placement: placement, InOrder: true},
	}
	capacity := float64(sim.DeviceCapacity(nodes))
	out, arrived, allocated := curve{0}, 0.0, 0.0
	for len(arrivals) > 0 {
		n := 0
		for ; n < len(arrivals) && arrived <= float64(len(out))*capacity/10; n++ {
			arrived += float64(sim.DeviceDemand(arrivals[n].Spec))
		}
		placed, err := wave(ctx, ledger, engine, arrivals[:n])
		if err != nil {
			return nil, err
		}
		allocated += placed
		out = append(out, 100*allocated/capacity)
		arrivals = arrivals[n:]
	}
	return out, verify(ctx, ledger, allocated)
}

// wave submits capsules in their order, lets the engine place them in one pass, and drops capsules that do not fit. It
// returns the device capacity that was placed, in milli. The engine parks a class that has not fitted and does not plan
// it in later waves. That is right here, because no capsule ever leaves this cluster.
func wave(ctx context.Context, ledger orbit.Ledger, engine *orbit.Engine, capsules []sim.Capsule) (float64, error) {
	submit := make([]orbit.Commitment, len(capsules))
	placed := 0.0
	for i, c := range capsules {
		submit[i] = orbit.Submit{IDs: []orbit.CapsuleID{c.ID}, Spec: c.Spec, Owner: engine.Name}
		placed += float64(sim.DeviceDemand(c.Spec))
	}
	if _, err := ledger.Propose(ctx, orbit.Proposal{Do: submit}); err != nil {
		return 0, err
	}
	round := engine.Pass(ctx)
	if err := errors.Join(round.Errors...); err != nil || round.Committed != round.Proposed {
		return 0, errors.Join(fmt.Errorf("%d of %d proposals were committed", round.Committed, round.Proposed), err)
	}
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	var drop []orbit.Commitment
	for _, c := range capsules {
		if state.Capsule(c.ID).Pending() {
			drop = append(drop, orbit.Release{Capsule: c.ID, Final: true})
			placed -= float64(sim.DeviceDemand(c.Spec))
		}
	}
	if len(drop) > 0 {
		if _, err := ledger.Propose(ctx, orbit.Proposal{Do: drop}); err != nil {
			return 0, err
		}
	}
	return placed, nil
}

// verify verifies the state, and compares the devices in use with the sum of the run.
func verify(ctx context.Context, ledger orbit.Ledger, allocated float64) error {
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := state.Verify(); err != nil {
		return err
	}
	used := 0.0
	for c := range state.Capsules() {
		if c.Placed() {
			used += float64(sim.DeviceDemand(c.Spec))
		}
	}
	if used != allocated {
		return fmt.Errorf("the ledger has %.0f milli placed, the run counted %.0f", used, allocated)
	}
	return nil
}
