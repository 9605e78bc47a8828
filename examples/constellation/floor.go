package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/sim"
)

// floor measures the cost of merely recording the placements of a run. It measures in slices between the passes, so
// that work and floor run on the machine under the same conditions.
type floor struct {
	ledger   orbit.Ledger
	recorder *sim.Floor
	seen     *orbit.State
	took     time.Duration // of this goroutine alone, cputime.Name
}

func newFloor(ctx context.Context, ledger orbit.Ledger) (*floor, error) {
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	f := &floor{ledger: ledger, recorder: sim.NewFloor(), seen: state}
	for n := range state.Nodes() {
		f.recorder.Join(n.Node.ID, n.Node.Capacity)
	}
	return f, nil
}

// floorSlice is how many placements are recorded at a time. A slice begins with cold caches, which would count for more
// in shorter slices.
const floorSlice = 10_000

// catchUp records the placements since the last slice, if they fill another slice or the run has ended.
func (f *floor) catchUp(ctx context.Context, ended bool) error {
	now, err := f.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	if !ended && f.seen.PendingCount()-now.PendingCount() < floorSlice {
		return nil
	}
	state, changes, whole, err := f.seen.CatchUp(ctx, f.ledger)
	if err != nil {
		return err
	}
	if whole {
		return fmt.Errorf("the ledger's history no longer reaches back to revision %d", f.seen.Revision())
	}
	f.seen = state
	placed := make([]*orbit.Capsule, 0, len(changes))
	for _, c := range changes {
		if place, ok := c.Do.(orbit.Place); ok {
			placed = append(placed, state.Capsule(place.Capsule))
		}
	}
	before, fits := f.recorder.Placed(), true
	f.took += cputime.Of(func() {
		for _, c := range placed {
			fits = f.recorder.Place(c.ID, c.Node, c.Spec.Envelope.Reservation) && fits
		}
	})
	if !fits {
		return fmt.Errorf("the floor has no room for what the ledger placed up to revision %d", state.Revision())
	}
	if all := f.recorder.Placed(); all != before+len(placed) {
		return fmt.Errorf("the floor has recorded %d of %d placements; there are capsules with the same id", all-before, len(placed))
	}
	return nil
}
