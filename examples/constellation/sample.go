package main

import (
	"context"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sim"
)

// sampler measures how long Exhaustive takes to choose a node: at the start of a run and after each quarter of it.
type sampler struct {
	classes  []sim.Class
	capsules int
	points   int // of the run, at which it was done
	calls    int
	took     time.Duration // all calls together, cputime.Name
}

const (
	quarters = 4
	// callsPerPoint is the number of timed calls at each point.
	callsPerPoint = 16
)

// take times calls for capsules that are spread evenly over all classes, if another quarter of the capsules has been
// placed since the last sample.
func (s *sampler) take(ctx context.Context, ledger orbit.Ledger) error {
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	if s.points == quarters || (s.capsules-state.PendingCount())*quarters < s.points*s.capsules {
		return nil
	}
	var view orbit.View
	if err := view.Refresh(ctx, ledger, nil, time.Now()); err != nil {
		return err
	}
	s.points++
	engine := place.Exhaustive{Score: scoring}
	var draft orbit.Draft
	draft.Sync(&view)
	_, _ = engine.Best(&draft, s.spec(0)) // the first call makes its tables
	for i := 0; i < callsPerPoint && ctx.Err() == nil; i++ {
		spec := s.spec((float64(i) + (float64(s.points)-0.5)/quarters) / callsPerPoint)
		s.took += cputime.Of(func() { _, _ = engine.Best(&draft, spec) }) // a call that finds no node counts too
		s.calls++
	}
	return nil
}

// spec returns the spec of the capsule at a relative position, from 0 to 1, in the list of all capsules.
func (s *sampler) spec(part float64) *orbit.Spec {
	at := min(int(part*float64(s.capsules)), s.capsules-1)
	for _, c := range s.classes {
		if at -= c.Count; at < 0 {
			return c.Spec
		}
	}
	return s.classes[0].Spec
}
