package race

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file has the queues of a world, and what the work that waits for quota needs.

// liveQueues are further kinds of events, as liveKinds. They are drawn last of all.
var liveQueues = []liveKind{
	{"queues", 0, (*liveTurn).queues}, // once, before all others
	{"quota", 4, (*liveTurn).quota},
	{"unqueue", 1, (*liveTurn).unqueue},
	{"requeue", 3, (*liveTurn).requeue},
}

// cohort is the queue from which all others borrow.
const cohort = orbit.QueueID("cohort")

// drawQueues gives two fifths of the worlds one level of queues below a cohort. Most specs then name a queue, some engines
// have a nav.Fair around their navigator, and quotas change. It has random numbers of its own.
func (d *liveDraft) drawQueues(r *rand.Rand) {
	if !lucky(r, 40) {
		return
	}
	d.queues = 1 + r.IntN(4)
	for i := range d.engines {
		if d.engines[i].fair = lucky(r, 50); lucky(r, 15) {
			continue // work beside that of the queues
		}
		for _, s := range d.engines[i].specs {
			d.drawQueue(r, s)
		}
	}
	for i := range d.groups {
		for _, s := range d.groups[i].specs {
			d.drawQueue(r, s)
		}
	}
	var kinds []string
	for _, k := range liveQueues {
		kinds = append(kinds, slices.Repeat([]string{k.name}, k.weight)...)
	}
	for k := range r.IntN(len(d.events)) {
		after := r.IntN(len(d.events))
		if d.events[after].kind == liveRest { // the last event is a rest
			continue
		}
		d.events = slices.Insert(d.events, after+1, Event{At: d.events[after].At, kind: one(r, kinds...), id: 2_000 + k})
	}
	d.events = slices.Insert(d.events, 0, Event{kind: "queues", id: 3_000})
}

// drawQueue lets most specs name a queue.
func (d *liveDraft) drawQueue(r *rand.Rand, s *orbit.Spec) {
	if lucky(r, 85) {
		s.Queue = d.anyQueue(r)
	}
}

// anyQueue returns one of the queues, seldom the cohort.
func (d *liveDraft) anyQueue(r *rand.Rand) orbit.QueueID {
	if lucky(r, 8) {
		return cohort
	}
	return orbit.QueueID(fmt.Sprint("q", r.IntN(d.queues)))
}

// queues puts all queues.
func (t *liveTurn) queues() [][]orbit.Commitment {
	do := []orbit.Commitment{orbit.PutQueue{Queue: t.drawQueue(cohort)}}
	for i := range t.draft.queues {
		do = append(do, orbit.PutQueue{Queue: t.drawQueue(orbit.QueueID(fmt.Sprint("q", i)))})
	}
	return once(do...)
}

// drawQueue makes up the quota of a queue: often less than its work asks for.
func (t *liveTurn) drawQueue(id orbit.QueueID) orbit.Queue {
	q := orbit.Queue{ID: id, Parent: cohort, Nominal: map[string]int64{"cpu": between(t.r, 0, 12)}, Weight: t.r.Int64N(4)}
	names := []string{"cpu"}
	for _, name := range []string{"memory", "device/A", "extra/ip"} {
		if lucky(t.r, 20) {
			q.Nominal[name], names = between(t.r, 0, 8), append(names, name)
		}
	}
	if _, devices := q.Nominal["device/A"]; devices {
		q.Nominal["device/A"] *= 500
	}
	if id == cohort {
		q.Parent, q.Weight = "", 0
		return q
	}
	if lucky(t.r, 40) {
		q.Borrow = map[string]int64{one(t.r, names...): between(t.r, 0, 6)}
	}
	if lucky(t.r, 40) {
		q.Lend = map[string]int64{one(t.r, names...): between(t.r, 0, 6)}
	}
	return q
}

// quota changes the quota of a queue.
func (t *liveTurn) quota() [][]orbit.Commitment {
	return once(orbit.PutQueue{Queue: t.drawQueue(t.draft.anyQueue(t.r))})
}

// unqueue removes a queue that no work names, or lets all work leave a queue and then removes it; quota may put it again.
func (t *liveTurn) unqueue() [][]orbit.Commitment {
	id := t.draft.anyQueue(t.r)
	var do []orbit.Commitment
	for _, c := range t.capsules(func(c *orbit.Capsule) bool { return !c.Released() && c.Spec.Queue == id }) {
		do = append(do, respecified(c, func(s *orbit.Spec) { s.Queue = "" }))
	}
	return once(append(do, orbit.RemoveQueue{Queue: id})...)
}

// requeue moves a capsule, placed or pending, to another queue or out of all.
func (t *liveTurn) requeue() [][]orbit.Commitment {
	c := t.capsule(func(c *orbit.Capsule) bool { return !c.Released() })
	if c == nil {
		return nil
	}
	id := t.draft.anyQueue(t.r)
	if lucky(t.r, 20) {
		id = ""
	}
	return once(respecified(c, func(s *orbit.Spec) { s.Queue = id }))
}

// respecified gives a capsule another spec.
func respecified(c *orbit.Capsule, change func(*orbit.Spec)) orbit.Commitment {
	do := orbit.Respec{Capsule: c.ID, Spec: c.Spec.Clone()}
	if c.Placed() {
		do.Since = c.PlacedAt
	}
	change(do.Spec)
	return do
}

// admits reports whether the quotas admit capsules of these specs, each on its node, beside all others. What leaves is no
// longer used.
func (b *liveBooks) admits(leaves []*orbit.Capsule, comes ...tenant) bool {
	if b.audit.queues[cohort].ID == "" {
		return true
	}
	var was, now []charge
	for _, c := range leaves {
		gone := b.audit.charged(b.audit.capsules[c.ID])
		for r := range gone.takes {
			gone.takes[r] *= -1
		}
		was = append(was, gone)
	}
	for _, t := range comes {
		now = append(now, chargeOf(t.spec, t.on))
	}
	before, after := b.audit.sums(was...), b.audit.sums(slices.Concat(was, now)...)
	for _, c := range now {
		if queue, _ := after.Overdrawn(before, c.queue, c.takes); queue != "" {
			return false
		}
	}
	return true
}
