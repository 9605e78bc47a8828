package claim

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// attempt is a claim on its way: one request, one slot, one goroutine.
//
// It runs under a context of the pool's, not of the request: a claim that is cut off half way has an unknown
// outcome, which is worse than one that is not wanted any more. When the request ends meanwhile, it is answered
// at once, and a claim that is committed after all is undone. So a slot is the caller's or idle again, never both.
type attempt struct {
	request *request
	slot    Slot
	hold    *reservation
}

// outcome is what the source has said of an attempt.
type outcome struct {
	kind    outcomeKind
	slot    Slot
	version uint64
	err     error
}

type outcomeKind uint8

const (
	// The source has crashed, or the pool has ended before the source has said.
	unknown outcomeKind = iota
	claimed
	// Another claim was first.
	conflicted
	// The slot is as it was.
	refused
	// The request's context had ended when its turn came, and the source was not asked.
	unspent
	// The slot was claimed for a request that had ended, and has been given back; or could not be given back.
	undone
	leaked
)

// How long to wait before an attempt with an unknown outcome is made again: at first, and at most. How often a
// slot is given back, or an outcome asked for when the pool has ended, before it is reported as a leak.
const (
	retryFirst = 10 * time.Millisecond
	retryMost  = time.Second
	lastTries  = 10
)

// launch claims a slot for a request, in a goroutine of its own.
func (p *Pool) launch(r *request, slot Slot) {
	a := &attempt{request: r, slot: slot, hold: p.reservations.reserve(slot.key())}
	r.matched = true
	p.attempts[a] = struct{}{}
	p.gauges.inflight.Add(1)
	p.claims.Go(func() { p.run(a) })
}

// run makes an attempt. When it takes longer than Timeout its request is answered, and the attempt goes on.
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

func (p *Pool) timeOut(a *attempt) {
	if !a.request.answered {
		p.stats.Expired++
		p.fail(a.request, ErrTimeout, a.slot, context.DeadlineExceeded)
	}
}

// claim asks the source. While the outcome is unknown it makes the same attempt again, which has one effect,
// until it knows. When the grace of Shutdown is over calls are cut off, and then it asks a few times more. Errors are
// compared here, under the guard, because their methods are the source's code too.
func (p *Pool) claim(a *attempt) (o outcome) {
	if ctx := a.request.Ctx; ctx.Err() != nil { // watch is on its way to say so
		cause := context.Cause(ctx)
		p.update(func(time.Time) { p.expire(a.request, cause) })
		return outcome{kind: unspent}
	}
	ask := Attempt{ID: orbit.NewProposalID(), Slot: a.slot, Request: &a.request.Request}
	left := lastTries
	for wait, again := retryFirst, false; ; wait, again = min(2*wait, retryMost), true {
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

// ask asks the source once.
func (p *Pool) ask(life context.Context, a Attempt) (Slot, uint64, error) {
	ctx, cancel := context.WithTimeout(life, p.set.timeout)
	defer cancel()
	return p.Source.Claim(valued{ctx, a.Request.Ctx}, a)
}

// unclear reports whether a claim may or may not have been committed. One that could not be sent again leaves
// the first time it was sent in the dark.
func unclear(err error, again bool) bool {
	return errors.Is(err, orbit.ErrUnknown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		again && errors.Is(err, orbit.ErrUnavailable)
}

// land ends an attempt. A slot that was claimed for a request that has ended meanwhile is given back first.
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

// conclude does what the outcome calls for. It reports false, and does nothing, if the slot was claimed and the
// request has been answered already.
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

// releaseSlot decides when the slot of an attempt can be ready again.
func (p *Pool) releaseSlot(a *attempt, o *outcome, now time.Time) {
	switch o.kind {
	case refused, unspent:
		p.reservations.release(a.hold)
		p.listing.wanted = true
	case undone:
		p.reservations.release(a.hold)
		p.listLater(now)
	default:
		// A slot that has met a conflict was not idle at that version, so a listing of that very version that shows
		// it contradicts the claim.
		idleFrom := o.version
		if o.kind == conflicted && idleFrom != 0 {
			idleFrom++
		}
		if p.reservations.finish(a.hold, idleFrom, now) {
			p.listing.wanted = true
		}
	}
}

// retry puts a request that has met a conflict back into its place.
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

// undo gives a slot back that no request wants; also when the pool has ended.
func (p *Pool) undo(slot Slot) (err error) {
	for tries, wait := 1, retryFirst; ; tries, wait = tries+1, min(2*wait, retryMost) {
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

// report tells the importer what has no caller to be told. The lock must not be held.
func (p *Pool) report(err error) {
	if p.OnError != nil {
		guard.Call(func() error { p.OnError(err); return nil }, func(error) {})
	}
}

// pause waits, and reports whether the context did not end meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
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
