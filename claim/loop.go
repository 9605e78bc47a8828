package claim

import (
	"context"
	"sync/atomic"
	"time"
)

// loop is what the pool's one goroutine owns: nobody else reads or writes it, but for the flag.
//
// Each step is the same, whatever woke it: 1. take the mail, 2. hear what it says, 3. end what is due, 4. pair
// requests with slots, 5. see what is lacking, 6. tell the gauges. Then it sleeps until there is mail, or until
// the next thing is due. What happens in a step depends on the mail and the clock alone, so no wake-up is lost:
// a condition that calls for something is looked at in every step, not when it turns.
type loop struct {
	lines        lines
	ready        ready
	reservations reservations
	listing      look
	poll         poll
	dues         []time.Time
	shortage     shortage
	inMail       mail
	// Claims that have no outcome yet.
	flying map[*flight]struct{}

	// Nothing more is taken on.
	shut atomic.Bool
}

// serve is the loop.
func (p *Pool) serve(ctx context.Context) {
	defer p.close()
	p.flying = map[*flight]struct{}{}
	p.listing.wanted = true
	if p.OnStatus != nil {
		p.group.Go(p.mirror)
	}
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		now := time.Now()
		p.step(now)
		clock.Stop()
		if at := p.next(now); !at.IsZero() {
			clock.Reset(time.Until(at))
		}
		select {
		case <-p.mail.wake:
		case <-clock.C:
		case <-ctx.Done():
			return
		case <-p.stop:
			return
		}
	}
}

// step does all that there is to do now.
func (p *Pool) step(now time.Time) {
	p.hear(now)
	p.end(now)
	p.pair(now)
	p.lack(now)
	p.tell()
}

// hear takes the mail and files it.
func (p *Pool) hear(now time.Time) {
	p.takeMail(now)
	for _, t := range p.inMail.ended {
		p.lines.remove(t)
	}
	for i := range p.inMail.outcomes {
		p.conclude(&p.inMail.outcomes[i], now)
	}
	p.listing.answered = false
	for i := range p.inMail.listings {
		p.admit(&p.inMail.listings[i], now)
	}
	p.dues = append(p.dues, p.inMail.dues...)
	for _, a := range p.inMail.signalled {
		p.shortage.answered(a)
	}
}

// takeMail takes the mail. New requests go to the ends of their lines and start polling over.
func (p *Pool) takeMail(now time.Time) {
	p.mail.take(&p.inMail, func(t *ticket) {
		l := p.lines.of(&t.want)
		l.pushBack(t)
		l.stirred = true
		p.poll.reset(now)
	})
}

// end does what is due: reservations end, and the source is looked at after NotifyIdle, or because of a poll.
func (p *Pool) end(now time.Time) {
	if p.reservations.expire(now) {
		p.listing.wanted = true // a slot that was shown while it was reserved may be idle
	}
	for len(p.dues) > 0 && !now.Before(p.dues[0]) {
		p.dues = p.dues[1:]
		p.listing.wanted = true
		p.poll.reset(now)
	}
	if p.poll.due(now) {
		p.listing.wanted = true
	}
}

// pair gives each request the next slot that will do, in order, until there is none, or too many are in flight.
func (p *Pool) pair(now time.Time) {
	for l := p.lines.next(&p.ready); l != nil; l = p.lines.next(&p.ready) {
		t := l.first()
		if cause := t.over(now); cause != nil || t.settled.Load() {
			l.remove(t)
			t.expire(cause)
			continue
		}
		if len(p.flying) == p.set.inflight {
			return
		}
		p.launch(l)
	}
}

// lack sees what is missing. While requests wait and nothing is ready for them it asks the source, polls, and
// tells of the shortage once it is sure of it.
func (p *Pool) lack(now time.Time) {
	waiting, unserved, stirred := p.lines.waiting(&p.ready)
	short := unserved > 0
	p.poll.need(short || p.listing.failed, now)
	confirmed := p.listing.confirm(short)
	if stirred && !p.listing.following {
		p.listing.wanted = true
	}
	if p.listing.wanted && !p.listing.running && p.listing.behind < mostBehind {
		p.look()
	}
	if waiting == 0 {
		p.shortage.over()
	} else if confirmed {
		p.signal(unserved, now)
	}
}

// tell sets the gauges that the loop keeps.
func (p *Pool) tell() {
	p.idle.Store(int64(p.ready.len()))
	p.reserved.Store(int64(len(p.reservations.held)))
}

// next returns when there is something to do again, unless mail comes; zero: not before.
func (p *Pool) next(now time.Time) (at time.Time) {
	soonest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	soonest(p.reservations.next())
	soonest(p.poll.at)
	if p.shortage.again.After(now) {
		soonest(p.shortage.again)
	}
	if len(p.dues) > 0 {
		soonest(p.dues[0])
	}
	return at
}
