package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// loop is the state of an agent at work. One goroutine has it. Each call of Control and Runtime is made in a goroutine of its
// own, which hands back what the call has led to as a function that the loop's goroutine calls. So no call delays another, and the
// moment at which everything has to stop is not missed.
type loop struct {
	agent *Agent
	ctx   context.Context
	// What calls have led to, and how many are under way.
	done   chan func(now time.Time)
	flying int

	heart heartbeat
	watch watcher
	items map[Instance]*item
	// Counts the calls that have changed what the runtime lists, and how many had when the newest list was begun.
	clock, listed uint64
	// A list is wanted, or being made; when the next one is due at the latest.
	look, looking bool
	lookAt        time.Time
	// Statements are being confirmed.
	saying bool
	// How often the start of a capsule has failed lately.
	failures map[orbit.CapsuleID]failure
}

// watcher is what is known of the ledger.
type watcher struct {
	work Work
	// There is a Work; one is being waited for; when to ask again.
	known, waiting bool
	at             time.Time
	// Older Works are out of date: they come from a process that is behind.
	least orbit.Revision
}

func newLoop(ctx context.Context, a *Agent) *loop {
	l := &loop{agent: a, ctx: ctx, done: make(chan func(time.Time)), items: map[Instance]*item{}, clock: 1, failures: map[orbit.CapsuleID]failure{}}
	if _, guarded := a.Runtime.(Watchdog); !guarded {
		l.heart.fence = time.Now().Add(a.every())
	}
	return l
}

// call makes a call in a goroutine of its own. A panic in it becomes its error.
func (l *loop) call(limit time.Duration, f func(context.Context) error, then func(now time.Time, err error)) {
	l.flying++
	go func() {
		ctx, cancel := context.WithTimeout(l.ctx, limit)
		defer cancel()
		guard.Call(func() error { return f(ctx) }, func(err error) {
			l.done <- func(now time.Time) { then(now, err) }
		})
	}()
}

// drain waits for the calls that are under way.
func (l *loop) drain() {
	for ; l.flying > 0; l.flying-- {
		<-l.done
	}
}

// tell reports an error, unless the agent ends.
func (l *loop) tell(what string, err error) {
	if err != nil && l.ctx.Err() == nil {
		l.agent.tell(fmt.Errorf("agent: %s: %w", what, err))
	}
}

// step begins all calls that are due, and returns when there is more to do if nothing happens.
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

// watchNode waits for what the node has to run, in one call after the other.
func (l *loop) watchNode(now time.Time) {
	w := &l.watch
	if w.waiting || now.Before(w.at) {
		return
	}
	w.waiting = true
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
			if work.Revision <= after { // nothing was committed yet
				w.at = now.Add(l.agent.retry())
			}
		case errors.Is(err, context.DeadlineExceeded): // nothing has changed
			w.at = began.Add(l.agent.retry())
		default:
			w.at = now.Add(l.agent.retry())
			l.tell("watch", err)
		}
	})
}

// list asks the runtime what runs.
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
			l.tell("list what runs", err)
			return
		}
		l.setList(now, began, list)
	})
}
