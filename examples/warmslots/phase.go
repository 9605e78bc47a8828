package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
)

// phase is a part of the run, with a number of creates.
type phase struct {
	name, says string
	creates    int
	// over is the time over which the creates are spread; 0: the creators create as fast as they can.
	over time.Duration

	began, ended time.Time
	taken        atomic.Int64 // creates that a creator has begun
	created      atomic.Int64
	warm         atomic.Int64
}

// phases divides the creates among the phases.
func phases(o options) []*phase {
	steady, trouble := o.creates/2, o.creates*3/10
	return []*phase{
		{name: "steady", says: "at a steady pace", creates: steady, over: o.of(100 * time.Second)},
		{
			name: "trouble", says: "slower, and a host dies with sandboxes on it",
			creates: trouble, over: o.of(120 * time.Second),
		},
		{name: "burst", says: "as fast as all creators can", creates: o.creates - steady - trouble},
	}
}

// next waits until the next create is due. It reports false if all have begun or ctx has ended.
func (ph *phase) next(ctx context.Context) bool {
	n := ph.taken.Add(1) - 1
	if n >= int64(ph.creates) {
		return false
	}
	due := ph.began.Add(time.Duration(float64(ph.over) * float64(n) / float64(ph.creates)))
	if wait := time.Until(due); wait > 0 {
		return sleep(ctx, wait) == nil
	}
	return ctx.Err() == nil
}

// run lets all creators work through the phase, and prints the progress.
func (ph *phase) run(ctx context.Context, p *platform) error {
	p.log.tell("%s: %d creates, %s", ph.name, ph.creates, ph.says)
	ph.began = time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range p.creators {
		group.Go(func() error { return c.work(ctx, ph) })
	}
	telling, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() { defer close(told); ph.progress(telling, p) }()
	err := group.Wait()
	ph.ended = time.Now()
	stop()
	<-told
	if err != nil {
		return fmt.Errorf("%s: %w", ph.name, err)
	}
	return nil
}

// progress prints the progress twice a second.
func (ph *phase) progress(ctx context.Context, p *platform) {
	for last := int64(0); sleep(ctx, 500*time.Millisecond) == nil; {
		n, warm := ph.created.Load(), ph.warm.Load()
		p.log.tell("%s: %d of %d created, %d/s, %.0f%% warm", ph.name, n, ph.creates, 2*(n-last), percent(warm, n))
		last = n
	}
}

// percent returns part of all in percent; 0 if all is 0.
func percent[T int | int64 | uint64](part, all T) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(part) / float64(all)
}

// trouble kills a host, and starts it again when its sandboxes have been released.
func (p *platform) trouble(ctx context.Context) error {
	h, o := p.fleet.victim, p.options
	if err := sleep(ctx, o.of(heartbeat)); err != nil {
		return err
	}
	p.log.tell("%s dies, with %d sandboxes on it", h.id, h.die())
	err := p.until(ctx, "a dead host loses its lease and its capsules", func(s *orbit.State) bool {
		n := s.Node(h.id)
		return !n.Node.Schedulable() && n.Capsules == 0
	})
	if err != nil {
		return err
	}
	if err := sleep(ctx, o.of(2*heartbeat)); err != nil {
		return err
	}
	p.log.tell("%s is up again, empty", h.id)
	h.reboot()
	return p.until(ctx, "a host that is up again has a lease", func(s *orbit.State) bool {
		_, ok := p.members.Leases.In(s, string(h.id))
		return ok && s.Node(h.id).Node.Schedulable()
	})
}
