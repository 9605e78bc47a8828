package claim

import "time"

// update makes a change under the lock, and does what the change calls for.
func (p *Pool) update(change func(now time.Time)) {
	p.mu.Lock()
	defer p.unlock()
	now := time.Now()
	change(now)
	p.step(now)
}

// step follows every change, under the lock. A step depends on the pool's state and on the clock alone, not on what
// has changed, so no wake-up can be lost. The clock of Run makes the next one, if no change comes before.
func (p *Pool) step(now time.Time) {
	if !p.ran || p.shut {
		return
	}
	p.expireDue(now)
	p.pair(now)
	p.seekSlots(now)
	p.schedule(now)
	p.gauges.idle.Store(int64(p.ready.len()))
	p.gauges.reserved.Store(int64(len(p.reservations.held)))
}

// expireDue ends what is due: reservations, and the waits of NotifyIdle and of polls, which call for a listing.
func (p *Pool) expireDue(now time.Time) {
	if p.reservations.expire(now) {
		p.listing.wanted = true // a slot that was shown while it was reserved may be idle
	}
	p.listDue(now)
	if p.poll.due(now) {
		p.listing.wanted = true
	}
}

// pair gives each request the next slot that will do, in order, until there is none, or Inflight claims are under way.
func (p *Pool) pair(now time.Time) {
	for len(p.attempts) < p.set.inflight {
		l := p.lines.next(&p.ready)
		if l == nil {
			return
		}
		r := l.first()
		if cause := r.over(now); cause != nil {
			p.expire(r, cause)
			continue
		}
		p.lines.remove(r)
		p.launch(r, p.ready.pop(l))
	}
}

// seekSlots lists the source and polls it while requests wait and no idle slot will do, and tells ScaleUp once the
// source has confirmed that.
func (p *Pool) seekSlots(now time.Time) {
	unserved := p.lines.unserved(&p.ready)
	l := &p.listing
	p.poll.need(unserved > 0 || l.failed, now)
	l.confirmed = unserved > 0 && (l.confirmed || l.answered || l.following)
	l.answered = false
	l.unserved = min(l.unserved, unserved)
	if unserved > l.unserved && !l.following {
		l.wanted = true
	}
	if l.wanted && !l.running && l.behind < mostBehind {
		l.unserved = unserved
		p.list()
	}
	if p.lines.waiting == 0 {
		p.shortage = nil
	} else if l.confirmed {
		p.tellShortage(unserved, now)
	}
}

// schedule sets the clock for the next thing that is due.
func (p *Pool) schedule(now time.Time) {
	var next time.Time
	soonest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	soonest(p.reservations.next())
	soonest(p.poll.at)
	if p.shortage != nil && p.shortage.again.After(now) {
		soonest(p.shortage.again)
	}
	if len(p.listAt) > 0 {
		soonest(p.listAt[0])
	}
	if next.IsZero() {
		p.clock.Stop()
	} else {
		p.clock.Reset(next.Sub(now))
	}
}

// poll says when to list the source though nothing has happened, in case something was missed. Each wait is
// twice as long as the one before, from min to max.
type poll struct {
	min, max time.Duration
	// The wait that is on, or comes next.
	wait time.Duration
	// When it ends; zero: there is no need to list.
	at time.Time
}

// reset goes back to the shortest wait. It never moves a wait that has begun to a later time, so that requests which arrive
// all the time cannot keep the pool from listing.
func (p *poll) reset(now time.Time) {
	p.wait = p.min
	if at := now.Add(p.wait); at.Before(p.at) {
		p.at = at
	}
}

// need begins to wait if there is need to list, and stops if there is none.
func (p *poll) need(needed bool, now time.Time) {
	switch {
	case !needed:
		p.at = time.Time{}
	case p.at.IsZero():
		p.at = now.Add(p.wait)
	}
}

// due reports whether it is time to list. The next wait is longer.
func (p *poll) due(now time.Time) bool {
	if p.at.IsZero() || now.Before(p.at) {
		return false
	}
	p.at = time.Time{}
	p.wait = min(p.max, 2*min(p.wait, p.max/2+1))
	return true
}

// NotifyIdle says that a slot has become idle. The source is listed NotifyDelay later, when a listing that
// lags behind shows the slot. It never waits, and may be called as often as you like: of a storm of calls, each
// is followed by a listing no earlier than it asks for, and later by less than an eighth of the delay.
func (p *Pool) NotifyIdle() {
	p.init()
	p.update(p.listLater)
}

// listLater notes when to list the source. There are at most eight such times in one delay, and none moves back
// because of a later one.
func (p *Pool) listLater(now time.Time) {
	p.listDue(now) // also where the pool does not run yet
	at := now.Add(p.set.notifyDelay)
	if n := len(p.listAt); n > 0 {
		last := p.listAt[n-1]
		if !at.After(last) {
			return
		}
		if apart := last.Add(p.set.notifyDelay / 8); at.Before(apart) {
			at = apart
		}
	}
	p.listAt = append(p.listAt, at)
}

// listDue calls for a listing if such a time has passed.
func (p *Pool) listDue(now time.Time) {
	for len(p.listAt) > 0 && !now.Before(p.listAt[0]) {
		p.listAt = p.listAt[1:]
		p.listing.wanted = true
		p.poll.reset(now)
	}
}
