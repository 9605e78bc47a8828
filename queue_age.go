package orbit

import (
	"math"
	"time"

	"github.com/orbitsched/orbit/internal/aging"
)

// Aging lets work rise while it waits, so that it does not wait for ever behind work of slightly higher priority. The zero value
// turns it off. Priorities are divided into bands, each of Band priorities from a multiple of Band on: with bands of 10 they are 0
// to 9, 10 to 19, and below zero -10 to -1. Work rises by one priority in each Every, up to the highest of its band. So it is planned
// before all of its band that is submitted Every × (Band - 1) after it or later, and never before work of a higher band.
//
// The wait is counted from [Submit].At, as it is told, or if that is 0 from when the engine has first seen the capsule. A capsule that
// goes back to pending is as old as it was. Placements, nominations and evictions are judged by the spec's priority and by
// [Nomination].Rank: what a navigator nominates ranks higher for its age as far as it says so ([View.Aged]).
type Aging struct {
	// Every is how long a capsule waits for each priority that it rises by; 0: it does not rise.
	Every time.Duration
	// Band is how many priorities make up a band; default 10. Every × Band may be at most 50 years.
	Band int
}

// mostAging is the longest that it may take to rise through a band.
const mostAging = 50 * 365 * 24 * time.Hour

// faults says everything that is wrong with a.
func (a Aging) faults() []string {
	if a.Every < 0 || a.Band < 0 || a.Every > mostAging/time.Duration(max(1, a.Band)) {
		return []string{"Aging: Every and Band must not be negative, nor Every × Band more than 50 years"}
	}
	return nil
}

// book returns what a queue goes by; nil: nothing ages.
func (a Aging) book() *aging.Book {
	if a.Every == 0 {
		return nil
	}
	band := int64(a.Band)
	if band == 0 {
		band = 10
	}
	return &aging.Book{Every: int64(a.Every), Band: band}
}

// Aging returns how work ages in the engine that the view is of; the zero value: it does not.
func (v *View) Aging() Aging {
	b := v.queue.aging
	if b == nil {
		return Aging{}
	}
	return Aging{Every: time.Duration(b.Every), Band: int(b.Band)}
}

// Aged returns the priority to which a capsule has risen while it waits, by [Engine].Aging: at least the one of its spec, and at most the
// highest of its band. Navigators that plan in an order of their own go by it, or else they undo the order in which capsules are
// handed over.
func (v *View) Aged(c *Capsule) int32 {
	if v.queue.aging == nil {
		return c.Spec.Priority
	}
	return v.queue.aging.Aged(c.Spec.Priority, v.queue.since(c), int64(v.queue.now))
}

// since returns since when a capsule waits. It requires that work ages.
func (q *queue) since(c *Capsule) int64 {
	return q.aging.Since(string(c.ID), c.Submitted, int64(c.SubmitTime), int64(q.now))
}

// see notes when a capsule was first seen to wait, if work ages and the capsule does not say it itself.
func (q *queue) see(c *Capsule) {
	if q.aging == nil || c.SubmitTime != 0 {
		return
	}
	q.aging.See(string(c.ID), c.Submitted, int64(q.now), func(id string, order uint64) bool {
		c := q.state.Capsule(CapsuleID(id))
		return c != nil && c.Submitted == order && c.Pending()
	})
}

// age sets when a class is served where work ages. Its nominees are its first in any case, so it goes by the first of them or by its
// eldest other entry, whichever comes first.
func (q *queue) age(t *readyTurn) {
	k := t.class
	t.nominee = nil
	t.priority, t.submitted = q.turnOf(k.first(), k.spec)
	if len(k.nominees) > 0 && k.size() > len(k.nominees) {
		_, turn := q.turnOf(k.eldest(), k.spec)
		t.submitted = min(t.submitted, turn)
	}
}

// turnOf returns what decides when an entry is planned: higher priorities first, and then lower turns. Where work ages the priority is a
// band; a void entry, which is dropped when it is taken, comes first in its own.
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

// trial is a capsule of a parked class that is planned again, and what decides when.
type trial struct {
	entry
	priority int32
	turn     uint64
}

func (q *queue) trialOf(e entry, spec *Spec) trial {
	priority, turn := q.turnOf(e, spec)
	return trial{e, priority, turn}
}

// triesFirst reports whether the first of the trials comes before all that is ready: trials come behind the work of their priority,
// or where work ages by their turn in the band. It requires that there are some of both.
func (q *queue) triesFirst() bool {
	t, ready := &q.trials[0], &q.ready[0]
	return t.priority > ready.priority || q.aging != nil && t.priority == ready.priority && t.turn < ready.submitted
}

// takeTrial puts the first of the trials into the batch.
func (q *queue) takeTrial() {
	e := q.trials[0].entry
	q.trials = q.trials[1:]
	if c := q.valid(e); c != nil {
		q.batch = append(q.batch, e)
		q.out = append(q.out, c)
	}
}
