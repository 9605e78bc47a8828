package claim

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// Labels say whose a pool is. Metrics carry them: one pool has one set of labels, so there are never more
// series than pools.
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

// Status is what a pool shows to those who watch it.
type Status struct {
	Labels Labels
	// PendingRequests is the number of requests that have not been answered, as in [Snapshot].QueueLen.
	PendingRequests int
	// Dispatch has the times that callers have waited for their slots, from Request.EnqueuedAt on.
	Dispatch Latency
}

// Latency counts durations, those of one status at one instant.
type Latency struct {
	// Buckets are sorted from the shortest to the longest; the last one has no bound.
	Buckets [17]Bucket
	// Sum is the sum of all durations, Max the longest one.
	Sum, Max time.Duration
}

// Bucket counts the durations of at most AtMost that are longer than the bucket before it allows.
type Bucket struct {
	AtMost time.Duration
	Count  uint64
}

// Count returns how many durations have been counted.
func (l *Latency) Count() (n uint64) {
	for _, b := range l.Buckets {
		n += b.Count
	}
	return n
}

// latencyBounds reach from what a ledger in memory takes to what a new slot takes to start.
var latencyBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, math.MaxInt64,
}

// newLatency returns one that has counted nothing.
func newLatency() (l Latency) {
	for i, bound := range latencyBounds {
		l.Buckets[i].AtMost = bound
	}
	return l
}

// add counts a duration. One that is negative, because its begin was set to the future, counts as zero.
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

// Status returns the pool's status now. It may be called from anywhere, at any time.
func (p *Pool) Status() Status {
	p.init()
	labels := p.Labels
	labels.Pool = p.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{labels, int(p.gauges.queueLen.Load()), p.latency}
}

// mirror tells OnStatus of each new number of pending requests until every request has been answered, and then of
// the last.
func (p *Pool) mirror() {
	told := -1
	for open := true; open; {
		told = p.tellStatus(p.looking.ctx, p.Status(), told)
		open = p.restUntil(time.After(p.set.statusEvery), nil)
		if told >= 0 && open { // not told: call again at once
			open = p.restUntil(nil, p.changed)
		}
	}
	last := p.Status()
	last.PendingRequests = 0 // a request that has come too late is just being turned away
	p.tellStatus(context.Background(), last, told)
}

// restUntil waits for one of two events. It reports false when every request has been answered.
func (p *Pool) restUntil(rested <-chan time.Time, changed <-chan struct{}) bool {
	select {
	case <-rested:
	case <-changed:
	case <-p.answered:
		return false
	}
	return true
}

// tellStatus calls the hook if it was told of another number of pending requests before. It returns what the hook knows
// now; -1: a call has failed.
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
