package telemetry

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
	"github.com/orbitsched/orbit/lease"
)

// Board has the newest report of every node, less what has been claimed of it since. It implements [orbit.Telemetry].
// The zero value is an empty board; set the fields before first use. All methods may be called from any goroutine.
//
// A report is a change if it differs from the known one in anything except the heartbeat. So nodes should round values
// that vary all the time, such as their load. A report is also a change if it ends a claim, or if the known one was
// already stale when it came: the node has paused, and a reader may have seen that.
//
// Invariants: versions only rise. Each node's entry has the version of its last change, and no two entries have the
// same. The ring has all entries, the newest change first. So Reports reads only as many entries as have changed, and a
// report moves one entry, however many nodes there are. The first version is the time in nanoseconds, so that a board
// which is started again begins above all versions of the one before.
type Board struct {
	// Stale is the age from which a report counts as stale, from its receipt on; default 30 s, negative: never. It should
	// be several times the interval at which nodes report.
	Stale time.Duration
	// Now is the clock, which is called while a lock is held; nil: time.Now. Set it only in tests in which all readers use
	// the same clock: engines and gateways use time.Now, and would take fresh reports for stale ones or the reverse.
	Now func() time.Time
	// Leases is the keeper of the nodes' leases; the name of a lease is the id of a node. Nil: nodes report without a
	// lease.
	Leases *lease.Keeper

	// PerSecond is how many reports a second a node may send on average, with bursts of ten seconds' worth; default 10,
	// negative: no bound.
	PerSecond int
	// MaxNodes is how many nodes the board takes; default 131,072, negative: no bound.
	MaxNodes int
	// MaxWords is how many templates, warm templates and volumes a report may name in total; default 4,096, negative: no
	// bound, except that [Board.Follow] takes at most 262,144. Each of these words, and a node's id, may have at most
	// 253 bytes.
	MaxWords int

	mu      sync.Mutex // guards the fields below
	nodes   map[orbit.NodeID]*entry
	ring    entry // the sentinel: ring.next is the newest change
	version uint64
	// news is closed by the next change; nil: nobody waits for it.
	news chan struct{}
	// forgets counts the nodes that were forgotten.
	forgets uint64
	// leaseCursor is the position up to which changes of leases have been read.
	leaseCursor uint64
	stats       Stats
}

var _ orbit.Telemetry = (*Board)(nil)

// entry is one node's place in the ring.
type entry struct {
	report     orbit.Report  // as the node has sent it; its map and slices are shared with readers, so they are never changed
	offset     time.Duration // of the board's clock from the node's; see sentAt
	version    uint64
	prev, next *entry
	allowance  rate.Allowance // of reports

	claims []claimed
	first  uint64           // number of claims[0]
	slots  int              // number of live claims that take a slot
	debits map[string]debit // of live claims, by template
	full   time.Time        // when a claim was made that was one too many; zero: there was none
	warm   map[string]int   // the warm slots that readers see; nil: shownWarm has to compute them
}

// Stats are the counts of a board since it was made.
type Stats struct {
	Nodes     int    // nodes known now
	Reports   uint64 // reports taken
	Changed   uint64 // reports taken that were a change
	Fed       uint64 // reports taken that another board has sent
	Claims    uint64 // calls of Claim for a known node
	Unclaimed uint64 // claims that were cancelled
	Vacated   uint64 // claims whose slot was given back
	Exhausted uint64 // calls of Exhausted for a known node
	Invalid   uint64 // refused: malformed
	Oversized uint64 // refused: too many words, or too long ones
	Outdated  uint64 // refused: a newer report is known
	Flooded   uint64 // refused: too many from that node
	Full      uint64 // refused: too many nodes
	Unleased  uint64 // refused: the node has no lease, or it has run out
	OldTerm   uint64 // refused: the report names another term than the current one of the node's lease
	Unheard   uint64 // refused: the report names a term that the leases have not read from the ledger yet
}

// Report stores a node's report, which must be complete: what is left out is zero. The board keeps a copy, in which
// Templates and Volumes are sorted, Received is the present time, and Stale and Expired are false. The cost does not
// depend on the number of nodes.
// With Leases, a report that is accepted refreshes the term that it names.
//
// The error is a [*Refusal], and nothing has changed. For errors.Is it is one of
//   - [orbit.ErrInvalid]: no node id, no heartbeat time, or a number that is negative, infinite or not a number;
//   - [ErrOversized]: too many words, or too long ones;
//   - [lease.ErrExpired]: the node has no live lease, or the report does not name its current term (acquire a new one);
//   - [lease.ErrUnheard]: the leases have not read the term from the ledger yet (send the report again after their next
//     step);
//   - [ErrFlood]: the node has sent too many reports;
//   - [ErrFull]: the board takes no more nodes;
//   - [ErrOutdated]: a newer report is known.
func (b *Board) Report(r orbit.Report) error {
	refusal := b.malformed(&r)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now() // under the lock, so that it is not before the clock of any reader that has fetched the known report
	e := b.nodes[r.Node]
	r.Received = now
	if refusal == nil {
		refusal = b.admit(&r, e, now)
	}
	if refusal != nil {
		*b.stats.of(refusal)++
		return refusal
	}
	b.take(e, &r, now)
	return nil
}

// admit returns why a well-formed report is refused, nil if it is taken. The term is checked before the rate is
// counted, so that only the holder of the term can use up the node's allowance; the term is refreshed last, so that a
// refused report is no refresh. The caller must hold the lock.
func (b *Board) admit(r *orbit.Report, known *entry, now time.Time) *Refusal {
	if refusal := b.checkTerm(r); refusal != nil {
		return refusal
	}
	if refusal := b.flooded(r, known, now); refusal != nil {
		return refusal
	}
	if known != nil && b.newer(&known.report, r) {
		return &Refusal{Kind: ErrOutdated, Node: r.Node, At: r.At, Against: known.report.At}
	}
	return b.refreshTerm(r)
}

