package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// platform is the control plane, with the records of the run.
type platform struct {
	options options
	ledger  *orbit.MemoryLedger
	empty   *orbit.State // of the ledger, at the start
	fleet   *fleet
	board   *telemetry.Board
	members *lease.Members
	gateway *sandbox.Gateway
	engine  *orbit.Engine
	log     *log

	phases   []*phase
	creators []*creator

	mu       sync.Mutex // guards the fields below
	ended    []lease.Term
	returned int // capsules that have returned to pending because their host was gone
	replaced int // capsules that the engine has placed again
	faults   []error
	refusals map[error]int // by kind
}

// newPlatform connects the packages. A production program does the same, with durations ten to a hundred times longer.
func newPlatform(ctx context.Context, o options, l *log) (p *platform, err error) {
	p = &platform{options: o, log: l, refusals: map[error]int{}}
	p.ledger = &orbit.MemoryLedger{Bounds: orbit.Limits{
		History:  8*o.creates + 100*o.hosts + 65_536, // all of it, for the audit
		Terminal: 2*o.creates + 65_536,
	}}
	if p.empty, err = p.ledger.Snapshot(ctx); err != nil {
		return nil, err
	}
	p.fleet = newFleet(o, p.ledger)
	leases := &lease.Keeper{Ledger: p.ledger, TTL: o.of(leaseTTL), Terms: 12 * o.speed}
	p.members = &lease.Members{Leases: leases, Gone: o.of(gone), Hook: p.noteMembers}
	p.board = &telemetry.Board{Leases: leases, Stale: o.of(stale), PerSecond: 10 * o.speed}
	p.gateway = &sandbox.Gateway{Ledger: p.ledger, Board: p.board, Start: p.fleet.start, Cache: o.of(o.cache), Owner: "warm"}
	p.engine = &orbit.Engine{
		Name: "warm", Ledger: p.ledger, Telemetry: p.board, Navigator: &sandbox.Warm{Board: p.board},
		OnRound: p.noteEngine,
	}
	p.phases = phases(o)
	for i := range o.creators {
		p.creators = append(p.creators, newCreator(p, i))
	}
	return p, nil
}

// work runs everything except the creators until ctx ends.
func (p *platform) work(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.fleet.live(ctx, p.members, p.board) })
	group.Go(func() error { return p.members.Run(ctx) })
	group.Go(func() error { return p.engine.Run(ctx) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// noteMembers counts and prints the leases that end and the releases from lost hosts.
func (p *platform) noteMembers(r lease.MemberRound) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, r.Ended...)
	p.returned += len(r.Released)
	p.faults = append(p.faults, r.Errors...)
	for _, t := range r.Ended {
		p.log.tell("the lease of %s has ended: the ledger accepts no more placements there", t.Name)
	}
	if n := len(r.Released); n > 0 {
		p.log.tell("%d sandboxes of lost hosts return to pending", n)
	}
}

// noteEngine counts and prints the capsules that are placed again.
func (p *platform) noteEngine(r orbit.Round) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaced += r.Committed
	p.faults = append(p.faults, r.Errors...)
	if r.Committed > 0 {
		p.log.tell("%d of them are placed again, by the queue's scheduler", r.Committed)
	}
}

// patience is how long until waits before it fails.
const patience = time.Minute

// until waits until a condition holds for the ledger's state.
func (p *platform) until(ctx context.Context, what string, is func(*orbit.State) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not in %v: %s", patience, what))
	defer cancel()
	for {
		state, err := p.ledger.Snapshot(ctx)
		switch {
		case err != nil:
			return errors.Join(context.Cause(ctx), err)
		case is(state):
			return nil
		}
		if sleep(ctx, time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}
