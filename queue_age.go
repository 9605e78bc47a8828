package orbit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/aging"
	"github.com/orbitsched/orbit/internal/heap"
)

// Aging raises the priority by which waiting work is planned, so that work does not wait for ever behind work of slightly higher
// priority. The zero value turns it off. Priorities are divided into bands of Band priorities, each of which begins at a
// multiple of Band: with a Band of 10 they are 0 to 9, 10 to 19 and so on, and -10 to -1 below zero. While work waits it rises
// by one priority in each Every, up to the highest priority of its band. So work is planned before all work of its band that is
// submitted Every × (Band - 1) after it or later, and never before work of a higher band.
//
// A capsule waits since [Submit].At, or, if that is 0, since the engine first saw it. A capsule that returns to pending keeps the
// time from which it waits. Age changes only the order of planning: the ledger judges placements and evictions by the spec's
// priority, and nominations by [Nomination].Rank. A navigator that wants the age to count for a nomination puts it into the rank
// ([View.Aged]).
type Aging struct {
	// Every is how long a capsule waits until it rises by one priority; 0: no capsule rises.
	Every time.Duration
	// Band is how many priorities a band has; default 10. Every × Band may be at most 50 years.
	Band int
}

const defaultBand = 10

// mostAging bounds how long it takes to rise through a band, so that times in nanoseconds do not overflow.
const mostAging = 50 * 365 * 24 * time.Hour

// faults returns everything that is wrong with a.
func (a Aging) faults() []string {
	if a.Every < 0 || a.Band < 0 || a.Every > mostAging/time.Duration(max(1, cmp.Or(a.Band, defaultBand))) {
		return []string{"Aging: Every and Band must not be negative, and Every × Band must not be more than 50 years"}
	}
	return nil
}

// book returns the rule by which a queue lets work age; nil: no work ages.
func (a Aging) book() *aging.Book {
	if a.Every == 0 {
		return nil
	}
	band := int64(a.Band)
	if band == 0 {
		band = defaultBand
	}
	return &aging.Book{Every: int64(a.Every), Band: band}
}

// Aging returns how work ages in the engine to which the view belongs; the zero value: no work ages there.
func (v *View) Aging() Aging {
	b := v.queue.aging
	if b == nil {
		return Aging{}
	}
	return Aging{Every: time.Duration(b.Every), Band: int(b.Band)}
}

// Aged returns the priority to which a capsule has risen while it waits, by [Engine].Aging: at least the priority of its spec,
// and at most the highest of its band. A navigator that sorts capsules by priority itself must sort by Aged, because the order
// in which the engine hands them over is lost otherwise.
func (v *View) Aged(c *Capsule) int32 {
	if v.queue.aging == nil {
		return c.Spec.Priority
	}
	return v.queue.aging.Aged(c.Spec.Priority, v.queue.since(c), int64(v.queue.now))
}

// since returns the time since which a capsule waits. It requires that work ages.
func (q *queue) since(c *Capsule) int64 {
	return q.aging.Since(string(c.ID), c.Submitted, int64(c.SubmitTime), int64(q.now))
}

// see notes when a waiting capsule was first seen, if work ages and the capsule has no time of submission.
func (q *queue) see(c *Capsule) {
	if q.aging == nil || c.SubmitTime != 0 {
		return
	}
	q.aging.See(string(c.ID), c.Submitted, int64(q.now), func(id string, order uint64) bool {
		c := q.state.Capsule(CapsuleID(id))
		return c != nil && c.Submitted == order && c.Pending()
	})
}

// age sets the turn of a class, where work ages. A class always serves its nominees first. Therefore its turn is that of its first
// nominee, or that of its eldest other entry if this one is earlier.
func (q *queue) age(t *readyTurn) {
	k := t.class
	t.nominee = nil
	t.priority, t.submitted = q.turnOf(k.first(), k.spec)
	if len(k.nominees) > 0 && k.size() > len(k.nominees) {
		_, turn := q.turnOf(k.eldest(), k.spec)
		t.submitted = min(t.submitted, turn)
	}
}

// turnOf returns a priority and a turn that decide when an entry is planned: higher priorities first, and among equals lower
// turns. Where work ages, the priority is the number of the band. An entry whose capsule does not wait any more comes first in
// its band, and is dropped when it is taken.
func (q *queue) turnOf(e entry, spec *Spec) (priority int32, turn uint64) {
	if q.aging == nil {
		return spec.Priority, e.submitted
	}
	c := q.valid(e)
	if c == nil {
		priority, _ = q.aging.Turn(spec.Priority, math.MaxInt64)
		return priority, 0
	}
	return q.aging.Turn(spec.Priority, q.since(c))
}

// trial is a capsule of a parked class that is planned again, to see whether the class fits now, and the turn at which it is.
type trial struct {
	entry
	priority int32
	turn     uint64
}

// trialOf returns an entry as a trial.
func (q *queue) trialOf(e entry, spec *Spec) trial {
	priority, turn := q.turnOf(e, spec)
	return trial{e, priority, turn}
}

// triesFirst reports whether the first trial comes before all work that is ready. A trial comes after ready work of its
// priority; where work ages, its turn within the band decides. It requires that there is a trial and ready work.
func (q *queue) triesFirst() bool {
	t, ready := &q.trials[0], &q.ready[0]
	return t.priority > ready.priority || q.aging != nil && t.priority == ready.priority && t.turn < ready.submitted
}

