package promorbit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// classes are all application classes.
var classes = [...]orbit.AppClass{orbit.LatencySensitive, orbit.BestEffort, orbit.Batch, orbit.GangClass}

// classOf returns the position of a spec's class in classes. No ledger accepts any other class.
func classOf(spec *orbit.Spec) int { return min(int(spec.Class), len(classes)-1) }

// backlog counts the pending capsules of a ledger, and the changes of each kind. It follows the ledger's changes from
// one scrape to the next. A state has the number of pending capsules, but their classes and waiting times could be read
// from it only by looking at all capsules.
type backlog struct {
	// seen is the revision up to which the fields below count everything; read says that there is such a revision.
	seen orbit.Revision
	read bool
	// waiting are the pending capsules, count is their number in each class.
	waiting map[orbit.CapsuleID]waiter
	count   [len(classes)]int
	// oldest has the pending capsules of each class, those that have waited longest first. An entry is valid only while
	// the capsule is pending since the same instant; invalid entries are removed later.
	oldest [len(classes)]heap.Heap[entry]
	// asked is the sum of the demands of all pending capsules, groups is how many of them are in each group.
	asked  amounts
	groups map[string]int
	// changes counts the changes of each kind.
	changes map[string]uint64
	// gaps counts how often the changes between two scrapes could not be read.
	gaps uint64
}

// waiter is a pending capsule.
type waiter struct {
	spec      *orbit.Spec
	submitted uint64
	since     orbit.Instant
}

// entry says since when a capsule has been pending.
type entry struct {
	since orbit.Instant
	id    orbit.CapsuleID
}

// Before orders entries, those that have waited longest first.
func (e entry) Before(o entry) bool {
	return cmp.Or(cmp.Compare(e.since, o.since), cmp.Compare(e.id, o.id)) < 0
}

// follow brings the backlog up to date with the ledger's present state, and returns that state.
func (b *backlog) follow(ctx context.Context, ledger orbit.Ledger) (*orbit.State, error) {
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	now, to := orbit.Instant(time.Now().UnixNano()), state.Revision()
	if !b.read {
		b.recount(state, now)
		return state, nil
	}
	if to == b.seen {
		return state, nil
	}
	changes, err := ledger.Changes(ctx, b.seen)
	switch {
	case errors.Is(err, orbit.ErrCompacted), to < b.seen: // a ledger that was restored from an older dump goes back
		b.gaps++
		b.recount(state, now)
		return state, nil
	case err != nil:
		return nil, err
	}
	for i := range changes {
		if changes[i].Revision > to { // committed after the snapshot: it is read at the next scrape
			break
		}
		b.changes[kindOf(changes[i].Do)]++
		b.take(state, changes[i].Do, now)
	}
	b.seen = to
	return state, nil
}

// recount counts all capsules anew. Capsules that the backlog has already as pending keep their waiting times.
func (b *backlog) recount(state *orbit.State, now orbit.Instant) {
	before := b.waiting
	*b = backlog{seen: state.Revision(), read: true, waiting: map[orbit.CapsuleID]waiter{}, groups: map[string]int{}, changes: b.changes, gaps: b.gaps}
	if b.changes == nil {
		b.changes = map[string]uint64{}
		for _, kind := range kinds { // begin at 0, so that a rate shows the first change too
			b.changes[kind] = 0
		}
	}
	if state.PendingCount() == 0 {
		return
	}
	for c := range state.Capsules() {
		if !c.Pending() {
			continue
		}
		since := now
		if was, ok := before[c.ID]; ok && was.submitted == c.Submitted {
			since = was.since
		}
		b.add(c, since)
	}
}

// take updates the capsules that a change may have made pending or not pending.
func (b *backlog) take(state *orbit.State, do orbit.Commitment, now orbit.Instant) {
	switch do := do.(type) {
	case orbit.Submit:
		for _, id := range do.IDs {
			b.look(state, id, now)
		}
		for i := 0; do.Gang != nil && i < len(do.Gang.Roles); i++ {
			for _, id := range do.Gang.Roles[i].Members {
				b.look(state, id, now)
			}
		}
	case orbit.Place:
		b.look(state, do.Capsule, now)
	case orbit.Evict:
		b.look(state, do.Capsule, now)
	case orbit.Adopt:
		b.look(state, do.Capsule, now)
	case orbit.Respec:
		b.look(state, do.Capsule, now)
	case orbit.Release:
		b.look(state, do.Capsule, now)
	}
}

