package claim

import (
	"sync/atomic"
	"time"
)

// Snapshot has a pool's counters. Each counter is exact when it is read, but they are read one after another.
type Snapshot struct {
	// IdleReady is the number of idle slots that the pool could hand out now: listed, and not reserved.
	IdleReady int
	// QueueLen is the number of requests that have not been answered, whether they wait or are in flight. It does not
	// change while a request goes from one of these states to the other.
	QueueLen int
	// ReservedCount is the number of slots that are in flight, or were so recently that a listing may still show them
	// as idle.
	ReservedCount int
	// InflightCAS is the number of claims that the source has not answered, including those that will be undone.
	InflightCAS int
	// LastDispatchAt is when a slot was last handed to a caller; zero: never.
	LastDispatchAt time.Time
}

// Stats are the counts of a pool since it was made.
type Stats struct {
	// Claimed is the number of slots handed to callers.
	Claimed uint64
	// Conflicts is the number of claims that the source refused because the slot was taken.
	Conflicts uint64
	// Failed is the number of claims that were answered with any other error.
	Failed uint64
	// Unknown is how often an attempt was repeated because its outcome was unknown.
	Unknown uint64
	// Expired is the number of requests that ended while they waited or were in flight.
	Expired uint64
	// Undone is the number of slots that were given back because the claim was committed after its request had ended.
	Undone uint64
	// Listings is the number of listings that were asked for, ScaleUps the number of calls of ScaleUp.
	Listings, ScaleUps uint64
}

// gauges are written under the lock and read by Snapshot without it.
type gauges struct {
	queueLen, idle, reserved, inflight, dispatched atomic.Int64
}

// Snapshot returns the counters. It costs five atomic loads, allocates nothing and takes no lock. It may be called from
// any goroutine, before, during and after Run.
func (p *Pool) Snapshot() Snapshot {
	s := Snapshot{
		IdleReady:     int(p.gauges.idle.Load()),
		QueueLen:      int(p.gauges.queueLen.Load()),
		ReservedCount: int(p.gauges.reserved.Load()),
		InflightCAS:   int(p.gauges.inflight.Load()),
	}
	if at := p.gauges.dispatched.Load(); at != 0 {
		s.LastDispatchAt = time.Unix(0, at)
	}
	return s
}

// Stats returns the counts of what the pool has done. It may be called from any goroutine, before, during and after
// Run.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}
