package claim

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// flight is a claim on its way: one request, one slot, one attempt.
//
// It runs under a context of the pool's, not of the request: a claim that is cut off half way has an unknown
// outcome, which is worse than one that is not wanted any more. When the request ends meanwhile, it is answered
// at once. Who answers decides: if the answer was the slot, the caller has it; if it was anything else, a claim
// that is committed is undone. So a slot is never both, and never neither.
type flight struct {
	ticket *ticket
	slot   Slot
	hold   *reservation
	id     orbit.ProposalID

	// What the source has said.
	claimed Slot
	version uint64
	// The pool has ended, and the source has not said.
	unclear bool
	// Somebody else was first.
	lost bool
}

// outcome tells the loop how a flight has ended.
type outcome struct {
	*flight
	kind ending
}

type ending uint8

const (
	// The caller has the slot; or nobody does, and it may be lost.
	taken ending = iota
	// Somebody else has it.
	conflicted
	// It is as it was.
	refused
	// It was claimed and has been given back.
	undone
)

// How long to wait before an attempt with an unknown outcome is made again: at first, and at most. How often a
// slot is given back, or an outcome asked for when the pool has ended, before it is reported as a leak.
const (
	retryFirst = 10 * time.Millisecond
	retryMost  = time.Second
	lastTries  = 10
)

// launch sends the first request of a line for its next slot, in a goroutine that has no other flight: one that
// rests, or a new one. It requires a request, a slot, and a place in flight.
func (p *Pool) launch(l *line) {
	f := &flight{ticket: l.first(), slot: p.ready.pop(l), id: p.ids.next()}
	l.remove(f.ticket)
	f.ticket.matched.Store(true)
	f.hold = p.reservations.reserve(f.slot.key())
	p.flying[f] = struct{}{}
	p.inflight.Add(1)
	select {
	case p.crews <- f:
	default:
		p.group.Go(func() { p.crew(f) })
	}
}

// mostResting is how many goroutines stay for another claim. A new one has to grow its stack first, which costs
// about as much as a claim of a ledger in memory; where claims take longer it does not matter.
const mostResting = 32

// crew makes one flight after another. It stays for the next unless enough others do, and until the pool ends.
func (p *Pool) crew(f *flight) {
	for {
		p.fly(f)
		if p.resting.Add(1) > mostResting {
			p.resting.Add(-1)
			return
		}
		select {
		case f = <-p.crews:
			p.resting.Add(-1)
		case <-p.stop:
			return
		}
	}
}

// fly claims the slot, and answers the request.
func (p *Pool) fly(f *flight) {
	overdue := time.AfterFunc(p.set.timeout, func() {
		if f.ticket.fail(ErrTimeout, f.slot, context.DeadlineExceeded) {
			p.expired.Add(1)
		}
	})
	guard.Call(func() error { return p.attempt(f) }, func(err error) {
		overdue.Stop()
		p.land(f, err)
	})
}

// attempt claims the slot. While the outcome is unknown it makes the same attempt again, which has one effect:
// until it knows. When the grace of Shutdown is over calls are cut off, and then it asks a few times more.
func (p *Pool) attempt(f *flight) (err error) {
	a := Attempt{ID: f.id, Slot: f.slot, Request: &f.ticket.req}
	left := lastTries
	for wait, again := retryFirst, false; ; wait, again = min(2*wait, retryMost), true {
		life := p.flights.ctx
		if life.Err() != nil {
			life = context.Background()
			left--
		}
		if f.claimed, f.version, err = p.call(life, f, a); !unclear(err, again) {
			f.lost = errors.Is(err, orbit.ErrConflict) // here, for the error's methods are the source's code too
			return err
		}
		p.unknown.Add(1)
		if left == 0 {
			f.unclear = true
			return err
		}
		time.Sleep(wait)
	}
}

// call asks the source once.
func (p *Pool) call(life context.Context, f *flight, a Attempt) (Slot, uint64, error) {
	ctx, cancel := context.WithTimeout(life, p.set.timeout)
	defer cancel()
	return p.Source.Claim(valued{ctx, f.ticket.ctx}, a)
}

