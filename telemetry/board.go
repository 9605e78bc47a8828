package telemetry

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// Board is the newest report of every node. It implements [orbit.Telemetry]. The zero value is an empty
// board; set the fields before first use. All methods may be called from any goroutine.
//
// A report that differs in anything but its heartbeat is a change; so nodes should round what flutters, such
// as their load. So is one that comes when the known report is already stale, since a reader may have
// noticed; be it that the node paused, or that the report was long on the way.
//
// Invariants: versions only rise; each node's report has the version of its last change, and no two nodes
// have the same; the ring holds every node, newest change first. So Reports reads as many entries as have
// changed, and a report moves one entry: neither depends on how many nodes there are.
type Board struct {
	Stale time.Duration    // the age from which on a report is stale; 0: 30 s; negative: never
	Ahead time.Duration    // how far a heartbeat may lie in the future; 0: 10 s
	Now   func() time.Time // the clock that nodes and readers go by; called under the lock; nil: time.Now

	mu      sync.RWMutex // guards what follows
	nodes   map[orbit.NodeID]*entry
	ring    entry // the sentinel: ring.next is the newest change
	version uint64
	stats   Stats
}

var _ orbit.Telemetry = (*Board)(nil)

// entry is one node's place in the ring.
type entry struct {
	report     orbit.Report // its map and slices are shared with readers, so they are never written again
	version    uint64
	prev, next *entry
}

// Stats counts what a board has been told, since it was made.
type Stats struct {
	Nodes    int    // nodes known now
	Reports  uint64 // reports taken
	Changed  uint64 // those of them that readers get to see
	Invalid  uint64 // refused: malformed
	Outdated uint64 // refused: a newer heartbeat is known
	Ahead    uint64 // refused: from the future
}

// Report takes a node's report in, which must be full: what is left out is zero. The board keeps a copy of
// its own, in which Templates and Volumes are sorted and Stale is false. It costs the same however many
// nodes there are. The error is a [*Refusal] for which errors.Is finds [orbit.ErrInvalid] (no node id, no
// heartbeat time, or a number that is negative, infinite or not a number), [ErrOutdated] (a newer heartbeat
// is known) or [ErrAhead] (too far in the future, for if it were believed, no other could follow).
func (b *Board) Report(r orbit.Report) error {
	refusal := invalid(&r)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now() // under the lock: later than the clock of any reader who has seen the report before
	e := b.nodes[r.Node]
	if refusal == nil {
		refusal = b.mistimed(&r, e, now)
	}
	if refusal != nil {
		b.stats.refuse(refusal.Kind)
		return refusal
	}
	b.take(e, &r, now)
	return nil
}

// mistimed says what is wrong with a report's heartbeat, nil if nothing is. It requires the lock.
func (b *Board) mistimed(r *orbit.Report, known *entry, now time.Time) *Refusal {
	if ahead := cmp.Or(max(b.Ahead, 0), defaultAhead); r.At.After(now.Add(ahead)) {
		return &Refusal{Kind: ErrAhead, Node: r.Node, At: r.At, Against: now}
	}
	if known != nil && r.At.Before(known.report.At) {
		return &Refusal{Kind: ErrOutdated, Node: r.Node, At: r.At, Against: known.report.At}
	}
	return nil
}

// take files a report that has been found good. It requires the lock.
func (b *Board) take(e *entry, r *orbit.Report, now time.Time) {
	b.stats.Reports++
	if e == nil {
		e = b.add(r.Node)
	} else if b.fresh(e, r.At, now) && repeats(&e.report, r) {
		e.report.At = r.At
		return
	}
	e.report = copyOf(r, &e.report)
	b.stats.Changed++
	b.version++
	e.version = b.version
	e.unlink()
	e.linkAfter(&b.ring)
}

// add makes a place for a node that the board does not know. It requires the lock.
func (b *Board) add(node orbit.NodeID) *entry {
	if b.nodes == nil {
		b.nodes = make(map[orbit.NodeID]*entry)
		b.ring.prev, b.ring.next = &b.ring, &b.ring
	}
	e := &entry{}
	e.prev, e.next = e, e
	b.nodes[node] = e
	return e
}

// fresh reports whether no reader can have found the known report stale before this one came.
func (b *Board) fresh(e *entry, at, now time.Time) bool {
	bound := b.StaleAfter()
	if bound == 0 {
		return true
	}
	end := e.report.At.Add(bound)
	return at.Before(end) && now.Before(end)
}

// Reports implements [orbit.Telemetry]: it returns the reports that have changed after the version, each
// node's once, newest change first, in time proportional to their number. What it returns is read-only. A
// version that this board has not reached is another board's, before a restart: all reports are returned.
func (b *Board) Reports(ctx context.Context, after uint64) (reports []orbit.Report, version uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, after, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if after == b.version || len(b.nodes) == 0 {
		return nil, b.version, nil
	}
	if after > b.version {
		after = 0
	}
	for e := b.ring.next; e != &b.ring && e.version > after; e = e.next {
		reports = append(reports, e.report)
	}
	return reports, b.version, nil
}

// Latest implements [orbit.Telemetry]: it returns the newest report of a node, the newest heartbeat included,
// and false if the board does not know the node. The report is read-only.
func (b *Board) Latest(node orbit.NodeID) (orbit.Report, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e, ok := b.nodes[node]
	if !ok {
		return orbit.Report{}, false
	}
	return e.report, true
}

// StaleAfter implements [orbit.Telemetry]: the age from which on a report is stale; zero: never.
func (b *Board) StaleAfter() time.Duration {
	return max(cmp.Or(b.Stale, defaultStale), 0)
}

// Forget drops what is known of a node: one that has left for good, or whose clock has been set back. Nobody
// is told: a view drops a node when the ledger does, and until then finds its last report growing stale.
// If the node reports again, that is a change.
func (b *Board) Forget(node orbit.NodeID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.nodes[node]; e != nil {
		e.unlink()
		delete(b.nodes, node)
	}
}

// Stats returns the counts.
func (b *Board) Stats() Stats {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := b.stats
	s.Nodes = len(b.nodes)
	return s
}

// The defaults: a node that reports every 10 s may lose two reports, and its clock may be one report ahead.
const (
	defaultStale = 30 * time.Second
	defaultAhead = 10 * time.Second
)

func (b *Board) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}

// unlink takes e out of the ring; e is to be linked again, or dropped.
func (e *entry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

// linkAfter puts e, which is in no ring, behind p.
func (e *entry) linkAfter(p *entry) {
	e.prev, e.next = p, p.next
	p.next.prev, p.next = e, e
}
