package claim

import (
	"container/list"
	"context"
	"time"
)

// Request asks for a slot. Enqueue copies it, so the caller may change or reuse it as soon as Enqueue has returned.
type Request struct {
	// Ctx ends the request when it ends; nil: it never does. The source sees its values.
	Ctx context.Context //nolint:containedctx // a request carries its own, as http.Request does
	// Deadline is the time at which the request ends; zero: there is none.
	Deadline time.Time
	// Want says which slots are suitable; zero: any slot. While no suitable slot is idle the request waits, and later
	// requests may be served before it. If the request ends without one, its error wraps ErrUnmatched.
	Want Want
	// Apply says what the claim changes in the slot when it succeeds, such as its images; nil: nothing. The slot in the
	// answer has the changed labels.
	Apply *Changes
	// Options are for the source, which defines their type. A [LedgerSource] takes a [Capsule]. Nil: the source's
	// defaults.
	Options any
	// Result is the channel that gets the one answer. It must have room for the answer (make(chan Result, 1)). If it
	// has no room, a goroutine offers the answer for one second and then gives the slot back. Required.
	Result chan<- Result
	// EnqueuedAt is the time from which Error.Waited and Status.Dispatch count; default: the time of Enqueue.
	EnqueuedAt time.Time
}

// Result is the answer to a request: a slot, or why there is none.
type Result struct {
	// Slot is the claimed slot; zero if Err is set.
	Slot Slot
	// Err is nil, or an [*Error] of the kind ErrEnded, ErrShutdown, ErrTimeout or ErrSource.
	Err error
}

// request is a request that a pool has accepted. It waits in a line, or an attempt is claiming a slot for it. It is
// answered exactly once, and counts in QueueLen until then. Request is a copy, because an attempt may still read it
// after the caller has got the answer.
type request struct {
	Request
	pool *Pool
	want filter
	// life ends when Ctx ends or Deadline passes; nil: neither can happen. Its methods may be called under the pool's
	// lock, unlike those of Ctx, which are the importer's code.
	life    context.Context //nolint:containedctx // derived from the request's own
	endLife context.CancelFunc

	// Guarded by the pool's lock.

	// seq is the order of arrival, by which a request returns to its place after a conflict.
	seq uint64
	// place is the request's element in its line; nil: the request does not wait.
	place    *list.Element
	answered bool
	// matched says that a claim of a slot has begun for the request at least once.
	matched   bool
	conflicts int
	// unwatch undoes watch; nil: nothing to undo.
	unwatch func()
}

// begin makes life. The lock must not be held, because begin calls methods of the importer's context.
func (r *request) begin() {
	switch {
	case !r.Deadline.IsZero():
		r.life, r.endLife = context.WithDeadline(r.Ctx, r.Deadline)
	case r.Ctx.Done() != nil:
		r.life, r.endLife = context.WithCancel(r.Ctx)
	}
}

// watch makes the request be answered as soon as its context ends or its deadline passes, whether it waits or its claim
// is in flight.
func (r *request) watch() {
	if r.life == nil {
		return
	}
	stop := context.AfterFunc(r.life, func() {
		cause := context.Cause(r.life)
		r.pool.update(func(time.Time) { r.pool.expire(r, cause) })
	})
	r.pool.mu.Lock()
	defer r.pool.unlock()
	r.unwatch = func() { stop(); r.endLife() }
	if r.answered {
		r.pool.ended = append(r.pool.ended, r.unwatch)
	}
}

// unlock releases the lock, and then undoes watch for the requests that were answered under it. It does so in this
// order because unwatch calls methods of the importer's contexts.
func (p *Pool) unlock() {
	ended := p.ended
	p.ended = nil
	p.mu.Unlock()
	for _, unwatch := range ended {
		unwatch()
	}
}

// over returns the cause that has ended the request by now, nil if it has not ended. The pool calls it before it spends
// a slot on the request, because the function that watch has registered may not have run yet.
func (r *request) over(now time.Time) error {
	if r.life != nil && r.life.Err() != nil {
		return context.Cause(r.life)
	}
	if d := r.Deadline; !d.IsZero() && !now.Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// addPending adds to the number of unanswered requests, and signals the change to mirror.
func (p *Pool) addPending(n int64) {
	p.gauges.queueLen.Add(n)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// answer answers a request unless it has been answered. It does not wait for the caller. The lock must be held.
func (p *Pool) answer(r *request, result Result) {
	if r.answered {
		return
	}
	r.answered = true
	p.addPending(-1)
	if r.unwatch != nil {
		p.ended = append(p.ended, r.unwatch)
	}
	if !offer(r.Result, result, 0) {
		go p.answerLate(r.Result, result)
	}
}

// answerFor is how long an answer is offered on a channel that has no room for it.
const answerFor = time.Second

// answerLate waits until the channel has room for the answer. If it never has, the slot is given back, even if the pool
// has ended.
func (p *Pool) answerLate(to chan<- Result, result Result) {
	if offer(to, result, answerFor) || result.Err != nil {
		return
	}
	if err := p.undo(result.Slot); err != nil {
		p.reportLeak(result.Slot, err)
		return
	}
	p.NotifyIdle()
}

// offer sends the result at once or before patience ends, and reports whether it was sent.
func offer(to chan<- Result, result Result, patience time.Duration) (sent bool) {
	defer func() { _ = recover() }() // the caller may have closed the channel
	select {
	case to <- result:
		return true
	default:
	}
	if patience == 0 {
		return false
	}
	select {
	case to <- result:
		return true
	case <-time.After(patience):
		return false
	}
}

// fail answers a request with an error unless it has been answered. The lock must be held.
func (p *Pool) fail(r *request, kind error, slot Slot, cause error) {
	p.answer(r, Result{Err: &Error{
		Kind: kind, Pool: p.Name, Slot: slot, Waited: time.Since(r.EnqueuedAt), Conflicts: r.conflicts, Cause: cause,
	}})
}

// expire answers a request that has ended with ErrEnded, unless it has been answered. The lock must be held.
func (p *Pool) expire(r *request, cause error) {
	if r.answered {
		return
	}
	p.lines.remove(r)
	if r.want.text != "" && !r.matched {
		cause = &unmatched{r.want.text, cause}
	}
	p.stats.Expired++
	p.fail(r, ErrEnded, Slot{}, cause)
}
