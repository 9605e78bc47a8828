package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
)

// run does it all: the fleet comes up, the phases, and the accounts.
func run(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintf(out, "%d hosts with %d slots, %d warm of each template; %d creators, %d creates; seed %d\n",
		o.hosts, o.slots, o.warm, o.creators, o.creates, o.seed)
	fmt.Fprintf(out, "all times but those of decisions are divided by %d: heartbeat %v, stale %v, lease %v, lost for good %v, cache %v, "+
		"warm boot %v, cold boot %v, refill %v\n\n",
		o.speed, heartbeat, stale, lease, gone, o.cache, warmBoot, coldBoot, refill)
	p, err := newPlatform(ctx, o, newLog(out))
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return p.work(working) })
	var all []*phase
	var creators []*creator
	group.Go(func() (err error) {
		defer stop()
		all, creators, err = p.perform(working)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return p.account(ctx, out, all, creators)
}

// perform goes through the phases. At the end everything has a place.
func (p *platform) perform(ctx context.Context) ([]*phase, []*creator, error) {
	err := p.until(ctx, "all hosts join", func(s *orbit.State) bool { return s.NodeCount() == p.options.hosts })
	if err != nil {
		return nil, nil, err
	}
	p.log.tell("%d hosts have joined under leases; %s lies: it says that it has %d warm slots, and has none",
		p.options.hosts, p.fleet.liar.id, warmLies)
	p.fleet.liar.lie()
	if err := sleep(ctx, p.options.of(heartbeat)); err != nil { // it says so with the next
		return nil, nil, err
	}
	var creators []*creator
	for i := range p.options.creators {
		creators = append(creators, newCreator(p, i))
	}
	all := phases(p.options)
	for _, ph := range all {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return ph.run(ctx, p, creators) })
		if ph.name == "trouble" {
			group.Go(func() error { return p.trouble(ctx) })
		}
		if err := group.Wait(); err != nil {
			return nil, nil, err
		}
	}
	err = p.until(ctx, "all is placed that can be", func(s *orbit.State) bool { return s.PendingCount() == orphans(s) })
	p.log.tell("done\n")
	return all, creators, err
}

// account prints the tables and says what does not add up.
func (p *platform) account(ctx context.Context, out io.Writer, all []*phase, creators []*creator) error {
	total := &tally{}
	byPhase := map[*phase]*tally{}
	for _, ph := range all {
		byPhase[ph] = &tally{}
		for _, c := range creators {
			byPhase[ph].merge(c.phases[ph])
		}
		total.merge(byPhase[ph])
	}
	state, err := p.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	history, err := p.audit(ctx, state)
	if err != nil {
		return err
	}
	faults := errors.Join(p.addUp(ctx, state, total, history), state.Verify())
	printPhases(out, all, byPhase)
	printHosts(out, p.fleet, state)
	p.printCounts(out, state, total, history)
	if faults == nil {
		fmt.Fprintln(out, "verify: ok")
	}
	stats := p.gateway.Stats()
	fmt.Fprintf(out, "created %d, warm %d, cold %d, retried %d, doubled %d, p50 %v, p99 %v\n",
		total.created, stats.Warm, stats.Cold, stats.Retried, history.doubled,
		quantile(total.decisions, 0.50), quantile(total.decisions, 0.99))
	if faults != nil {
		return fmt.Errorf("it does not add up: %w", faults)
	}
	return nil
}
