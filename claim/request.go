package claim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Request asks for a slot. Enqueue takes a copy: when it returns, the request is the caller's again.
type Request struct {
	// When it ends, so does the request. Nil: never. Its values reach the source.
	Ctx context.Context //nolint:containedctx // a request carries its own, as http.Request does
	// When it passes, the request ends; at this very instant already. Zero: never.
	Deadline time.Time
	// Which slots will do. A request that wants what no idle slot has waits for one that has it, and lets those
	// behind it pass. If it ends before there was one, its error wraps ErrUnmatched.
	Want Want
	// What the source is to do with the slot; see there. A [LedgerSource] takes a [Capsule].
	Options any
	// Where the one answer goes. It must have room for it (make(chan Result, 1)). If it has none, the pool
	// does not wait: a goroutine offers the answer for a second, and then gives the slot back.
	Result chan<- Result
	// Set by Enqueue if zero; what Error.Waited counts from.
	EnqueuedAt time.Time
}

// Result is the answer to a request: a slot, or why there is none.
type Result struct {
	Slot Slot
	// Nil, or an [*Error]: ErrEnded, ErrShutdown, ErrTimeout or ErrSource.
	Err error
}

// ticket is a request that a pool has taken on. It is answered exactly once: whoever turns settled has to do
// it. Until then it counts in QueueLen. A claim in flight reads the request even after that, so it is a copy.
type ticket struct {
	pool *Pool
	req  Request
	want filter
	ctx  context.Context //nolint:containedctx // the request's, never nil
	// Order of arrival: a request that meets a conflict returns to its place among those that have, too.
	seq     uint64
	settled atomic.Bool
	// There has been a slot for it.
	matched   atomic.Bool
	conflicts atomic.Int32

	// Links of the list that it is in; guarded as that list is.
	prev, next *ticket
	// Guarded by the mailbox's lock: it is in the mailbox.
	posted bool

	// What ends it; set before hooked turns.
	hooked atomic.Bool
	timer  *time.Timer
	unhook func() bool
}

// watch sees to it that the ticket is answered as soon as its context ends or its deadline passes, wherever it
// is then: in the mailbox of a pool that does not run yet, in the queue, or in flight.
func (t *ticket) watch() {
	if t.ctx.Done() != nil {
		t.unhook = context.AfterFunc(t.ctx, func() { t.expire(context.Cause(t.ctx)) })
	}
	if !t.req.Deadline.IsZero() {
		pass := func() { t.expire(context.DeadlineExceeded) }
		if left := time.Until(t.req.Deadline); left > 0 {
			t.timer = time.AfterFunc(left, pass)
		} else { // no timer: under the race detector one of no time may crash a synctest bubble
			go pass()
		}
	}
	t.hooked.Store(true)
	if t.settled.Load() {
		t.unwatch()
	}
}

// unwatch drops what watch has set up, if that is complete.
func (t *ticket) unwatch() {
	if !t.hooked.Load() {
		return
	}
	if t.unhook != nil {
		t.unhook()
	}
	if t.timer != nil {
		t.timer.Stop()
	}
}

// expire answers the ticket for what ended it, and tells the pool to forget it.
func (t *ticket) expire(cause error) {
	if t.want.text != "" && !t.matched.Load() {
		cause = fmt.Errorf("%w %s: %w", ErrUnmatched, t.want.text, cause)
	}
	if t.fail(ErrEnded, Slot{}, cause) {
		t.pool.expired.Add(1)
		t.pool.mail.end(t)
	}
}

// over reports what has ended the ticket by now; nil: nothing. A dispatch asks before it spends a slot.
func (t *ticket) over(now time.Time) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if d := t.req.Deadline; !d.IsZero() && !now.Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// settle reports whether the caller is the one to answer the ticket. From here on it no longer counts.
func (t *ticket) settle() bool {
	if !t.settled.CompareAndSwap(false, true) {
		return false
	}
	t.pool.queueLen.Add(-1)
	t.pool.signalChange()
	t.unwatch()
	return true
}

// fail answers the ticket with an error, unless it has been answered.
func (t *ticket) fail(kind error, slot Slot, cause error) bool {
	if !t.settle() {
		return false
	}
	t.pool.deliver(t, Result{Err: &Error{
		Kind: kind, Pool: t.pool.Name, Slot: slot,
		Waited: time.Since(t.req.EnqueuedAt), Conflicts: int(t.conflicts.Load()), Cause: cause,
	}})
	return true
}