// takeTrial moves the first trial into the batch, or drops it if its capsule does not wait any more.
func (q *queue) takeTrial() {
	e := q.trials[0].entry
	q.trials = q.trials[1:]
	if c := q.valid(e); c != nil {
		q.batch = append(q.batch, e)
		q.out = append(q.out, c)
	}
}

// roomEnd is when the owner of a view ends a hold or a protection, and how.
type roomEnd struct {
	at time.Time
	do Commitment
}

// Before orders ends, soonest first.
func (a roomEnd) Before(b roomEnd) bool { return a.at.Before(b.at) }

// lives reports whether there still is what is to be ended.
func (s *State) lives(end roomEnd) bool {
	switch do := end.do.(type) {
	case Release:
		h, ok := s.Hold(do.Hold)
		return ok && h.Ends.Equal(end.at)
	case Protect:
		p, _ := s.protected.Get(protection{capsule: do.Capsule})
		return p.since == do.Since
	}
	return false
}

// foresee notes when the owner of the view ends what a change begins. The time of a protection is counted from now.
func (v *View) foresee(c *Change) {
	switch do := c.Do.(type) {
	case Hold:
		v.ends.Push(roomEnd{do.Ends, Release{Hold: do.ID}})
	case Protect:
		if do.For > 0 {
			v.ends.Push(roomEnd{v.now.Add(do.For), Protect{Capsule: do.Capsule, Since: c.Revision}})
		}
	}
}

// findEnds notes when all holds and protections end that live. Those protections whose time is counted already keep their end.
func (v *View) findEnds(from *source) {
	known := map[CapsuleID]roomEnd{}
	for _, end := range slices.Concat(v.ends, v.ending) {
		if do, ok := end.do.(Protect); ok && v.state.lives(end) {
			known[do.Capsule] = end
		}
	}
	if v.ends, v.ending = v.ends[:0], v.ending[:0]; !from.holds {
		return
	}
	for h := range v.state.Holds() {
		v.ends.Push(roomEnd{h.Ends, Release{Hold: h.ID}})
	}
	for c, lasts := range v.state.Protections() {
		end := known[c.ID]
		if end.do == nil {
			end = roomEnd{v.now.Add(lasts), Protect{Capsule: c.ID, Since: c.PlacedAt}}
		}
		v.ends.Push(end)
	}
}

// ended returns what ends the holds and protections whose time has passed, and forgets those that are gone. It returns an end again
// in every pass until it is committed, because a proposal may fail.
func (v *View) ended(now time.Time) (out []Commitment) {
	for _, end := range v.ending {
		v.ends.Push(end)
	}
	v.ending = v.ending[:0]
	for len(v.ends) > 0 && !now.Before(v.ends[0].at) {
		if end := v.ends.Pop(); v.state.lives(end) {
			out = append(out, end.do)
			v.ending = append(v.ending, end)
		}
	}
	return out
}

// scheduleExpiry schedules a check of the node for the time when its heartbeat becomes too old.
func (v *View) scheduleExpiry(slot uint32, bound time.Duration) {
	if r := &v.reports[slot]; bound > 0 && !r.Stale && (!r.scheduled || r.At.Before(r.due)) {
		r.scheduled, r.due = true, r.At
		v.fresh.Push(age{r.At, slot})
	}
}

// expire checks the nodes whose known heartbeat is too old. It schedules those with a newer heartbeat again, and marks
// the others stale and changed.
func (v *View) expire(telemetry Telemetry, bound time.Duration, now time.Time) {
	for bound > 0 && len(v.fresh) > 0 && !now.Before(v.fresh[0].at.Add(bound)) {
		beat := v.fresh.Pop()
		slot, r := beat.slot, &v.reports[beat.slot]
		if !r.scheduled || !r.due.Equal(beat.at) {
			continue
		}
		r.scheduled = false
		if n := v.state.NodeByIndex(int(slot)); n == nil || r.Stale || r.Node != n.Node.ID {
			continue
		}
		if latest, ok := telemetry.Latest(r.Node); ok && latest.At.After(r.At) {
			r.At = latest.At
		}
		if r.Stale = !now.Before(r.At.Add(bound)); r.Stale {
			v.changed.add(slot)
		}
		v.scheduleExpiry(slot, bound)
	}
}

// age is when a node's heartbeat was.
type age struct {
	at   time.Time
	slot uint32
}

// Before orders ages, oldest first.
func (a age) Before(b age) bool { return a.at.Before(b.at) }

type (
	ageHeap = heap.Heap[age]
	endHeap = heap.Heap[roomEnd]
)

// slots returns the slots of all entries, valid or not, each once.
func (q *queue) slots() (slots []uint32) {
	add := func(entries ...entry) {
		for _, e := range entries {
			slots = append(slots, e.slot)
		}
	}
	for _, k := range q.classes {
		add(k.fifo[k.head:]...)
		add(k.back...)
		for _, e := range k.nominees {
			add(e.entry)
		}
	}
	for _, t := range q.trials {
		add(t.entry)
	}
	add(q.batch...)
	add(q.held...)
	add(q.heldNominees...)
	slices.Sort(slots)
	return slices.Compact(slots)
}
