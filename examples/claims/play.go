package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// way is a kind of slot store, and whether the pools reserve the slots that they have handed out.
type way struct {
	name     string
	reserved bool
	site     func(o options) site
}

var ways = []way{
	{"stale store, slots reserved", true, staleStore},
	{"stale store, not reserved", false, staleStore},
	{"ledger, slots reserved", true, func(options) site { return &ledgerSite{} }},
}

func staleStore(o options) site {
	return &staleSite{StaleStore: &sim.StaleStore{Lag: o.lag, Latency: o.latency}}
}

// result has the figures of one way.
type result struct {
	way
	requests, claimed, doubled int
	took                       time.Duration // from the first request to the last answer
	waited                     []time.Duration
	conflicts                  int
	booted                     int // slots that the pools have added
}

// patience is how long a caller waits for a slot, boot how long a new slot takes until it is idle.
const (
	patience = 10 * time.Second
	boot     = 150 * time.Millisecond
)

// show is the state of a run of one way.
type show struct {
	options
	way
	sites []site
	pools claim.Pools

	// mu guards the fields below.
	mu     sync.Mutex
	result result
	rng    *rand.Rand
	errs   []error
}

// play sends the bursts of requests to pools that claim in this way, and waits until each caller has got a slot or has
// given up.
func (w way) play(ctx context.Context, o options) (*result, error) {
	s := &show{options: o, way: w, result: result{way: w}, rng: rand.New(rand.NewPCG(o.seed, 7))}
	var running, crowd sync.WaitGroup
	for range o.pools {
		if err := s.open(ctx, &running); err != nil {
			return nil, err
		}
	}
	time.Sleep(o.lag) // until the first slots are listed
	for _, p := range s.pools {
		p.NotifyIdle()
	}
	start := time.Now()
	for range o.bursts {
		for range o.requests {
			crowd.Go(func() { s.request(ctx, start) })
		}
		if !sleep(ctx, o.every) {
			break
		}
	}
	crowd.Wait()
	for _, p := range s.pools {
		p.Shutdown()
	}
	running.Wait()
	return s.finish(ctx)
}

// open makes a pool with its slots and runs it.
func (s *show) open(ctx context.Context, running *sync.WaitGroup) error {
	site := s.site(s.options)
	if err := site.grow(ctx, s.slots); err != nil {
		return err
	}
	p := &claim.Pool{Source: site, OnError: s.fail}
	if _, stale := site.(*staleSite); stale {
		p.NotifyDelay = cmp.Or(s.lag, -1) // no lag, no delay
	}
	if !s.reserved {
		p.ReserveFor = -1
	}
	p.ScaleUp = func(ctx context.Context, short claim.Shortage) error {
		n := min(short.Deficit, s.slots/4+1) // the other callers get slots that are used again
		if !sleep(ctx, boot) {
			return nil
		}
		defer p.NotifyIdle()
		s.mu.Lock()
		s.result.booted += n
		s.mu.Unlock()
		return site.grow(ctx, n)
	}
	s.sites, s.pools = append(s.sites, site), append(s.pools, p)
	running.Go(func() { s.fail(p.Run(context.WithoutCancel(ctx))) })
	return nil
}

// request asks the pool that is likely to serve it soonest, uses the slot for a while, and makes it idle again.
func (s *show) request(ctx context.Context, start time.Time) {
	answer := make(chan claim.Result, 1)
	asked := time.Now()
	p := s.pools.Enqueue(&claim.Request{Ctx: ctx, Deadline: asked.Add(patience), Result: answer})
	if p == nil {
		s.count(start, asked, claim.ErrFull)
		return
	}
	r := <-answer
	use := s.count(start, asked, r.Err)
	if r.Err != nil {
		return
	}
	sleep(ctx, use)
	for i := range s.pools {
		if s.pools[i] == p {
			s.fail(s.sites[i].recycle(context.WithoutCancel(ctx), r.Slot))
			p.NotifyIdle()
		}
	}
}

// count counts an answer and returns how long the slot is to be used.
func (s *show) count(start, asked time.Time, err error) (use time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.result
	r.requests++
	if err == nil {
		r.claimed++
		r.took = time.Since(start)
		r.waited = append(r.waited, time.Since(asked))
	} else if !errors.Is(err, claim.ErrEnded) && !errors.Is(err, claim.ErrFull) {
		s.errs = append(s.errs, err)
	}
	return s.use/2 + time.Duration(s.rng.Int64N(int64(s.use)+1))
}

// fail keeps the first error of the run.
func (s *show) fail(err error) {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
	}
}

// finish adds up the counts of the pools and of the histories.
func (s *show) finish(ctx context.Context) (*result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.result
	for i, p := range s.pools {
		stats := p.Stats()
		r.conflicts += int(stats.Conflicts)
		n, err := s.sites[i].doubled(ctx)
		r.doubled += n
		s.errs = append(s.errs, err)
	}
	slices.Sort(r.waited)
	return r, errors.Join(s.errs...)
}

// sleep waits for d, and reports false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
