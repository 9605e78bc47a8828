package claim

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
	"github.com/orbitsched/orbit/internal/send"
)

// attempt is a claim in flight, for one request and one slot. It runs in a goroutine of its own.
//
// It runs under a context of the pool and not of the request. A claim that is cancelled has an unknown outcome, and it
// costs less to give a claimed slot back than to find out. If the request ends during the claim, it is answered at
// once, and the slot is given back if the claim is committed. So a slot belongs to the caller or is idle again, never
// both.
type attempt struct {
	request *request
	slot    Slot
	hold    *reservation
}

// outcome is the source's answer to an attempt, or the reason why there is none.
type outcome struct {
	kind    outcomeKind
	slot    Slot
	version uint64
	err     error
}

type outcomeKind uint8

const (
	// unknown: the source has panicked, or the pool ended before the source told the outcome.
	unknown outcomeKind = iota
	claimed
	// conflicted: another claim came first.
	conflicted
	// refused: the source returned another error, and the slot is still idle.
	refused
	// unspent: the request's context had ended before the source was called.
	unspent
	// undone: the slot was claimed for a request that had ended, and has been given back.
	undone
	// leaked: the slot was claimed for a request that had ended, and could not be given back.
	leaked
)

// lastTries is how often the pool tries to give a slot back, and how often it repeats an attempt after the pool has
// ended, before it reports a leak.
const lastTries = 10

// launch claims a slot for a request, in a goroutine of its own.
func (p *Pool) launch(r *request, slot Slot) {
	a := &attempt{request: r, slot: slot, hold: p.reservations.reserve(slot.key())}
	r.matched = true
	p.attempts[a] = struct{}{}
	p.gauges.inflight.Add(1)
	p.claims.Go(func() { p.run(a) })
}

// run makes an attempt. If it takes longer than Timeout, the request is answered and the attempt goes on.
func (p *Pool) run(a *attempt) {
	overdue := time.AfterFunc(p.set.timeout, func() {
		p.update(func(time.Time) { p.timeOut(a) })
	})
	var o outcome
	guard.Call(func() error {
		o = p.claim(a)
		return nil
	}, func(crash error) {
		overdue.Stop()
		if crash != nil {
			o = outcome{err: crash}
		}
		p.land(a, o)
	})
}

// timeOut answers the request of an attempt that has taken longer than Timeout.
func (p *Pool) timeOut(a *attempt) {
	if !a.request.answered {
		p.stats.Expired++
		p.fail(a.request, ErrTimeout, a.slot, context.DeadlineExceeded)
	}
}

// claim calls the source. While the outcome is unknown it repeats the same attempt, which has one effect however often
// it is sent. After the grace of Shutdown the calls are cancelled, and claim repeats the attempt lastTries times more.
// It compares the source's errors here, under the guard, because their methods are the source's code too.
func (p *Pool) claim(a *attempt) (o outcome) {
	if ctx := a.request.Ctx; ctx.Err() != nil { // watch may not have noticed yet
		cause := context.Cause(ctx)
		p.update(func(time.Time) { p.expire(a.request, cause) })
		return outcome{kind: unspent}
	}
	ask := Attempt{ID: orbit.NewProposalID(), Slot: a.slot, Request: &a.request.Request}
	left := lastTries
	for wait, again := send.First, false; ; wait, again = min(2*wait, send.Most), true {
		life := p.claiming.ctx
		if life.Err() != nil {
			life = context.Background()
			left--
		}
		o.slot, o.version, o.err = p.ask(life, ask)
		switch {
		case o.err == nil:
			o.kind = claimed
			return o
		case !unclear(o.err, again):
			o.kind = refused
			if errors.Is(o.err, orbit.ErrConflict) {
				o.kind = conflicted
			}
			return o
		}
		p.update(func(time.Time) { p.stats.Unknown++ })
		if left == 0 {
			return o
		}
		time.Sleep(wait)
	}
}

// ask calls the source once.
func (p *Pool) ask(life context.Context, a Attempt) (Slot, uint64, error) {
	ctx, cancel := context.WithTimeout(life, p.set.timeout)
	defer cancel()
	return p.Source.Claim(valued{ctx, a.Request.Ctx}, a)
}

