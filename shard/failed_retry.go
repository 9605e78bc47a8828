package shard

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// wait is a unit that can be assigned to no scheduler at present.
type wait struct {
	unit unit
	// due is the time of the next try; zero: none is scheduled. Tries is the number of tries so far.
	due   time.Time
	tries int
	// ready says that due has passed and the unit has not been tried since.
	ready bool
	// said identifies the last report about the unit, so that the same is not reported twice.
	said string
}

// retries are the waiting units, ordered by the time of their next try.
type retries struct {
	// pace is Dispatcher.Retry with its defaults.
	pace  orbit.Backoff
	fault error
	waits map[unit]*wait
	// heap may have void entries, whose unit has been forgotten.
	heap heap.Heap[retry]
}

func newRetries(b orbit.Backoff) retries {
	r := retries{pace: b, waits: map[unit]*wait{}}
	r.pace.Initial = cmp.Or(b.Initial, min(time.Second, cmp.Or(b.Max, time.Second)))
	r.pace.Max = max(cmp.Or(b.Max, 5*time.Minute), r.pace.Initial)
	r.pace.Factor = cmp.Or(b.Factor, 2)
	r.pace.Jitter = max(0, cmp.Or(b.Jitter, 0.2))
	if b.Initial < 0 || b.Max < 0 || !(r.pace.Factor >= 1 && r.pace.Factor <= math.MaxFloat64) || !(r.pace.Jitter <= 1) {
		r.fault = fmt.Errorf("shard: %w: Dispatcher.Retry: Initial and Max must not be negative, Factor at least 1 and Jitter at most 1", orbit.ErrInvalid)
	}
	return r
}

// record returns the record of a unit, and makes one if there is none.
func (r *retries) record(u unit) *wait {
	w := r.waits[u]
	if w == nil {
		w = &wait{unit: u}
		r.waits[u] = w
	}
	return w
}

// takeReady reports whether the unit is to be tried again although all schedulers have failed it. It reports true once
// for each time that the unit becomes due.
func (r *retries) takeReady(u unit) bool {
	w := r.waits[u]
	if w == nil || !w.ready {
		return false
	}
	w.ready = false
	return true
}

// delay returns how long to wait after that many tries, without jitter.
func (r *retries) delay(tries int) time.Duration {
	if d := float64(r.pace.Initial) * math.Pow(r.pace.Factor, float64(tries)); d < float64(r.pace.Max) {
		return time.Duration(d)
	}
	return r.pace.Max
}

// putOff sets the time of the next try.
func (r *retries) putOff(w *wait, now time.Time) {
	if !w.due.IsZero() {
		return
	}
	delay := float64(r.delay(w.tries))
	if r.pace.Jitter > 0 {
		delay -= rand.Float64() * r.pace.Jitter * delay
	}
	w.tries++
	w.due = now.Add(time.Duration(delay))
	r.heap.Push(retry{w.due, w})
}

// due returns the units whose next try is due, and marks them as ready.
func (r *retries) due(now time.Time) (out []unit) {
	for next := r.next(); !next.IsZero() && !now.Before(next); next = r.next() {
		w := r.heap.Pop().wait
		w.due, w.ready = time.Time{}, true
		out = append(out, w.unit)
	}
	return out
}

// next returns the time of the next try; zero: none.
func (r *retries) next() time.Time {
	for len(r.heap) > 0 && r.waits[r.heap[0].wait.unit] != r.heap[0].wait {
		r.heap.Pop() // void
	}
	if len(r.heap) == 0 {
		return time.Time{}
	}
	return r.heap[0].due
}

// forget drops the record of a unit that no longer waits. Its entry in the heap becomes void; void entries are removed
// when they are the majority.
func (r *retries) forget(u unit) {
	delete(r.waits, u)
	if len(r.heap) <= 2*len(r.waits)+64 {
		return
	}
	all := r.heap
	r.heap = nil
	for _, e := range all {
		if r.waits[e.wait.unit] == e.wait {
			r.heap.Push(e)
		}
	}
}

// all returns the units, sorted.
func (r *retries) all() []unit {
	out := make([]unit, 0, len(r.waits))
	for u := range r.waits {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b unit) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.failedMark(), b.failedMark()))
	})
	return out
}

// retry is an entry of the heap: the time of a unit's next try.
type retry struct {
	due  time.Time
	wait *wait
}

// Before orders retries by time, and by id at the same time.
func (r retry) Before(o retry) bool {
	return cmp.Or(r.due.Compare(o.due), cmp.Compare(r.wait.unit.id, o.wait.unit.id)) < 0
}
