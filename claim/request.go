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
	// Want says which slots are suitable; zero: any slot. If no idle slot is, the request waits for one, and later requests
	// may be served before it. If it ends before there was one, its error wraps ErrUnmatched.
	Want Want
	// Options are for the source, which defines their type. A [LedgerSource] takes a [Capsule]. Nil: the source's defaults.
	Options any
	// Result is the channel that gets the one answer. It must have room for it (make(chan Result, 1)). If it has none, a
	// goroutine offers the answer for one second and then gives the slot back. Required.
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

// request is one that a pool has taken on. It waits in a line, or an attempt claims a slot for it. It is answered
// exactly once, and counts in QueueLen until then. An attempt reads Request even after that, so it is a copy.
type request struct {
	Request
	pool *Pool
	want filter
	// Ends when Ctx does and when Deadline passes; nil: never. Unlike those of Ctx, which are the importer's code, its
	// methods may be called under the pool's lock.
	life    context.Context //nolint:containedctx // made of the request's own
	endLife context.CancelFunc

	// Guarded by the pool's lock.

	// Order of arrival: a request that meets a conflict returns to its place.
	seq uint64
	// Where it waits; nil: it does not.
	place    *list.Element
	answered bool
	// A slot has been claimed for it, or is being claimed.
	matched   bool
	conflicts int
	// Undoes watch; nil: nothing to undo.
	unwatch func()
}

// begin makes life. The lock is not held: this calls methods of the importer's context.
func (r *request) begin() {
	switch {
	case !r.Deadline.IsZero():
		r.life, r.endLife = context.WithDeadline(r.Ctx, r.Deadline)
	case r.Ctx.Done() != nil:
		r.life, r.endLife = context.WithCancel(r.Ctx)
	}
}

// watch sees to it that the request is answered as soon as its context ends or its deadline passes, wherever it is
// then.
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

// unlock releases the lock, and then undoes watch for the requests that were answered under it: that calls methods of the
// importer's contexts.
func (p *Pool) unlock() {
	ended := p.ended
	p.ended = nil
	p.mu.Unlock()
	for _, unwatch := range ended {
		unwatch()
	}
}

// over reports what has ended the request by now; nil: nothing. It is asked before a slot is spent on the request,
// because watch may be late.
func (r *request) over(now time.Time) error {
	if r.life != nil && r.life.Err() != nil {
		return context.Cause(r.life)
	}
	if d := r.Deadline; !d.IsZero() && !now.Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// addPending counts requests that have not been answered.
func (p *Pool) addPending(n int64) {
	p.gauges.queueLen.Add(n)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// answer answers a request, under the lock, unless it has been answered. It does not wait for the caller.
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

// answerFor is how long an answer is offered to a caller who has left no room for it.
const answerFor = time.Second

// answerLate waits until there is room for the answer. A slot that is not taken is given back, also when the pool has
// ended.
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

// offer sends, at once or before patience ends. A caller may have closed the channel.
func offer(to chan<- Result, result Result, patience time.Duration) (sent bool) {
	defer func() { _ = recover() }()
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

// fail answers a request with an error, under the lock, unless it has been answered.
func (p *Pool) fail(r *request, kind error, slot Slot, cause error) {
	p.answer(r, Result{Err: &Error{
		Kind: kind, Pool: p.Name, Slot: slot, Waited: time.Since(r.EnqueuedAt), Conflicts: r.conflicts, Cause: cause,
	}})
}

// expire answers a request for what has ended it, under the lock, unless it has been answered.
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
