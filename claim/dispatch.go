package claim

import "time"

// update makes a change under the lock and runs a step.
func (p *Pool) update(change func(now time.Time)) {
	p.mu.Lock()
	defer p.unlock()
	now := time.Now()
	change(now)
	p.step(now)
}

// step runs after every change, under the lock. It depends on the pool's state and the time only, not on what has
// changed, so no wake-up can be lost. If no change comes before, the timer of Run causes the next step.
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

// expireDue ends the reservations whose time is over, and requests the listings that are due because of NotifyIdle, the
// poll or a failure.
func (p *Pool) expireDue(now time.Time) {
	if p.reservations.expire(now) {
		p.listing.wanted = true // a slot that a listing showed while it was reserved may be idle
	}
	p.listDue(now)
	if l := &p.listing; !l.retry.IsZero() && !now.Before(l.retry) {
		l.retry, l.wanted = time.Time{}, true
	}
	if p.poll.due(now) {
		p.listing.wanted = true
	}
}

// pair starts a claim for each request that a ready slot matches, in order of arrival, until Inflight claims are under
// way.
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

// seekSlots lists and polls the source while requests wait that no ready slot matches. ScaleUp is called only after a
// listing has confirmed the shortage.
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

// overdueWait is the time until the next step if something is due that this step should have done. That would be a
// defect; the pool is then late, and does not spin.
const overdueWait = 100 * time.Millisecond

// schedule sets the timer of Run to the earliest time at which a step has something to do.
func (p *Pool) schedule(now time.Time) {
	var next time.Time
	soonest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	soonest(p.reservations.next())
	soonest(p.poll.at)
	soonest(p.listing.retry)
	if p.shortage != nil && p.shortage.again.After(now) {
		soonest(p.shortage.again)
	}
	if len(p.listAt) > 0 {
		soonest(p.listAt[0])
	}
	switch {
	case next.IsZero():
		p.clock.Stop()
	case !next.After(now):
		p.clock.Reset(overdueWait)
	default:
		p.clock.Reset(next.Sub(now))
	}
}

// poll is the schedule of listings that no event has caused. They find slots whose event was missed. Each wait is twice
// as long as the one before, from min to max.
type poll struct {
	min, max time.Duration
	// wait is the length of the current wait, or of the next one.
	wait time.Duration
	// at is when the current wait ends; zero: no poll is needed.
	at time.Time
}

// reset goes back to the shortest wait. It never moves a wait that has begun to a later time, so that requests which
// arrive all the time cannot keep the pool from listing.
func (p *poll) reset(now time.Time) {
	p.wait = p.min
	if at := now.Add(p.wait); at.Before(p.at) {
		p.at = at
	}
}

// need starts a wait if polls are needed and none is running, and stops it if they are not.
func (p *poll) need(needed bool, now time.Time) {
	switch {
	case !needed:
		p.at = time.Time{}
	case p.at.IsZero():
		p.at = now.Add(p.wait)
	}
}

// due reports whether the wait is over. If so it ends the wait, and the next one will be longer.
func (p *poll) due(now time.Time) bool {
	if p.at.IsZero() || now.Before(p.at) {
		return false
	}
	p.at = time.Time{}
	p.wait = min(p.max, 2*min(p.wait, p.max/2+1))
	return true
}

// NotifyIdle tells the pool that a slot has become idle. The pool lists the source NotifyDelay later, when listings
// that lag behind show the slot. NotifyIdle never waits and may be called at any rate: after every call there is a
// listing that begins at least NotifyDelay and less than 9/8 of NotifyDelay later, and many calls share one listing.
func (p *Pool) NotifyIdle() {
	p.init()
	p.update(p.listLater)
}

// listLater schedules a listing after NotifyDelay. At most eight are scheduled within one delay, and a later call never
// postpones a scheduled one.
func (p *Pool) listLater(now time.Time) {
	p.listDue(now) // bounds the list before Run, when no step does it
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

// listDue requests a listing if the time of a scheduled one has passed.
func (p *Pool) listDue(now time.Time) {
	for len(p.listAt) > 0 && !now.Before(p.listAt[0]) {
		p.listAt = p.listAt[1:]
		p.listing.wanted = true
		p.poll.reset(now)
	}
}
