package claim

import (
	"sync/atomic"
	"time"
)

// Snapshot is a pool's counters at a point in time. Each is exact when it is read; they are not read at one
// instant.
type Snapshot struct {
	// Idle slots that the pool could hand out now: listed, and not reserved.
	IdleReady int
	// Requests that have not been answered, wherever they are: just handed in, waiting, or in flight. It does
	// not waver while a request moves from one place to the other.
	QueueLen int
	// Slots that are in flight, or were so recently that a listing may still show them as idle.
	ReservedCount int
	// Claims that the source has not answered; those that are undone included.
	InflightCAS int
	// When a slot was last handed to a caller; zero: never.
	LastDispatchAt time.Time
}

// Stats is what a pool has done since it was made.
type Stats struct {
	// Slots handed to callers.
	Claimed uint64
	// Claims that lost: each is one round trip in vain.
	Conflicts uint64
	// Claims answered with any other error.
	Failed uint64
	// Times that an attempt was made again because its outcome was unknown.
	Unknown uint64
	// Requests that ended while they waited or were in flight.
	Expired uint64
	// Slots given back, because the claim was committed when its request had ended.
	Undone uint64
	// Listings asked for, and calls of the scale-up hook.
	Listings, ScaleUps uint64
}

// gauges are what Snapshot reads without the lock, under which they are written.
type gauges struct {
	queueLen, idle, reserved, inflight, dispatched atomic.Int64
}

// Snapshot returns the counters now. It costs five atomic loads, allocates nothing, takes no lock, and may
// be called from anywhere, at any time.
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

// Stats returns what the pool has done so far. Like Snapshot it may be called from anywhere.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}
