package promorbit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// classes are the application classes that there are.
var classes = [...]orbit.AppClass{orbit.LatencySensitive, orbit.BestEffort, orbit.Batch, orbit.GangClass}

// classOf returns the position of a spec's class in classes. A ledger takes no others.
func classOf(spec *orbit.Spec) int { return min(int(spec.Class), len(classes)-1) }

// backlog is what waits in a ledger, and how often what has been committed. It follows the ledger's changes from one scrape to the
// next, because a state can tell how many capsules are pending, but not of which class or since when without a look at all
// capsules.
type backlog struct {
	// Everything up to this revision is in the counts below; read says that there is such a revision.
	seen orbit.Revision
	read bool
	// The pending capsules.
	waiting map[orbit.CapsuleID]waiter
	count   [len(classes)]int
	// Those that wait in each class, the longest first. An entry counts only while the capsule waits since that instant.
	oldest [len(classes)]heap.Heap[entry]
	// What the pending capsules ask for together, and how many of them are in each group.
	asked  amounts
	groups map[string]int
	// How many changes of each kind there were.
	changes map[string]uint64
	// How often changes between two scrapes could not be read.
	gaps uint64
}

// waiter is a pending capsule.
type waiter struct {
	spec      *orbit.Spec
	submitted uint64
	since     orbit.Instant
}

// entry says since when a capsule waits.
type entry struct {
	since orbit.Instant
	id    orbit.CapsuleID
}

// Before orders entries, those that have waited longest first.
func (e entry) Before(o entry) bool {
	return cmp.Or(cmp.Compare(e.since, o.since), cmp.Compare(e.id, o.id)) < 0
}

// follow brings the backlog up to the ledger's state, which it returns.
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

// recount looks at all capsules. What waited before keeps the time from which it waits.
func (b *backlog) recount(state *orbit.State, now orbit.Instant) {
	before := b.waiting
	*b = backlog{seen: state.Revision(), read: true, waiting: map[orbit.CapsuleID]waiter{}, groups: map[string]int{}, changes: b.changes, gaps: b.gaps}
	if b.changes == nil {
		b.changes = map[string]uint64{}
		for _, kind := range kinds { // a counter that begins at 0 shows its first change as one
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

// take looks again at the capsules that a change may have made pending, or no longer.
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
	case orbit.Resize:
		b.look(state, do.Capsule, now)
	case orbit.Release:
		b.look(state, do.Capsule, now)
	}
}

// look compares a capsule with what the backlog has of it.
func (b *backlog) look(state *orbit.State, id orbit.CapsuleID, now orbit.Instant) {
	c, w := state.Capsule(id), b.waiting[id]
	pending := c != nil && c.Pending()
	if w.spec != nil {
		if pending && w.submitted == c.Submitted && w.spec == c.Spec {
			return
		}
		if pending && w.submitted == c.Submitted { // it goes on waiting, with another spec
			now = w.since
		}
		b.sum(w.spec, -1)
		delete(b.waiting, id)
	}
	if pending {
		b.add(c, now)
	}
}

// add adds a pending capsule, which waits from its submission on, or from now if that is not known.
func (b *backlog) add(c *orbit.Capsule, now orbit.Instant) {
	since := cmp.Or(c.SubmitTime, now)
	b.waiting[c.ID] = waiter{c.Spec, c.Submitted, since}
	b.sum(c.Spec, 1)
	class := classOf(c.Spec)
	b.oldest[class].Push(entry{since, c.ID})
	if h := &b.oldest[class]; len(*h) > 2*b.count[class]+1024 { // most entries are of capsules that wait no more
		b.sift(h)
	}
}

// sift drops the entries that do not count.
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

// sum adds a pending capsule to the sums, or takes it away.
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

// age returns for how long the capsule of a class has waited that has waited longest; 0 if none waits.
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
var kinds = [...]string{"put_node", "remove_node", "submit", "place", "release_hold", "end", "release", "move", "evict", "confirm", "hold", "nominate",
	"assign", "mark", "put_budget", "remove_budget", "protect", "adopt", "resize"}

// kindOf names what a commitment does.
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
	case orbit.Adopt:
		return "adopt"
	case orbit.Resize:
		return "resize"
	}
	return other
}
