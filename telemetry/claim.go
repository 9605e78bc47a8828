package telemetry

import (
	"maps"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// This file subtracts the claims that were made between two reports of a node. A report has the numbers that the node
// has sent. Readers see these numbers minus the claims since then, and never less than zero.
//
// Invariants of an entry: claims are in the order in which they were made, with consecutive numbers from first on.
// slots is the number of live claims that take a slot. debits has the sums of the live claims by template, without
// zeros. A report drops the claims that were made before it was sent, from the front, so each claim is examined once.
// If the clock was set back between two claims, the later claim stays as long as the earlier one.

// Claim identifies a slot of a node that has been given away since the node's last report. The zero Claim has no effect
// in any method. It is a value and may be copied.
type Claim struct {
	entry  *entry
	number uint64
	warm   bool
}

// Warm reports whether the claim took a warm slot of the template, which it does if readers saw one when it was made.
func (c Claim) Warm() bool { return c.warm }

// maxClaims is how many claims of one node a board remembers between two reports: as many as a node has slots by
// default. With more claims, readers see nothing free on the node until it reports.
const maxClaims = lease.DefaultSlots

// fewClaims is the largest capacity of a node's list of claims that is kept for reuse when the list becomes empty.
const fewClaims = 64

// claimed is one claim, as an entry remembers it.
type claimed struct {
	at       time.Time
	template string
	kind     claimKind
}

type claimKind uint8

const (
	void    claimKind = iota // undone
	cold                     // a slot
	warm                     // a slot, and a warm one of the template
	used                     // a warm slot of the template; the slot has been given back
	lacking                  // the template has no warm slot, whatever the node says
)

// debit is the number of warm slots of one template that live claims take, and the number of its lacking claims.
type debit struct{ warm, lacking int }

// Claim notes that a slot of the node has been given away. Until a report comes that the node has sent later, readers
// see one free slot less and, if they see a warm slot of the template now, one warm slot less; [Claim.Warm]
// says whether. The node counts as changed. The cost does not depend on the number of the node's slots and templates.
// Claim has no effect if the board does not know the node.
//
// A node should report at once when a slot becomes free that was in use at its last report. The slot of a sandbox that
// began after that report can be given back with Vacate when the sandbox ends.
func (b *Board) Claim(node orbit.NodeID, template string) Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.nodes[node]
	if e == nil {
		return Claim{}
	}
	b.stats.Claims++
	c := claimed{at: b.now(), kind: cold}
	if e.warmOf(template) > 0 {
		c.template, c.kind = template, warm
	}
	number, ok := e.claim(c)
	b.markChanged(e)
	if !ok {
		return Claim{}
	}
	return Claim{entry: e, number: number, warm: c.kind == warm}
}

// Unclaim cancels a claim whose slot was not used. It has no effect if the node has reported since, or if Unclaim or
// Vacate has been called for the claim before.
func (b *Board) Unclaim(c Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.claimed(c)
	if old == nil {
		return
	}
	c.entry.count(old, -1)
	*old = claimed{at: old.at}
	b.stats.Unclaimed++
	b.markChanged(c.entry)
}

// Vacate gives back the slot of a claim whose sandbox has ended, so that readers see the slot free again. A warm slot
// that the claim took has been used up, and readers see it as taken until the node reports. Vacate has no effect where
// Unclaim would have none, and Unclaim has none after it.
func (b *Board) Vacate(c Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.claimed(c)
	if old == nil {
		return
	}
	c.entry.count(old, -1)
	if old.kind == warm {
		old.kind = used
	} else {
		*old = claimed{at: old.at}
	}
	c.entry.count(old, 1)
	b.stats.Vacated++
	b.markChanged(c.entry)
}

// Holds reports whether readers still see the node without the slot of the claim: the node has not reported since, and
// neither Unclaim nor Vacate has been called.
func (b *Board) Holds(c Claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claimed(c) != nil
}

// claimed returns the record of a claim; nil if a report has ended the claim or the claim no longer takes a slot. The
// caller must hold the lock.
func (b *Board) claimed(c Claim) *claimed {
	e := c.entry
	if e == nil || b.nodes[e.report.Node] != e || c.number < e.first || c.number-e.first >= uint64(len(e.claims)) {
		return nil
	}
	old := &e.claims[c.number-e.first]
	if old.kind != cold && old.kind != warm {
		return nil
	}
	return old
}

// Exhausted notes that the node had reported a warm slot of the template and had none, or could not start from it.
// Until a report comes that the node has sent later, readers see no warm slot of the template there. Exhausted has no
// effect if the board does not know the node.
func (b *Board) Exhausted(node orbit.NodeID, template string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.nodes[node]
	if e == nil {
		return
	}
	b.stats.Exhausted++
	e.claim(claimed{at: b.now(), template: template, kind: lacking})
	b.markChanged(e)
}

// claim stores a claim and returns its number. It reports false if the node has too many claims; then readers see
// nothing free on it until it reports.
func (e *entry) claim(c claimed) (number uint64, ok bool) {
	if len(e.claims) >= maxClaims {
		e.full, e.warm = c.at, nil
		return 0, false
	}
	e.claims = append(e.claims, c)
	e.count(&c, 1)
	return e.first + uint64(len(e.claims)-1), true
}

// count adds a claim to the debits (by 1) or removes it (by -1).
func (e *entry) count(c *claimed, by int) {
	if c.kind == cold || c.kind == warm {
		e.slots += by
	}
	if c.kind == void || c.kind == cold {
		return
	}
	d := e.debits[c.template]
	if c.kind == lacking {
		d.lacking += by
	} else {
		d.warm += by
	}
	if e.debits == nil {
		e.debits = make(map[string]debit)
	}
	e.debits[c.template] = d
	if d == (debit{}) {
		delete(e.debits, c.template)
	}
	e.warm = nil
}

// endClaims ends the claims made before a report was sent, and reports whether there were any.
func (e *entry) endClaims(sent time.Time) bool {
	n, ended := 0, false
	for n < len(e.claims) && e.claims[n].at.Before(sent) {
		e.count(&e.claims[n], -1)
		ended = ended || e.claims[n].kind != void
		n++
	}
	e.first += uint64(n)
	if e.claims = e.claims[n:]; len(e.claims) == 0 && cap(e.claims) > fewClaims {
		e.claims = nil
	}
	if !e.full.IsZero() && e.full.Before(sent) {
		e.full, e.warm, ended = time.Time{}, nil, true
	}
	return ended
}

// free returns the free slots that readers see.
func (e *entry) free() int {
	if !e.full.IsZero() {
		return 0
	}
	return max(0, e.report.FreeSlots-e.slots)
}

// warmOf returns the warm slots of a template that readers see.
func (e *entry) warmOf(template string) int {
	d := e.debits[template]
	if d.lacking > 0 || !e.full.IsZero() {
		return 0
	}
	return max(0, e.report.Warm[template]-d.warm)
}

// shownWarm returns the warm slots that readers see. A map that it has returned is never changed. The first call after
// a claim makes a new map; the claim itself does not, so that many claims between two reads cost one copy.
func (e *entry) shownWarm() map[string]int {
	if len(e.debits) == 0 && e.full.IsZero() {
		return e.report.Warm
	}
	if e.warm == nil {
		e.warm = maps.Clone(e.report.Warm)
		for template := range e.warm {
			e.warm[template] = e.warmOf(template)
		}
	}
	return e.warm
}