// unclear reports whether it is unknown if a claim was committed. Again says that the claim was repeated: then
// ErrUnavailable tells only that this time nothing was sent, and nothing about the earlier times.
func unclear(err error, again bool) bool {
	return errors.Is(err, orbit.ErrUnknown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		again && errors.Is(err, orbit.ErrUnavailable)
}

// land ends an attempt. If the slot was claimed for a request that has ended meanwhile, it gives the slot back first.
func (p *Pool) land(a *attempt, o outcome) {
	if !p.conclude(a, &o) {
		o.kind = undone
		if o.err = p.undo(o.slot); o.err != nil {
			o.kind = leaked
		}
		p.conclude(a, &o)
	}
	switch o.kind {
	case unknown:
		p.reportLeak(a.slot, o.err)
	case leaked:
		p.reportLeak(o.slot, o.err)
	}
}

// conclude applies an outcome to the pool and answers the request. It reports false and does nothing if the slot was
// claimed but the request has been answered already: then the slot has to be given back.
func (p *Pool) conclude(a *attempt, o *outcome) bool {
	p.mu.Lock()
	defer p.unlock()
	if o.kind == claimed && a.request.answered {
		return false
	}
	now := time.Now()
	delete(p.attempts, a)
	p.gauges.inflight.Add(-1)
	p.releaseSlot(a, o, now)
	switch r := a.request; o.kind {
	case claimed:
		p.stats.Claimed++
		p.gauges.dispatched.Store(now.UnixNano())
		p.latency.add(now.Sub(r.EnqueuedAt))
		p.answer(r, Result{Slot: o.slot})
	case conflicted:
		p.stats.Conflicts++
		p.retry(r, now)
	case unknown, refused:
		p.stats.Failed++
		p.fail(r, ErrSource, a.slot, o.err)
	}
	p.step(now)
	return true
}

// releaseSlot ends the reservation of an attempt's slot, now or later, as the outcome requires.
func (p *Pool) releaseSlot(a *attempt, o *outcome, now time.Time) {
	switch o.kind {
	case refused, unspent:
		p.reservations.release(a.hold)
		p.listing.wanted = true
	case undone:
		p.reservations.release(a.hold)
		p.listLater(now)
	default:
		// The slot of a conflict was not idle at the outcome's version. A listing with the same version may still show
		// the slot as idle, so only a newer listing ends the reservation.
		idleFrom := o.version
		if o.kind == conflicted && idleFrom != 0 {
			idleFrom++
		}
		if p.reservations.finish(a.hold, idleFrom, now) {
			p.listing.wanted = true
		}
	}
}

// retry puts a request back into its place after a conflict.
func (p *Pool) retry(r *request, now time.Time) {
	r.conflicts++
	switch {
	case r.answered:
	case p.shut:
		p.fail(r, ErrShutdown, Slot{}, nil)
	default:
		p.lines.add(r)
	}
	p.poll.reset(now)
}

// undo gives back a slot whose request has ended. It does so even after the pool has ended.
func (p *Pool) undo(slot Slot) (err error) {
	for tries, wait := 1, send.First; ; tries, wait = tries+1, min(2*wait, send.Most) {
		err = guard.Run(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), p.set.timeout)
			defer cancel()
			return p.Source.Return(ctx, slot)
		})
		if err == nil {
			p.update(func(time.Time) { p.stats.Undone++ })
			return nil
		}
		if tries == lastTries {
			return err
		}
		time.Sleep(wait)
	}
}

// reportLeak reports a slot that may be lost.
func (p *Pool) reportLeak(slot Slot, cause error) {
	p.report(&Error{Kind: ErrLeak, Pool: p.Name, Slot: slot, Cause: cause})
}

// report calls OnError with an error that no caller gets, or writes it to the log. The lock must not be held.
func (p *Pool) report(err error) {
	if p.OnError == nil {
		p.log.Error(context.Background(), "orbit: error of a pool of slots", err)
		return
	}
	guard.Call(func() error { p.OnError(err); return nil }, func(error) {})
}

// valued is the context of a claim. It ends with the pool's context, and also has the values of the request's context.
type valued struct {
	context.Context
	values context.Context //nolint:containedctx // one context made of two
}

// Value looks in the pool's context first, because package context looks there for its own keys when it cancels.
func (v valued) Value(k any) any {
	if own := v.Context.Value(k); own != nil {
		return own
	}
	return v.values.Value(k)
}
