package main

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// sample is the result of one measurement.
type sample struct {
	n     int             // how many operations
	took  time.Duration   // all of them together
	times []time.Duration // each of them
}

// rate is operations a second.
func (s sample) rate() float64 { return float64(s.n) / max(s.took, 1).Seconds() }

// percentile returns the time that p percent of the operations did not exceed.
func (s sample) percentile(p int) time.Duration {
	if len(s.times) == 0 {
		return 0
	}
	times := slices.Sorted(slices.Values(s.times))
	return times[(len(times)-1)*p/100]
}

// measure does an operation n times, at most inFlight at a time.
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

// median returns the middle value.
func median[T cmp.Ordered](values []T) T {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
