package telemetry

import (
	"context"

	"github.com/orbitsched/orbit"
)

// This file has the methods that readers call.

// Reports implements [orbit.Telemetry]: it returns the reports that have changed after the version, each
// node's once, newest change first, in time proportional to their number. What it returns is read-only. A
// version that this board has not reached is another board's, before a restart: all reports are returned. With
// Leases, a node whose lease has run out counts as changed, at that very moment.
func (b *Board) Reports(ctx context.Context, after uint64) (reports []orbit.Report, version uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, after, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.followLeases()
	if after == b.version || len(b.nodes) == 0 {
		return nil, b.version, nil
	}
	if after > b.version {
		after = 0
	}
	for e := b.ring.next; e != &b.ring && e.version > after; e = e.next {
		reports = append(reports, b.shown(e))
	}
	return reports, b.version, nil
}

// Wait returns nil as soon as the version is another one than after, or the error of the context. An [orbit.Engine] calls it
// while work waits, so that a report wakes it. A lease that runs out is not waited for: it takes room away.
func (b *Board) Wait(ctx context.Context, after uint64) error {
	for {
		b.mu.Lock()
		if b.version != after {
			b.mu.Unlock()
			return ctx.Err()
		}
		if b.news == nil {
			b.news = make(chan struct{})
		}
		news := b.news
		b.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Latest implements [orbit.Telemetry]: it returns the newest report of a node, the newest heartbeat included, and
// false if the board does not know the node; then the report says no more than whether the node has a lease. The
// report is read-only.
func (b *Board) Latest(node orbit.NodeID) (orbit.Report, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.nodes[node]
	if !ok {
		return orbit.Report{Node: node, Expired: b.Leases != nil}, false
	}
	return b.shown(e), true
}

// shown returns a report as readers see it. The caller must hold the lock.
func (b *Board) shown(e *entry) orbit.Report {
	r := e.report
	r.FreeSlots = e.free()
	r.Warm = e.shownWarm()
	r.Expired = b.Leases != nil && !b.hasTerm(r.Node, r.Term)
	return r
}
