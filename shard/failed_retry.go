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

// wait is a unit that nobody can be given to now.
type wait struct {
	unit unit
	// When it is to be tried again, and how often it was; zero: only a change will help.
	due   time.Time
	tries int
	// It is its time.
	ready bool
	// What has been reported of it.
	said string
	// Position in the heap; -1: not there.
	at int
}

// retries are the units that wait, by when they are to be tried again.
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

// of returns the record of a unit, which it makes if there is none.
func (r *retries) of(u unit) *wait {
	w := r.waits[u]
	if w == nil {
		w = &wait{unit: u, at: -1}
		r.waits[u] = w
	}
	return w
}

// takeReady reports whether it is time to try the unit again whatever has been said of it, once.
func (r *retries) takeReady(u unit) bool {
	w := r.waits[u]
	if w == nil || !w.ready {
		return false
	}
	w.ready = false
	return true
}

// delay returns how long to wait after so many tries, without jitter.
func (r *retries) delay(tries int) time.Duration {
	if d := float64(r.Initial) * math.Pow(r.Factor, float64(tries)); d < float64(r.Max) {
		return time.Duration(d)
	}
	return r.Max
}

// putOff sees to it that the unit is tried again.
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

// due returns the units whose time has come, and makes them ready.
func (r *retries) due(now time.Time) (out []unit) {
	for len(r.heap) > 0 && !now.Before(r.heap[0].due) {
		w := heap.Pop(&r.heap).(*wait)
		w.ready = true
		out = append(out, w.unit)
	}
	return out
}

// next returns when the next one is to be tried, zero: none.
func (r *retries) next() time.Time {
	if len(r.heap) == 0 {
		return time.Time{}
	}
	return r.heap[0].due
}

// forget drops what is known of a unit that does not wait any more.
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

// waitHeap has the unit first that is to be tried first.
type waitHeap []*wait

func (h waitHeap) Len() int { return len(h) }
func (h waitHeap) Less(i, j int) bool {
	return h[i].due.Before(h[j].due) || h[i].due.Equal(h[j].due) && h[i].unit.id < h[j].unit.id
}
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push is for container/heap.
func (h *waitHeap) Push(x any) {
	w := x.(*wait)
	w.at = len(*h)
	*h = append(*h, w)
}

// Pop is for container/heap.
func (h *waitHeap) Pop() any {
	s := *h
	w := s[len(s)-1]
	s[len(s)-1] = nil
	*h, w.at = s[:len(s)-1], -1
	return w
}
