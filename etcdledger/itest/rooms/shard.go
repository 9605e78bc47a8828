package rooms

import (
	"context"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/shard"
)

// shardNodes is how many nodes the schedulers divide among them.
const shardNodes = 12

// shard runs a scheduler on its group of nodes, and what assigns nodes and capsules to schedulers. It submits work without end.
func (s *site) shard(ctx context.Context) (func(), error) {
	ledger, refreshes, stop, err := s.open(ctx, Shard)
	if err != nil {
		return nil, err
	}
	leases := &lease.Keeper{Ledger: ledger, Refreshes: refreshes, TTL: s.TTL, Prefix: shard.LeasePrefix, Terms: -1}
	leases.Hook = func(r lease.Round) {
		var m message
		for _, term := range r.Ended {
			m.Ended = append(m.Ended, shard.LeasePrefix+term.Name)
		}
		_ = s.self.Say(m)
	}
	dispatcher, groups := &shard.Dispatcher{Ledger: ledger, Leases: leases, Strict: true}, &shard.Groups{Ledger: ledger, Leases: leases}
	partition := &shard.PartitionLedger{Ledger: ledger, Scheduler: s.Scheduler, Mode: shard.Strict}
	scheduler := &shard.Scheduler{Name: s.Scheduler, Leases: leases, Navigator: partition.Navigator(func() orbit.Navigator { return &nav.Services{} })}
	engine := &orbit.Engine{Name: s.Scheduler, Ledger: partition, Navigator: scheduler, OnError: func(error) {}}
	for _, run := range []func(context.Context) error{
		leases.Run, dispatcher.Run, groups.Run, engine.Run, func(ctx context.Context) error { return scheduler.Keep(ctx, nil) },
	} {
		s.all.Go(func() { _ = run(ctx) })
	}
	s.all.Go(func() { s.audit(ctx, ledger) })
	s.all.Go(func() { s.submit(ctx, ledger) })
	return stop, nil
}

// submit adds nodes and then keeps some work waiting, which ends some time after it was placed.
func (s *site) submit(ctx context.Context, ledger orbit.Ledger) {
	for i := 0; ctx.Err() == nil; i++ {
		state, err := ledger.Snapshot(ctx)
		if err != nil {
			continue
		}
		p := orbit.Proposal{ID: orbit.NewProposalID()}
		for n := range shardNodes {
			id := orbit.NodeID(fmt.Sprintf("rack/%02d", n))
			if state.Node(id) == nil {
				p.Do = append(p.Do, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 10}}})
			}
		}
		for c := range state.Capsules() {
			if c.Node != "" && len(p.Do) < 20 {
				p.Do = append(p.Do, orbit.Release{Capsule: c.ID, Final: true})
			}
		}
		if state.PendingCount() < 20 {
			ids := make([]orbit.CapsuleID, 10)
			for n := range ids {
				ids[n] = orbit.CapsuleID(fmt.Sprintf("%s-%x-%d-%d", s.Scheduler, state.Revision(), i, n))
			}
			p.Do = append(p.Do, orbit.Submit{IDs: ids, Spec: &orbit.Spec{Module: "work", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}})
		}
		if len(p.Do) > 0 {
			_, _ = ledger.Propose(ctx, p)
		}
		if !wait(ctx, ledger, state.Revision()) {
			return
		}
	}
}

// audit follows the ledger: each placement on a node is of a capsule of the scheduler that owns the node then.
func (s *site) audit(ctx context.Context, ledger orbit.Ledger) {
	var at orbit.Revision
	owners, nodes := map[orbit.CapsuleID]string{}, map[string]string{}
	for ctx.Err() == nil {
		changes, err := ledger.Changes(ctx, at)
		if err != nil || at == 0 { // begin with a whole state
			state, err := ledger.Snapshot(ctx)
			if err != nil {
				continue
			}
			clear(owners)
			clear(nodes)
			for c := range state.Capsules() {
				owners[c.ID] = c.Owner()
			}
			for key, owner := range state.Marks("group/") {
				nodes[strings.TrimPrefix(key, "group/")] = owner
			}
			at = state.Revision()
			continue
		}
		for _, c := range changes {
			at = c.Revision
			switch do := c.Do.(type) {
			case orbit.Assign:
				owners[do.Capsule] = do.Owner
			case orbit.Mark:
				if node, ok := strings.CutPrefix(do.Key, "group/"); ok {
					nodes[node] = do.Value
				}
			case orbit.Place:
				if owner := owners[do.Capsule]; owner == "" || nodes[string(do.Node)] != owner {
					s.fault("revision %d: %s of scheduler %q is placed on %s, which %q owns", at, do.Capsule, owner, do.Node, nodes[string(do.Node)])
				}
			}
		}
		if !wait(ctx, ledger, at) {
			return
		}
	}
}

// wait waits until the ledger is newer. It reports false if ctx has ended.
func wait(ctx context.Context, ledger orbit.Ledger, after orbit.Revision) bool {
	_, _ = ledger.Wait(ctx, after)
	return ctx.Err() == nil
}