// flooded returns a refusal if the node has sent too many reports, or if there are too many nodes. The caller must hold
// the lock.
func (b *Board) flooded(r *orbit.Report, known *entry, now time.Time) *Refusal {
	if known == nil {
		if most := cmp.Or(b.MaxNodes, defaultNodes); most > 0 && len(b.nodes) >= most {
			return &Refusal{Kind: ErrFull, Node: r.Node, At: r.At, Against: now, Reason: fmt.Sprintf("it knows %d nodes", most)}
		}
		return nil
	}
	most := cmp.Or(b.PerSecond, defaultRate)
	if most > 0 && known.allowance.Take(now, time.Second/time.Duration(most), most*floodSeconds) > 0 {
		return &Refusal{Kind: ErrFlood, Node: r.Node, At: r.At, Against: now, Reason: fmt.Sprintf("more than %d a second", most)}
	}
	return nil
}

// newer reports whether a report of a node is newer than another one of the same node. Within a term the node's own
// clock says which of two reports it has sent later. If the clock was set back, that is wrong for all later reports, so
// the report that was received much later is the newer one, whatever the node's clock says. Much is longer than reports
// are on their way, and too short for a term to run out meanwhile.
func (b *Board) newer(r, other *orbit.Report) bool {
	much := muchLater
	if b.Leases != nil && b.Leases.TTL > 0 {
		much = min(much, b.Leases.TTL/3)
	}
	later := r.Received.Sub(other.Received)
	switch {
	case r.Term == other.Term && r.At.Equal(other.At):
		return false
	case later.Abs() >= much:
		return later > 0
	case r.Term != other.Term:
		return r.Term > other.Term
	}
	return r.At.After(other.At)
}

// maxDrift is how much faster than another one a clock may run, as one part in maxDrift.
const maxDrift = 1000

// sentAt estimates when the node has sent a report, by the board's clock, which has nothing to do with the node's. The
// report with the shortest way of all shows by how much the two clocks differ: they cannot differ by more than it was on
// its way. So the estimate is too late by that way, or by a thousandth of the time since then. The estimate begins anew if
// the node's clock was set back, or with another term.
func (e *entry) sentAt(r *orbit.Report) time.Time {
	offset := r.Received.Sub(r.At)
	if was := &e.report; was.Node != "" && r.Term == was.Term && !r.At.Before(was.At) {
		offset = min(offset, e.offset+r.Received.Sub(was.Received)/maxDrift)
	}
	e.offset = offset
	return r.At.Add(offset)
}

// take stores a report that has been admitted. The caller must hold the lock.
func (b *Board) take(e *entry, r *orbit.Report, now time.Time) {
	b.stats.Reports++
	if e == nil {
		e = b.add(r.Node)
	}
	ended, fresh := e.endClaims(e.sentAt(r)), b.fresh(e, now)
	if !ended && fresh && repeats(&e.report, r) {
		e.report.At, e.report.Received = r.At, r.Received
		return
	}
	e.report = copyOf(r, &e.report)
	e.warm = nil
	b.stats.Changed++
	b.markChanged(e)
}

// markChanged makes a node the newest change. The caller must hold the lock.
func (b *Board) markChanged(e *entry) {
	if b.version == 0 {
		b.version = uint64(max(b.now().UnixNano(), 0))
	}
	b.version++
	if b.news != nil {
		close(b.news)
		b.news = nil
	}
	e.version = b.version
	e.unlink()
	e.linkAfter(&b.ring)
}

// add makes an entry for a new node. The caller must hold the lock.
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

// fresh reports whether there is a known report that no reader can have found stale by now.
func (b *Board) fresh(e *entry, now time.Time) bool {
	bound := b.StaleAfter()
	return e.report.Node != "" && (bound == 0 || now.Before(e.report.Received.Add(bound)))
}

// StaleAfter implements [orbit.Telemetry]. It returns the age from which a report counts as stale; zero: never.
func (b *Board) StaleAfter() time.Duration {
	return max(cmp.Or(b.Stale, defaultStale), 0)
}

// Forget drops the report and the claims of a node. Call it for a node that has left for good. Readers are not notified: a view drops a node when the ledger does, and keeps the last report, which becomes
// stale, until then. If the node reports again, that is a change.
func (b *Board) Forget(node orbit.NodeID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(node)
}

// forget is Forget for callers that hold the lock.
func (b *Board) forget(node orbit.NodeID) {
	if e := b.nodes[node]; e != nil {
		e.unlink()
		delete(b.nodes, node)
		b.forgets++
	}
}

// Stats returns the counts.
func (b *Board) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Nodes = len(b.nodes)
	return s
}

// The defaults allow a node that reports every 10 s to lose two reports. A node that reports whenever a slot is taken may
// do so ten times a second.
const (
	defaultStale = 30 * time.Second
	muchLater    = 10 * time.Second
	defaultRate  = 10
	defaultNodes = 1 << 17
	defaultWords = 4096
	floodSeconds = 10
	maxWordBytes = 253
)

func (b *Board) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}

// unlink removes e from the ring. The caller links it again or drops it.
func (e *entry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

// linkAfter inserts e, which must be in no ring, behind p.
func (e *entry) linkAfter(p *entry) {
	e.prev, e.next = p, p.next
	p.next.prev, p.next = e, e
}
