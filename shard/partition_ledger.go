package shard

import (
	"context"
	"fmt"
	"sync"

	"github.com/orbitsched/orbit"
)

// PartitionLedger is the ledger as one scheduler sees it. Give it to the scheduler's engine as its Ledger, and what
// [PartitionLedger.Navigator] returns as its Navigator. Any navigator works, and none has to know about groups:
//
//	partition := &shard.PartitionLedger{Ledger: ledger, Scheduler: "a", Mode: shard.Strict}
//	engine := &orbit.Engine{Name: "a", Ledger: partition, Navigator: partition.Navigator(newServices)}
//
// In [Strict] mode it shows all nodes outside the scheduler's group as unschedulable, and adds bets on the owners of nodes to
// proposals. In [Soft] mode it shows all nodes and adds no bets. In both modes it answers when the scheduler is asked for a node
// (see handoff.go). In [Shared] mode it passes every call on unchanged.
//
// Its methods may be called from any goroutine, but one PartitionLedger serves one engine. Its answers rely on that:
// when the engine asks for a Snapshot, or for changes after the newest one, it has no planned proposal that it has not
// sent. Engines with partition ledgers cannot run in one [orbit.Population], which requires one ledger for all: run
// each alone.
type PartitionLedger struct {
	// Ledger is the ledger itself. Required.
	Ledger orbit.Ledger
	// Scheduler is the name of the engine, of its group and of its lease. Required.
	Scheduler string
	// Mode says on which nodes the scheduler may place capsules; default Strict. All schedulers have the same.
	Mode Mode
	// Telemetry is the engine's telemetry. It is used in soft mode only, for the views of the two navigators.
	Telemetry orbit.Telemetry
	// Hook, if set, is called from within Snapshot and Changes with the error of each answer that could not be
	// committed. The answer is tried again.
	Hook func(error)

	mu   sync.Mutex // guards what follows; held while the ledger is asked for a snapshot, not while it commits
	view partitionView
	// viewed is the revision of the last state that Snapshot has returned.
	viewed orbit.Revision
	// flights are the engine's proposals under way.
	flights flights
}

var (
	_ orbit.Ledger  = (*PartitionLedger)(nil)
	_ orbit.Batcher = (*PartitionLedger)(nil)
)

// check returns an error if a required field is missing.
func (l *PartitionLedger) check() error {
	if l.Ledger == nil || l.Scheduler == "" || int(l.Mode) >= len(modeNames) {
		return fmt.Errorf("shard: %w: PartitionLedger of scheduler %q, %v: set its Ledger, its Scheduler, and Strict, Soft or Shared as its Mode",
			orbit.ErrInvalid, l.Scheduler, l.Mode)
	}
	return nil
}

// Snapshot returns the ledger's state as the scheduler sees it, and answers for the nodes that are leaving its group. It costs
// more than the ledger's only by a copy of the record of each node that has changed. It reads all nodes only at first, or when the
// scheduler fell so far behind that the ledger's history does not reach back.
func (l *PartitionLedger) Snapshot(ctx context.Context) (*orbit.State, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Mode == Shared {
		return l.Ledger.Snapshot(ctx)
	}
	state, answers, err := l.refresh(ctx, true)
	if err == nil {
		l.answer(ctx, answers)
	}
	return state, err
}

// refresh follows the ledger, and returns the state as the scheduler sees it and the answers to be sent.
func (l *PartitionLedger) refresh(ctx context.Context, viewed bool) (*orbit.State, []orbit.Proposal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.ledger, l.view.scheduler = l.Ledger, l.Scheduler
	if err := l.view.follow(ctx); err != nil {
		return nil, nil, err
	}
	if viewed {
		l.viewed = l.view.state.Revision()
		l.flights.looks++
	}
	shown := l.view.shown
	if l.Mode == Soft {
		shown = l.view.state
	}
	return shown, l.answers(&l.view), nil
}

// Changes returns the ledger's changes after a revision. After each change of a node's owner it inserts a PutNode of
// that node.
//
// Its snapshots and changes are for engines and views. After a change of a node's owner it inserts a PutNode that is
// not in the ledger, so that engines read the node again. The changes are therefore no history for [orbit.State.Apply].
func (l *PartitionLedger) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Mode == Shared {
		return l.Ledger.Changes(ctx, after)
	}
	changes, resting, err := l.announced(ctx, after)
	if err == nil && resting {
		if _, answers, err := l.refresh(ctx, false); err == nil { // otherwise the next pass returns the error
			l.answer(ctx, answers)
		}
	}
	return changes, err
}

// announced returns the changes, and reports whether the engine is at rest and one of them asks for a node of its
// group.
func (l *PartitionLedger) announced(ctx context.Context, after orbit.Revision) (changes []orbit.Change, resting bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.ledger = l.Ledger
	if changes, err = l.view.changes(ctx, after); err != nil {
		return nil, false, err
	}
	marks, asked := 0, false
	for i := range changes {
		kind, id, ok := nodeOfMark(&changes[i])
		if !ok || kind == leftMark {
			continue
		}
		_, mine := l.view.own[id]
		asked = asked || mine && kind == leavingMark
		marks++
	}
	return l.announce(changes, marks), asked && after >= l.viewed, nil
}

// announce inserts a PutNode after each mark of a node's owner; marks is their number. The caller must hold the lock.
func (l *PartitionLedger) announce(changes []orbit.Change, marks int) []orbit.Change {
	if marks == 0 {
		return changes
	}
	out := make([]orbit.Change, 0, len(changes)+marks)
	for i := range changes {
		out = append(out, changes[i])
		kind, id, ok := nodeOfMark(&changes[i])
		if !ok || kind == leftMark {
			continue
		}
		put := changes[i]
		put.Node, put.Do = id, orbit.PutNode{Node: orbit.Node{ID: id}}
		if l.view.shown != nil {
			if n := l.view.shown.Node(id); n != nil {
				put.Do = orbit.PutNode{Node: *n.Node}
			}
		}
		out = append(out, put)
	}
	return out
}

// Wait returns the ledger's revision as soon as it is newer than after.
func (l *PartitionLedger) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	return l.Ledger.Wait(ctx, after)
}

// Limits returns the ledger's limits.
func (l *PartitionLedger) Limits() orbit.Limits { return l.Ledger.Limits() }