// unclear reports whether a claim may or may not have been committed. One that could not be sent again leaves
// the first time it was sent in the dark.
func unclear(err error, again bool) bool {
	return errors.Is(err, orbit.ErrUnknown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		again && errors.Is(err, orbit.ErrUnavailable)
}

// land does what the outcome calls for. The loop is told before the caller: a caller that gives the slot back
// at once must not be faster.
func (p *Pool) land(f *flight, err error) {
	switch {
	case err == nil && f.ticket.settle():
		p.claimed.Add(1)
		now := time.Now()
		p.dispatched.Store(now.UnixNano())
		p.latency.add(now.Sub(f.ticket.req.EnqueuedAt))
		p.landed(f, taken)
		p.deliver(f.ticket, Result{Slot: f.claimed})
	case err == nil:
		if failed := p.undo(f.claimed); failed != nil {
			p.landed(f, taken)
			p.leak(f.claimed, failed)
			return
		}
		p.landed(f, undone)
	case f.unclear, guard.Crashed(err):
		p.landed(f, taken)
		p.giveUp(f, err)
	case f.lost:
		p.conflicts.Add(1)
		p.landed(f, conflicted)
	default:
		p.failed.Add(1)
		p.landed(f, refused)
		f.ticket.fail(ErrSource, f.slot, err)
	}
}

// giveUp ends a flight of which nobody will know how it ended.
func (p *Pool) giveUp(f *flight, err error) {
	p.failed.Add(1)
	f.ticket.fail(ErrSource, f.slot, err)
	p.leak(f.slot, err)
}

// leak reports a slot that may be lost.
func (p *Pool) leak(slot Slot, cause error) {
	p.report(&Error{Kind: ErrLeak, Pool: p.Name, Slot: slot, Cause: cause})
}

// landed tells the loop, which then has room for another flight.
func (p *Pool) landed(f *flight, kind ending) {
	p.inflight.Add(-1)
	p.mail.post(func(m *mail) { m.outcomes = append(m.outcomes, outcome{f, kind}) })
}

// undo gives a slot back that nobody wants; also when the pool has ended.
func (p *Pool) undo(slot Slot) (err error) {
	for tries, wait := 1, retryFirst; ; tries, wait = tries+1, min(2*wait, retryMost) {
		err = guard.Run(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), p.set.timeout)
			defer cancel()
			return p.Source.Return(ctx, slot)
		})
		if err == nil {
			p.undone.Add(1)
			return nil
		}
		if tries == lastTries {
			return err
		}
		time.Sleep(wait)
	}
}

// conclude files the outcome of a flight.
func (p *Pool) conclude(o *outcome, now time.Time) {
	delete(p.flying, o.flight)
	switch o.kind {
	case taken, conflicted:
		if p.reservations.finish(o.hold, o.idleFrom(), now) {
			p.listing.wanted = true
		}
	case refused:
		p.reservations.release(o.hold)
		p.listing.wanted = true
	case undone:
		p.reservations.release(o.hold)
		p.mail.notify(now, p.set.notifyDelay)
	}
	if o.kind == conflicted {
		o.ticket.conflicts.Add(1)
		p.poll.reset(now)
		l := p.lines.of(&o.ticket.want)
		l.stirred = true
		if !o.ticket.settled.Load() {
			l.putBack(o.ticket)
		}
	}
}

// idleFrom returns the version from which on a listing that shows the slot is believed, 0 if it is not known. A
// slot that has met a conflict was not idle then; a listing of that very version that shows it contradicts the
// claim.
func (o *outcome) idleFrom() uint64 {
	if o.kind == conflicted && o.version != 0 {
		return o.version + 1
	}
	return o.version
}

// valued is the context of a claim: it ends when the pool says, and has the request's values.
type valued struct {
	context.Context
	values context.Context //nolint:containedctx // one context made of two
}

// Value looks in the pool's context first, where package context finds its own.
func (v valued) Value(k any) any {
	if own := v.Context.Value(k); own != nil {
		return own
	}
	return v.values.Value(k)
}
