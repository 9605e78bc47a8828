package main

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// run is engines at work on one ledger.
type run struct {
	ledger   orbit.Ledger
	sampler  *sampler
	progress *progress

	// Guards what follows.
	mu    sync.Mutex
	tally tally
}

// start lets the engines work until each has done what it can, or ctx ends. It returns what they did and how
// long it took, without the time for samples.
func (r *run) start(ctx context.Context, o options) (tally, time.Duration) {
	var group sync.WaitGroup
	begin := time.Now()
	for i := range o.navigators {
		navigator := &share{part: uint32(i), of: uint32(o.navigators), Services: nav.Services{Placement: engines[o.engine](uint64(i))}}
		var gate *sync.RWMutex
		switch {
		case r.sampler == nil:
		case i == 0:
			navigator.sampler = r.sampler
		default:
			gate = r.sampler.gate
		}
		engine := &orbit.Engine{
			Name: "navigator-" + strconv.Itoa(i), Ledger: r.ledger, Navigator: navigator, MaxPlan: o.plan,
			PlanTimeout: time.Hour, // exhaustive plans take their time
			ParkFor:     time.Hour, // nothing leaves, so what does not fit will not fit later
		}
		group.Go(func() { r.work(ctx, engine, gate) })
	}
	group.Wait()
	wall := time.Since(begin)
	r.progress.end()
	return r.tally, wall - r.tally.sample.pause
}

// work passes until there is nothing left to plan or a pass makes no progress: it commits nothing, loses
// nothing to others, and puts no class aside.
func (r *run) work(ctx context.Context, engine *orbit.Engine, gate *sync.RWMutex) {
	parked := 0
	for ctx.Err() == nil {
		round := pass(ctx, engine, gate)
		r.count(round)
		if round.Pending == 0 || round.Committed == 0 && round.Conflicts == 0 && round.Parked <= parked {
			return
		}
		parked = round.Parked
	}
}

// pass does one pass while no sample is being taken.
func pass(ctx context.Context, engine *orbit.Engine, gate *sync.RWMutex) orbit.Round {
	if gate != nil {
		gate.RLock()
		defer gate.RUnlock()
	}
	return engine.Pass(ctx)
}

// count adds a round to the tally.
func (r *run) count(round orbit.Round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.add(round)
	r.progress.at(r.tally.committed, r.tally.sample.pause)
}
