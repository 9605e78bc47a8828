package main

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// sample is what was measured once: so many operations, how long they took together and each of them.
type sample struct {
	n     int
	took  time.Duration
	times []time.Duration
}

// rate is operations a second.
func (s sample) rate() float64 { return float64(s.n) / max(s.took, 1).Seconds() }

// percentile returns how long that many percent of the operations took at most.
func (s sample) percentile(p int) time.Duration {
	if len(s.times) == 0 {
		return 0
	}
	times := slices.Sorted(slices.Values(s.times))
	return times[(len(times)-1)*p/100]
}

// measure does an operation n times, so many at a time.
func measure(n, inFlight int, do func(i int) error) (s sample, err error) {
	var mu sync.Mutex // guards next, s and err
	var next int
	var all sync.WaitGroup
	began := time.Now()
	for range inFlight {
		all.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				start := time.Now()
				failed := do(i)
				took := time.Since(start)
				mu.Lock()
				s.times = append(s.times, took)
				err = cmp.Or(err, failed)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	s.n, s.took = n, time.Since(began)
	return s, err
}

// median returns the middle one.
func median[T cmp.Ordered](values []T) T {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
