package shard

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// wait is a unit that can be assigned to no scheduler at present.
type wait struct {
	unit unit
	// due is the time of the next try, tries the number of tries; zero due: only a change will help.
	due   time.Time
	tries int
	// ready says that due has passed and the unit has not been tried since.
	ready bool
	// said is what has been reported of the unit last.
	said string
	// at is the position in the heap; -1: not in it.
	at int
}

// retries are the waiting units, ordered by the time of their next try.
type retries struct {
	orbit.Backoff
	fault error
	waits map[unit]*wait
	heap  waitHeap
}

func newRetries(b orbit.Backoff) retries {
	r := retries{Backoff: b, waits: map[unit]*wait{}}
	r.Initial = cmp.Or(b.Initial, min(time.Second, cmp.Or(b.Max, time.Second)))
	r.Max = max(cmp.Or(b.Max, 5*time.Minute), r.Initial)
	r.Factor = cmp.Or(b.Factor, 2)
	r.Jitter = max(0, cmp.Or(b.Jitter, 0.2))
	if b.Initial < 0 || b.Max < 0 || !(r.Factor >= 1 && r.Factor <= math.MaxFloat64) || !(r.Jitter <= 1) {
		r.fault = fmt.Errorf("shard: %w: Dispatcher.Retry: Initial and Max must not be negative, Factor at least 1 and Jitter at most 1", orbit.ErrInvalid)
	}
	return r
}

// record returns the record of a unit, and makes one if there is none.
func (r *retries) record(u unit) *wait {
	w := r.waits[u]
	if w == nil {
		w = &wait{unit: u, at: -1}
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
	if d := float64(r.Initial) * math.Pow(r.Factor, float64(tries)); d < float64(r.Max) {
		return time.Duration(d)
	}
	return r.Max
}

// putOff sets the time of the next try.
func (r *retries) putOff(w *wait, now time.Time) {
	if w.at >= 0 {
		return
	}
	delay := float64(r.delay(w.tries))
	if r.Jitter > 0 {
		delay -= rand.Float64() * r.Jitter * delay
	}
	w.tries++
	w.due = now.Add(time.Duration(delay))
	heap.Push(&r.heap, w)
}

// due returns the units whose next try is due, and marks them as ready.
func (r *retries) due(now time.Time) (out []unit) {
	for len(r.heap) > 0 && !now.Before(r.heap[0].due) {
		w := heap.Pop(&r.heap).(*wait)
		w.ready = true
		out = append(out, w.unit)
	}
	return out
}

// next returns the time of the next try; zero: none.
func (r *retries) next() time.Time {
	if len(r.heap) == 0 {
		return time.Time{}
	}
	return r.heap[0].due
}

// forget drops the record of a unit that no longer waits.
func (r *retries) forget(u unit) {
	if w := r.waits[u]; w != nil {
		delete(r.waits, u)
		if w.at >= 0 {
			heap.Remove(&r.heap, w.at)
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

// waitHeap is a heap of units, the one with the earliest next try first.
type waitHeap []*wait

func (h waitHeap) Len() int { return len(h) }
func (h waitHeap) Less(i, j int) bool {
	return h[i].due.Before(h[j].due) || h[i].due.Equal(h[j].due) && h[i].unit.id < h[j].unit.id
}
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *waitHeap) Push(x any) {
	w := x.(*wait)
	w.at = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *waitHeap) Pop() any {
	s := *h
	w := s[len(s)-1]
	s[len(s)-1] = nil
	*h, w.at = s[:len(s)-1], -1
	return w
}
