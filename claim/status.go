package claim

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// Labels identify a pool and its owner in metrics. A pool has one set of labels, so a metric has at most as many series
// as there are pools.
type Labels struct {
	// Namespace is the namespace that the pool belongs to; empty: none.
	Namespace string
	// Pool is the pool's name, which [Pool.Status] fills in.
	Pool string
	// Team and User name the owner of the pool; empty: none.
	Team, User string
	// Env is the environment that the pool belongs to; empty: none.
	Env string
}

// Status is the state of a pool for metrics and autoscalers.
type Status struct {
	// Labels are Pool.Labels, with the pool's name filled in.
	Labels Labels
	// PendingRequests is the number of requests that have not been answered, as in [Snapshot].QueueLen.
	PendingRequests int
	// Dispatch counts how long callers have waited for their slots, from Request.EnqueuedAt on.
	Dispatch Latency
}

// Latency is a histogram of durations. All its fields are read at the same instant.
type Latency struct {
	// Buckets are sorted from the shortest to the longest; the last one has no bound.
	Buckets [17]Bucket
	// Sum is the sum of all durations, Max the longest one.
	Sum, Max time.Duration
}

// Bucket counts the durations between the bound of the bucket before it and its own bound.
type Bucket struct {
	// AtMost is the bucket's bound, inclusive.
	AtMost time.Duration
	// Count is the number of durations in the bucket; it does not include those in shorter buckets.
	Count uint64
}

// Count returns how many durations have been counted.
func (l *Latency) Count() (n uint64) {
	for _, b := range l.Buckets {
		n += b.Count
	}
	return n
}

// latencyBounds range from the latency of a ledger in memory to the time in which a new slot starts.
var latencyBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, math.MaxInt64,
}

// newLatency returns an empty histogram.
func newLatency() (l Latency) {
	for i, bound := range latencyBounds {
		l.Buckets[i].AtMost = bound
	}
	return l
}

// add counts a duration. A negative one, from an EnqueuedAt in the future, counts as zero.
func (l *Latency) add(d time.Duration) {
	d = max(d, 0)
	at := 0
	for d > l.Buckets[at].AtMost {
		at++
	}
	l.Buckets[at].Count++
	l.Sum += min(d, math.MaxInt64-l.Sum)
	l.Max = max(l.Max, d)
}

// Status returns the pool's status. It may be called from any goroutine, before, during and after Run.
func (p *Pool) Status() Status {
	p.init()
	labels := p.Labels
	labels.Pool = p.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{labels, int(p.gauges.queueLen.Load()), p.latency}
}

// mirror calls OnStatus whenever the number of pending requests has changed, until every request has been answered, and
// then a last time.
func (p *Pool) mirror() {
	told := -1
	for open := true; open; {
		told = p.tellStatus(p.looking.ctx, p.Status(), told)
		open = p.restUntil(time.After(p.set.statusEvery), nil)
		if told >= 0 && open { // after a failed call there is nothing to wait for
			open = p.restUntil(nil, p.changed)
		}
	}
	last := p.Status()
	last.PendingRequests = 0 // a request that is being refused at this moment may still be counted
	p.tellStatus(context.Background(), last, told)
}

// restUntil waits for one of two events. It reports false if every request is answered first.
func (p *Pool) restUntil(rested <-chan time.Time, changed <-chan struct{}) bool {
	select {
	case <-rested:
	case <-changed:
	case <-p.answered:
		return false
	}
	return true
}

// tellStatus calls OnStatus unless told, the number of pending requests in the last successful call, is still right. It
// returns the new value of told; -1: the call has failed.
func (p *Pool) tellStatus(life context.Context, s Status, told int) int {
	if s.PendingRequests == told {
		return told
	}
	err := guard.Run(func() error {
		ctx, cancel := context.WithTimeout(life, p.set.timeout)
		defer cancel()
		return p.OnStatus(ctx, s)
	})
	if err != nil {
		p.report(&Error{Kind: ErrHook, Pool: p.Name, Cause: fmt.Errorf("status: %w", err)})
		return -1
	}
	return s.PendingRequests
}