// look updates the backlog's entry of a capsule from the state.
func (b *backlog) look(state *orbit.State, id orbit.CapsuleID, now orbit.Instant) {
	c, w := state.Capsule(id), b.waiting[id]
	pending := c != nil && c.Pending()
	if w.spec != nil {
		if pending && w.submitted == c.Submitted && w.spec == c.Spec {
			return
		}
		if pending && w.submitted == c.Submitted { // it is still pending, with another spec, and keeps its waiting time
			now = w.since
		}
		b.sum(w.spec, -1)
		delete(b.waiting, id)
	}
	if pending {
		b.add(c, now)
	}
}

// add adds a pending capsule. Its waiting time counts from SubmitTime or, without one, from now.
func (b *backlog) add(c *orbit.Capsule, now orbit.Instant) {
	since := cmp.Or(c.SubmitTime(), now)
	b.waiting[c.ID] = waiter{c.Spec, c.Submitted, since}
	b.sum(c.Spec, 1)
	class := classOf(c.Spec)
	b.oldest[class].Push(entry{since, c.ID})
	if h := &b.oldest[class]; len(*h) > 2*b.count[class]+1024 { // most entries are invalid
		b.sift(h)
	}
}

// sift drops the invalid entries.
func (b *backlog) sift(h *heap.Heap[entry]) {
	var kept heap.Heap[entry]
	for _, e := range *h {
		if b.valid(e) {
			kept.Push(e)
		}
	}
	*h = kept
}

func (b *backlog) valid(e entry) bool {
	w, ok := b.waiting[e.id]
	return ok && w.since == e.since
}

// sum adds a pending capsule to the sums (by 1), or subtracts it (by -1).
func (b *backlog) sum(spec *orbit.Spec, by int) {
	b.count[classOf(spec)] += by
	for d, amount := range spec.Envelope.Reservation {
		b.asked[d].add(int64(by) * amount)
	}
	b.asked[devices].add(int64(by) * int64(spec.Devices.Count*spec.Devices.Milli))
	for group := range spec.MemberOf {
		if b.groups[group] += by; b.groups[group] == 0 {
			delete(b.groups, group)
		}
	}
}

// age returns the longest time that a pending capsule of a class has waited; 0 if none is pending.
func (b *backlog) age(class int, now time.Time) time.Duration {
	h := &b.oldest[class]
	for len(*h) > 0 && !b.valid((*h)[0]) {
		h.Pop()
	}
	if len(*h) == 0 {
		return 0
	}
	return max(0, now.Sub((*h)[0].since.Time()))
}

// kinds are the values that kindOf returns.
var kinds = [...]string{"put_node", "remove_node", "submit", "place", "release_hold", "fail", "end", "release", "move", "evict", "confirm", "hold", "nominate",
	"assign", "mark", "put_budget", "remove_budget", "protect", "put_queue", "remove_queue", "adopt", "respec"}

// kindOf returns the name of the kind of a commitment.
func kindOf(do orbit.Commitment) string {
	switch do := do.(type) {
	case orbit.PutNode:
		return "put_node"
	case orbit.RemoveNode:
		return "remove_node"
	case orbit.Submit:
		return "submit"
	case orbit.Place:
		return "place"
	case orbit.Release:
		switch {
		case do.Hold != "":
			return "release_hold"
		case do.Stopped:
			return "fail"
		case do.Final:
			return "end"
		}
		return "release"
	case orbit.Evict:
		if do.For == "" && do.ForGang == "" {
			return "move"
		}
		return "evict"
	case orbit.Confirm:
		return "confirm"
	case orbit.Hold:
		return "hold"
	case orbit.Nominate:
		return "nominate"
	case orbit.Assign:
		return "assign"
	case orbit.Mark:
		return "mark"
	case orbit.PutBudget:
		return "put_budget"
	case orbit.RemoveBudget:
		return "remove_budget"
	case orbit.Protect:
		return "protect"
	case orbit.PutQueue:
		return "put_queue"
	case orbit.RemoveQueue:
		return "remove_queue"
	case orbit.Adopt:
		return "adopt"
	case orbit.Respec:
		return "respec"
	}
	return other
}
