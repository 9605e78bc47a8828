package telemetry

import (
	"context"

	"github.com/orbitsched/orbit"
)

// This file has the methods that readers call.

// Reports implements [orbit.Telemetry]. It returns the reports that have changed after the version, one for each node,
// the newest change first, in time proportional to their number. The reports are read-only. A version that this board
// has not reached comes from a board before a restart; then Reports returns all reports. With Leases, a node counts as
// changed at the very moment at which its lease runs out.
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

// Wait returns nil as soon as the board's version differs from after, or the context's error when the context ends. An
// [orbit.Engine] calls it while work waits, so that a report wakes the engine. A lease that runs out does not end the
// wait, because it frees no capacity.
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

// Latest implements [orbit.Telemetry]. It returns the newest report of a node, with the newest heartbeat. If the board
// does not know the node, Latest reports false, and the report has only the node's id and Expired: true if the board
// has Leases. The report is read-only.
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
