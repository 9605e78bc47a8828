package orbit

import (
	"cmp"
	"math"
	"time"

	"github.com/orbitsched/orbit/internal/aging"
)

// Aging raises the priority by which waiting work is planned, so that work does not wait for ever behind work of
// slightly higher priority. The zero value turns it off. Each run of Band priorities is a band, which begins at a
// multiple of Band: with a Band of 10 the bands are 0 to 9, 10 to 19 and so on, and -10 to -1 below zero. Waiting work
// rises by one priority in each Every, up to the highest priority of its band. So work is planned before all work of
// its band that is submitted Every × (Band - 1) or more after it, and never before work of a higher band.
//
// A capsule waits since [Submit].At or, if that is 0, since the engine first saw it. A capsule that returns to pending
// keeps the time from which it waits. Age changes only the order of planning: the ledger judges placements and
// evictions by the spec's priority, and nominations by [Nomination].Rank. A navigator that wants age to count for a
// nomination puts it into the rank ([View.Aged]).
type Aging struct {
	// Every is how long a capsule waits until it rises by one priority; 0: no capsule rises.
	Every time.Duration
	// Band is how many priorities a band has; default 10. Every × Band may be at most 50 years.
	Band int
}

// faults returns everything that is wrong with a.
func (a Aging) faults() []string {
	if a.Every < 0 || a.Band < 0 || a.Every > mostAging/time.Duration(max(1, cmp.Or(a.Band, defaultBand))) {
		return []string{"Aging: Every and Band must not be negative, and Every × Band must not be more than 50 years"}
	}
	return nil
}

// book returns the rule by which a queue lets work rise; nil: no work rises.
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

// Aged returns the priority to which a capsule has risen while it waits, by [Engine].Aging: at least the priority of
// its spec, and at most the highest of its band. A navigator that sorts capsules by priority must sort by Aged:
// otherwise it loses the order in which the engine hands them over.
func (v *View) Aged(c *Capsule) int32 {
	switch {
	case c == nil || c.Spec == nil:
		return 0
	case v.queue.aging == nil:
		return c.Spec.Priority
	}
	return v.queue.aging.Aged(c.Spec.Priority, v.queue.since(c), int64(v.queue.now))
}

// since returns the time since which a capsule waits. It requires that aging is on.
func (q *queue) since(c *Capsule) int64 {
	return q.aging.Since(string(c.ID), c.Submitted, int64(c.SubmitTime()), int64(q.now))
}

// see records when a waiting capsule was first seen, if aging is on and the capsule has no time of submission.
func (q *queue) see(c *Capsule) {
	if q.aging == nil || c.SubmitTime() != 0 {
		return
	}
	q.aging.See(string(c.ID), c.Submitted, int64(q.now), func(id string, order uint64) bool {
		c := q.state.Capsule(CapsuleID(id))
		return c != nil && c.Submitted == order && c.Pending()
	})
}

// age sets the turn of a class when aging is on. A class always serves members of broken gangs and its nominees first.
// Therefore its turn is that of the first of these, or that of its eldest other entry if this one is earlier.
func (q *queue) age(t *readyTurn) {
	k := t.class
	t.urgent, t.nominee = false, nil
	t.priority, t.submitted = q.turnOf(k.first(), k.spec)
	if n := len(k.nominees) + len(k.urgent); n > 0 && k.size() > n {
		_, turn := q.turnOf(k.eldest(), k.spec)
		t.submitted = min(t.submitted, turn)
	}
}

// turnOf returns the priority and the turn that decide when an entry is planned: higher priorities first, and among
// equals lower turns. With aging, the priority is the number of the band. A void entry comes first in its band, and is
// dropped when it is taken.
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

// trialOf returns an entry as a trial.
func (q *queue) trialOf(e entry, spec *Spec) trial {
	priority, turn := q.turnOf(e, spec)
	return trial{e, priority, turn}
}

// triesFirst reports whether the first trial is planned before all ready work. A trial comes after ready work of its
// priority; with [Aging], the lower turn within the band comes first. It requires that there is a trial and ready work.
func (q *queue) triesFirst() bool {
	t, ready := &q.trials[0], &q.ready[0]
	return t.priority > ready.priority || q.aging != nil && t.priority == ready.priority && t.turn < ready.submitted
}

// takeTrial moves the first trial into the batch, or drops it if its entry is void.
func (q *queue) takeTrial() {
	e := q.trials[0].entry
	q.trials = q.trials[1:]
	if c := q.valid(e); c != nil {
		q.batch = append(q.batch, e)
		q.out = append(q.out, c)
	}
}

// trial is an entry of a parked class that is planned again, to see whether the class fits now, with the priority and
// turn at which it is planned.
type trial struct {
	entry
	priority int32
	turn     uint64
}
