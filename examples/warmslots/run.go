package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
)

// run starts the fleet, plays the phases and prints the accounts.
func run(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, "%d hosts with %d slots, %d warm of each template; %d creators, %d creates; seed %d\n",
		o.hosts, o.slots, o.warm, o.creators, o.creates, o.seed)
	fmt.Fprintf(out, "a heartbeat every %v, a lease of %v, a view for %v, all divided by %d; the times of decisions are real\n\n",
		heartbeat, leaseTTL, o.cache, o.speed)
	p, err := newPlatform(ctx, o, newLog(out))
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return p.work(working) })
	group.Go(func() error { defer stop(); return p.perform(working) })
	if err := group.Wait(); err != nil {
		return err
	}
	return p.account(ctx, out)
}

// perform plays the phases, and waits until every capsule is placed.
func (p *platform) perform(ctx context.Context) error {
	err := p.until(ctx, "all hosts join", func(s *orbit.State) bool { return s.NodeCount() == p.options.hosts })
	if err != nil {
		return err
	}
	p.log.tell("%d hosts have joined under leases; %s lies: it says that it has %d warm slots, and has none",
		p.options.hosts, p.fleet.liar.id, warmLies)
	p.fleet.liar.lie()
	if err := sleep(ctx, p.options.of(heartbeat)); err != nil { // the liar reports the false pools with its next heartbeat
		return err
	}
	for _, ph := range p.phases {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return ph.run(ctx, p) })
		if ph.name == "trouble" {
			group.Go(func() error { return p.trouble(ctx) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	err = p.until(ctx, "all is placed", func(s *orbit.State) bool { return s.PendingCount() == 0 })
	p.log.tell("done\n")
	return err
}

// account prints the tables, and returns an error if the accounts differ.
func (p *platform) account(ctx context.Context, out io.Writer) error {
	total := &tally{}
	byPhase := map[*phase]*tally{}
	for _, ph := range p.phases {
		byPhase[ph] = &tally{}
		for _, c := range p.creators {
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
	printPhases(out, p.phases, byPhase)
	if p.options.verbose {
		printDecisions(out, p.phases, byPhase)
		printHosts(out, p.fleet, state)
		p.printCounts(out, total, history)
	}
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
