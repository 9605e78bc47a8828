package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/shard"
)

// scene is one mode with one number of schedulers, on a ledger of its own.
type scene struct {
	mode   shard.Mode
	ledger *orbit.MemoryLedger
	leases *lease.Keeper
	// kill has for each scheduler the function that kills it.
	kill []context.CancelFunc
	work sync.WaitGroup
	// proposed counts the proposals of all schedulers that place something, conflicts those that lost to another
	// scheduler, and fenced those that were refused because the lease of the scheduler was over or the node had another
	// owner.
	proposed, conflicts, fenced atomic.Int64
	// moves counts the nodes that changed groups, redispatched the capsules that changed schedulers.
	moves, redispatched atomic.Int64
}

// process is the holder of all leases here: no two processes have its name at a time.
var process = fmt.Sprint("process ", os.Getpid())

// ttl is short, so that the death of a scheduler is noticed soon.
const ttl = 400 * time.Millisecond

// begin starts the schedulers, and then the lease keeper, the dispatcher and, except in shared mode, the groups.
func begin(ctx context.Context, w *world, mode shard.Mode, schedulers int, o options) (*scene, error) {
	s := &scene{mode: mode, ledger: &orbit.MemoryLedger{}}
	s.leases = &lease.Keeper{Ledger: s.ledger, Prefix: shard.LeasePrefix, TTL: ttl}
	if _, err := s.ledger.Propose(ctx, orbit.Proposal{Do: w.join()}); err != nil {
		return nil, err
	}
	for i := range schedulers {
		if err := s.scheduler(ctx, fmt.Sprintf("scheduler%d", i), uint64(i)+1); err != nil {
			return nil, err
		}
	}
	dispatcher := &shard.Dispatcher{
		Ledger: s.ledger, Leases: s.leases, Policy: policies[o.policy](o.seed), Strict: mode == shard.Strict,
		Retry: orbit.Backoff{Initial: 200 * time.Millisecond},
		Hook:  func(r shard.Round) { s.redispatched.Add(int64(len(r.Redispatched))) },
	}
	groups := &shard.Groups{
		Ledger: s.ledger, Leases: s.leases, Every: 10 * time.Millisecond,
		Hook: func(r shard.Regrouping) { s.moves.Add(int64(len(r.Moved))) },
	}
	s.work.Go(func() { _ = s.leases.Run(ctx) })
	s.work.Go(func() { _ = dispatcher.Run(ctx) })
	if mode == shard.Shared {
		return s, nil
	}
	s.work.Go(func() { _ = groups.Run(ctx) })
	return s, s.grouped(ctx, len(w.nodes))
}

// scheduler starts one scheduler: an engine on a partition ledger whose navigator gives back what does not fit.
func (s *scene) scheduler(ctx context.Context, name string, seed uint64) error {
	ctx, kill := context.WithCancel(ctx)
	s.kill = append(s.kill, kill)
	partition := &shard.PartitionLedger{Ledger: referee{s.ledger, s}, Scheduler: name, Mode: s.mode}
	services := func() orbit.Navigator {
		return &nav.Services{Placement: &place.Indexed{Score: score.BestFit{}, Seed: seed}}
	}
	scheduler := &shard.Scheduler{Name: name, Navigator: partition.Navigator(services), Leases: s.leases}
	engine := &orbit.Engine{Name: name, Ledger: partition, Navigator: scheduler}
	term, err := s.leases.Acquire(ctx, name, process)
	if err != nil {
		return err
	}
	scheduler.Serve(term)
	s.work.Go(func() { s.hold(ctx, scheduler, term) })
	s.work.Go(func() { _ = engine.Run(ctx) })
	return nil
}

// hold refreshes a lease until its scheduler is killed; then the lease runs out. A scheduler that shuts down in order
// uses Scheduler.Keep of package shard instead, which resigns the lease.
func (s *scene) hold(ctx context.Context, scheduler *shard.Scheduler, term lease.Term) {
	tick := time.NewTicker(ttl / 5)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := s.leases.Refresh(term); errors.Is(err, lease.ErrExpired) { // the machine was too busy
			if term, err = s.leases.Acquire(ctx, scheduler.Name, process); err == nil {
				scheduler.Serve(term)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// referee is the ledger. It counts what the schedulers commit and lose.
type referee struct {
	*orbit.MemoryLedger
	scene *scene
}

// ProposeBatch counts the outcomes of a batch. Engines propose nothing in another way.
func (r referee) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := r.MemoryLedger.ProposeBatch(ctx, batch)
	for i := range batch {
		if _, places := batch[i].Do[0].(orbit.Place); places {
			r.scene.proposed.Add(1)
			if lost := (*orbit.Rejection)(nil); errors.As(out[i].Err, &lost) {
				if _, fence := lost.Bet.(orbit.MarkAt); fence {
					r.scene.fenced.Add(1)
				} else {
					r.scene.conflicts.Add(1)
				}
			}
		}
	}
	return out
}

// grouped waits until every node has an owner.
func (s *scene) grouped(ctx context.Context, nodes int) error {
	for ctx.Err() == nil {
		state, err := s.ledger.Snapshot(ctx)
		if err != nil {
			return err
		}
		owned := 0
		for range state.Marks("group/") {
			owned++
		}
		if owned == nodes {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}
