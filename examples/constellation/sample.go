package main

import (
	"context"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sim"
)

// sampler measures now and then what Exhaustive takes to choose a node, on the view of that moment: at the
// start of the run, and at each quarter of it. Nobody else works meanwhile, and the clock of the run stands
// still.
type sampler struct {
	classes []sim.Class
	total   int // capsules
	next    int // the quarter at which the next sample is due
	// Read-locked by every other engine during its passes.
	gate *sync.RWMutex
}

const (
	quarters = 4
	// Timed calls in a sample.
	callsPerSample = 16
)

// sample is the outcome of some calls of Exhaustive.Best.
type sample struct {
	times int // that it was done
	calls int
	took  time.Duration // all calls together
	pause time.Duration // all of the sampling, to be taken off the clock
}

// newSampler returns nil where there is nothing to compare with.
func newSampler(o options, w work) *sampler {
	if o.engine == "exhaustive" {
		return nil
	}
	return &sampler{classes: w.classes, total: w.submitted, gate: &sync.RWMutex{}}
}

// due reports whether a quarter has been passed since the last sample.
func (s *sampler) due(view *orbit.View) bool {
	placed := s.total - view.State().PendingCount()
	return placed*quarters >= s.next*s.total
}

// take measures some calls, for capsules spread evenly over the whole workload, after one to warm up.
func (s *sampler) take(ctx context.Context, view *orbit.View) (out sample) {
	s.gate.Lock()
	defer s.gate.Unlock()
	start := time.Now()
	placed := s.total - view.State().PendingCount()
	s.next = placed*quarters/s.total + 1
	engine := place.Exhaustive{Score: scoring} // a new one each time: it would keep old states alive
	draft := orbit.Draft{}
	draft.Sync(view)
	_, _ = engine.Best(&draft, s.spec(0))
	for i := 0; i < callsPerSample && ctx.Err() == nil; i++ {
		spec := s.spec((float64(i) + (float64(s.next)-0.5)/quarters) / callsPerSample)
		began := time.Now()
		_, _ = engine.Best(&draft, spec) // where nothing fits any more, finding that out is what it costs
		out.took += time.Since(began)
		out.calls++
	}
	out.times, out.pause = 1, time.Since(start)
	return out
}

// spec returns the spec of the capsule that stands at this part of the way through all classes.
func (s *sampler) spec(part float64) *orbit.Spec {
	at := min(int(part*float64(s.total)), s.total-1)
	for _, c := range s.classes {
		if at -= c.Count; at < 0 {
			return c.Spec
		}
	}
	return s.classes[0].Spec
}

// add sums up.
func (s *sample) add(t sample) {
	s.times += t.times
	s.calls += t.calls
	s.took += t.took
	s.pause += t.pause
}
