package shard

import (
	"context"
	"fmt"
	"sync"

	"github.com/orbitsched/orbit"
)

// PartitionLedger is the ledger as one scheduler sees it. Give it to the scheduler's engine as its Ledger, and what
// [PartitionLedger.Navigator] returns as its Navigator; any navigator works, and none need know of groups:
//
//	partition := &shard.PartitionLedger{Ledger: ledger, Scheduler: "a", Mode: shard.Strict}
//	engine := &orbit.Engine{Name: "a", Ledger: partition, Navigator: partition.Navigator(newServices)}
//
// In [Strict] mode it closes all nodes that are not in the scheduler's group: they are unschedulable, and otherwise as
// they are. To every proposal that places a capsule or holds room it adds, for each node, a bet on the mark that says
// whose the node is. So whatever is planned when a node changes hands is refused: the fence. It needs room in
// [orbit.Limits].Preconditions for one bet more for each node of a proposal.
//
// In [Soft] mode it shows all nodes and adds no bets, and in both it answers for the nodes that are to leave the
// group (see handoff.go). In [Shared] mode it does nothing.
//
// What it costs beside the ledger alone: a map look-up and a copy of its bets for each placement; for each change of
// a node a copy of its record; nothing that grows with the constellation but a start, or a wait so long that the
// ledger's history does not reach back.
//
// Snapshots and changes are for engines and views. A change of a group is followed by a PutNode of its node which
// nobody committed, so that engines look at it again: the changes are no history for [orbit.State.Apply].
//
// Its methods may be called from any goroutine, but one PartitionLedger serves one engine: that engine has nothing under way to a
// node when it asks for a Snapshot, or for changes beyond the newest one; on that the answers rest. Engines with
// partition ledgers cannot run in one [orbit.Population], which wants them on one ledger: run each by itself.
type PartitionLedger struct {
	// Ledger is the real one. Required.
	Ledger orbit.Ledger
	// Scheduler is the name of the engine, of its group and of its lease. Required.
	Scheduler string
	Mode      Mode
	// Telemetry is that of the engine. It is needed in soft mode only, for the navigators' own views.
	Telemetry orbit.Telemetry
	// Hook is told of answers that could not be committed, from within Snapshot and Changes; they are tried again.
	// Nil: nobody is.
	Hook func(error)

	mu   sync.Mutex // guards what follows; held while the ledger is asked for a snapshot, not while it commits
	view partitionView
	// Of the last state that Snapshot has returned.
	viewed orbit.Revision
	flights
}

var (
	_ orbit.Ledger  = (*PartitionLedger)(nil)
	_ orbit.Batcher = (*PartitionLedger)(nil)
)

// check says what is missing.
func (l *PartitionLedger) check() error {
	if l.Ledger == nil || l.Scheduler == "" || int(l.Mode) >= len(modeNames) {
		return fmt.Errorf("shard: %w: PartitionLedger of scheduler %q, %v: it needs a Ledger, the name of its Scheduler and a Mode that there is",
			orbit.ErrInvalid, l.Scheduler, l.Mode)
	}
	return nil
}

// Snapshot returns the ledger's state as the scheduler sees it, and answers for the nodes that are leaving in it.
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

// look follows the ledger, and returns what is to be answered for besides what is seen.
func (l *PartitionLedger) refresh(ctx context.Context, viewed bool) (*orbit.State, []orbit.Proposal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.ledger, l.view.scheduler = l.Ledger, l.Scheduler
	if err := l.view.follow(ctx); err != nil {
		return nil, nil, err
	}
	if viewed {
		l.viewed = l.view.state.Revision()
		l.looks++
	}
	shown := l.view.shown
	if l.Mode == Soft {
		shown = l.view.state
	}
	return shown, l.answers(&l.view), nil
}

// Changes returns the ledger's changes after a revision. After each that concerns the group of a node there is a
// PutNode of that node.
func (l *PartitionLedger) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Mode == Shared {
		return l.Ledger.Changes(ctx, after)
	}
	changes, resting, err := l.announced(ctx, after)
	if err == nil && resting {
		if _, answers, err := l.refresh(ctx, false); err == nil { // else the next pass will say so
			l.answer(ctx, answers)
		}
	}
	return changes, err
}

// announced returns the changes, and whether the engine is at rest and one of them asks for a node of its.
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

// announce adds a PutNode after each of so many marks. It requires the lock.
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

// Limits returns those of the ledger.
func (l *PartitionLedger) Limits() orbit.Limits { return l.Ledger.Limits() }
