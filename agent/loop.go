package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// loop is the state of an agent while Run is running. Only the goroutine of Run uses it. Each call of Control and
// Runtime runs in a goroutine of its own, and returns its result as a function that Run's goroutine calls. So no call
// delays another one, and the time at which everything has to stop is not missed.
type loop struct {
	agent *Agent
	ctx   context.Context
	// done receives the results of calls; flying is the number of calls under way.
	done   chan func(now time.Time)
	flying int

	heart heartbeat
	watch watcher
	items map[Instance]*item
	// clock counts the completed calls that may have changed the runtime's list, from 1 on. listed is the value of
	// clock when the call for the newest list began; 0: there is no list yet.
	clock, listed uint64
	// look: make a list at once. looking: a call of List is under way. lookAt is when the next list is due.
	look, looking bool
	lookAt        time.Time
	// saying says that a call of Confirm is under way.
	saying bool
	// failures are the recent failures of capsules on this node.
	failures map[orbit.CapsuleID]failure
}

// watcher is the agent's view of the ledger.
type watcher struct {
	work Work
	// known reports whether work has been received, and waiting whether a call of Watch is under way. at is the
	// earliest time of the next call.
	known, waiting bool
	at             time.Time
	// least is the lowest revision of a Work that is accepted. An older Work comes from a process that is behind.
	least orbit.Revision
}

func newLoop(ctx context.Context, a *Agent) *loop {
	l := &loop{agent: a, ctx: ctx, done: make(chan func(time.Time)), items: map[Instance]*item{}, clock: 1, failures: map[orbit.CapsuleID]failure{}}
	l.heart.holder = a.newHolder()
	if _, guarded := a.Runtime.(Watchdog); !guarded {
		l.heart.fence = time.Now().Add(a.every())
	}
	return l
}

// call runs f in a goroutine of its own, with a time limit, and then calls finish in the goroutine of Run. A panic in f
// becomes its error.
func (l *loop) call(limit time.Duration, f func(context.Context) error, finish func(now time.Time, err error)) {
	l.flying++
	go func() {
		ctx, cancel := context.WithTimeout(l.ctx, limit)
		defer cancel()
		guard.Call(func() error { return f(ctx) }, func(err error) {
			l.done <- func(now time.Time) { finish(now, err) }
		})
	}()
}

// drain waits for the calls that are under way.
func (l *loop) drain() {
	for ; l.flying > 0; l.flying-- {
		<-l.done
	}
}

// reportError reports an error, unless it is nil or the agent's context has ended.
func (l *loop) reportError(what string, err error) {
	if err != nil && l.ctx.Err() == nil {
		l.agent.report(fmt.Errorf("agent: %s: %w", what, err))
	}
}

// step begins all calls that are due. It returns when the next step is due if nothing happens before.
func (l *loop) step(now time.Time) time.Time {
	l.beat(now)
	l.watchNode(now)
	l.list(now)
	next := l.advance(now)
	if !l.heart.calling && (l.heart.term != 0 || l.mayJoin()) {
		next = earlier(next, l.heart.at)
	}
	if !l.heart.fence.IsZero() && !l.heart.fenced {
		next = earlier(next, l.heart.fence)
	}
	if !l.watch.waiting {
		next = earlier(next, l.watch.at)
	}
	if !l.looking {
		next = earlier(next, l.lookAt)
	}
	return next
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// watchNode begins a call of Watch if none is under way, so that a changed Work arrives as soon as possible.
func (l *loop) watchNode(now time.Time) {
	w := &l.watch
	if w.waiting || now.Before(w.at) {
		return
	}
	w.waiting = true
	// least is below the revision of the work that is known after a join of a ledger that was restored (accepted).
	work, after, began := Work{}, min(w.work.Revision, w.least), now
	l.call(l.agent.every(), func(ctx context.Context) (err error) {
		work, err = l.agent.Control.Watch(ctx, l.agent.Node.ID, after)
		return err
	}, func(now time.Time, err error) {
		w.waiting = false
		switch {
		case err == nil && work.Revision >= w.least:
			w.work, w.known, w.least = work, true, work.Revision
			l.setWork(&w.work)
			if work.Revision <= after { // nothing new, as with an empty ledger, whose Watch returns at once
				w.at = now.Add(l.agent.retry())
			}
		case errors.Is(err, context.DeadlineExceeded): // nothing has changed
			w.at = began.Add(l.agent.retry())
		default:
			w.at = now.Add(l.agent.retry())
			l.reportError("watch", err)
		}
	})
}

// list asks the runtime what runs, if that is wanted or due.
func (l *loop) list(now time.Time) {
	if l.looking || !l.look && now.Before(l.lookAt) {
		return
	}
	l.looking, l.look = true, false
	began, list := l.clock, []Status(nil)
	l.call(l.agent.every(), func(ctx context.Context) (err error) {
		list, err = l.agent.Runtime.List(ctx)
		return err
	}, func(now time.Time, err error) {
		l.looking, l.lookAt = false, now.Add(l.agent.poll())
		if err != nil {
			l.reportError("list what runs", err)
			return
		}
		l.setList(now, began, list)
	})
}
