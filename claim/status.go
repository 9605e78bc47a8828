package claim

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// Labels say whose a pool is. Metrics carry them: one pool has one set of labels, so there are never more
// series than pools.
type Labels struct {
	// Where the pool is.
	Namespace string
	// The pool's name; filled in by [Pool.Status].
	Pool string
	// Who owns the pool.
	Team, User string
	// The environment that the pool belongs to; empty: none.
	Env string
}

// Status is what a pool shows to those who watch it.
type Status struct {
	Labels Labels
	// Requests that have not been answered, as in [Snapshot].QueueLen.
	PendingRequests int
	// How long callers have waited for the slots that were handed to them, from Request.EnqueuedAt on.
	Dispatch Latency
}

// Latency counts durations, those of one status at one instant.
type Latency struct {
	// From the shortest to the longest; the last one has no bound.
	Buckets [17]Bucket
	// The sum of all durations and the longest one.
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

// stopwatch counts durations from several goroutines. The zero value has counted none.
type stopwatch struct {
	mu       sync.Mutex
	counts   [len(latencyBounds)]uint64
	sum, max time.Duration
}

// add counts a duration. One that is negative, because its begin was set to the future, counts as zero.
func (w *stopwatch) add(d time.Duration) {
	d = max(d, 0)
	at := 0
	for d > latencyBounds[at] {
		at++
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[at]++
	w.sum += min(d, math.MaxInt64-w.sum)
	w.max = max(w.max, d)
}

func (w *stopwatch) read() Latency {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := Latency{Sum: w.sum, Max: w.max}
	for i, n := range w.counts {
		l.Buckets[i] = Bucket{latencyBounds[i], n}
	}
	return l
}

// Status returns the pool's status now. It may be called from anywhere, at any time.
func (p *Pool) Status() Status {
	labels := p.Labels
	labels.Pool = p.Name
	return Status{labels, int(p.queueLen.Load()), p.latency.read()}
}

// mirror tells OnStatus of each new number of pending requests until everybody has been answered, and then of
// the last.
func (p *Pool) mirror() {
	const unknown = -1
	for told, last := unknown, false; ; {
		s := p.Status()
		if last {
			s.PendingRequests = 0 // a request that has come too late is just being turned away
		}
		if s.PendingRequests != told {
			told = s.PendingRequests
			if err := p.tellStatus(s, last); err != nil {
				told = unknown
				p.report(&Error{Kind: ErrHook, Pool: p.Name, Cause: fmt.Errorf("status: %w", err)})
			}
		}
		if last {
			return
		}
		last = !p.restUntilAnswered(time.After(p.set.statusEvery))
		if told != unknown && !last {
			last = !p.restUntilAnswered(nil)
		}
	}
}

// restUntilAnswered waits for the end of a rest, or where there is none for a change of the pending requests.
// It reports false when everybody has been answered.
func (p *Pool) restUntilAnswered(end <-chan time.Time) bool {
	changed := p.changed
	if end != nil {
		changed = nil
	}
	select {
	case <-end:
	case <-changed:
	case <-p.answered:
		return false
	}
	return true
}

// tellStatus calls the hook. The last call is made when the pool has ended, so it is not cut off by that.
func (p *Pool) tellStatus(s Status, last bool) error {
	life := p.looking.ctx
	if last {
		life = context.Background()
	}
	return guard.Run(func() error {
		ctx, cancel := context.WithTimeout(life, p.set.timeout)
		defer cancel()
		return p.OnStatus(ctx, s)
	})
}

// signalChange tells mirror that the number of pending requests has changed.
func (p *Pool) signalChange() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}
