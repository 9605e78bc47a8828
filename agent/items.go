package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// item is what the agent knows of an instance. It exists as long as the ledger or the runtime has the instance.
type item struct {
	instance Instance
	// What the newest Work says: where it is placed, nil if it is not here, or that it leaves.
	task    *Task
	leaving bool
	// What the newest list of the runtime says; 0: it is not listed.
	phase Phase
	// Lists that were begun when fewer calls had changed what is listed say nothing of it.
	asOf uint64

	// A call of the runtime about it is under way; of Start.
	calling, starting bool
	// The agent has stopped it, so that its end is no failure.
	stopped bool
	// What is to be confirmed of it, nil if nothing; that is being sent.
	statement *Statement
	saying    bool
	// Nothing is said of it before, unless a Work has come that is newer than the one of which the last statement was refused.
	retry   time.Time
	refused orbit.Revision
	// The runtime is not called before, because a call has failed.
	again time.Time
}

func (i *item) running() bool { return i.phase.runs() || i.starting }

// failure is how often the start of a capsule has failed on this node, and until when it is not started again.
type failure struct {
	count     int
	at, until time.Time
}

const (
	firstBackoff  = time.Second
	longestWait   = time.Minute
	forgetFailure = 10 * time.Minute
)

// item returns the item of an instance, and makes it if there is none.
func (l *loop) item(of Instance) *item {
	i := l.items[of]
	if i == nil {
		i = &item{instance: of}
		l.items[of] = i
	}
	return i
}

// setWork takes over what a Work says.
func (l *loop) setWork(w *Work) {
	for _, i := range l.items {
		i.task, i.leaving = nil, false
	}
	for n := range w.Placed {
		l.item(w.Placed[n].Instance).task = &w.Placed[n]
	}
	for _, of := range w.Leaving {
		l.item(of).leaving = true
	}
}

// setList takes over what the runtime lists. The list was begun when so many calls had changed what is listed.
func (l *loop) setList(now time.Time, began uint64, list []Status) {
	l.listed = began
	phases := map[Instance]Phase{}
	for _, s := range list {
		phases[s.Instance] = s.Phase
		l.item(s.Instance)
	}
	for of, i := range l.items {
		if i.calling || began < i.asOf {
			continue
		}
		if was := i.phase; phases[of] == Failed && was != Failed && !i.stopped {
			l.failed(now, of.Capsule)
		}
		i.phase = phases[of]
	}
	maps.DeleteFunc(l.failures, func(_ orbit.CapsuleID, f failure) bool { return now.After(f.at.Add(forgetFailure)) })
}

// failed notes that a capsule has failed on this node, so that its next start here waits twice as long.
func (l *loop) failed(now time.Time, id orbit.CapsuleID) {
	f := l.failures[id]
	wait := min(firstBackoff<<min(f.count, 10), longestWait)
	l.failures[id] = failure{f.count + 1, now, now.Add(wait)}
}

// begins notes that a new term has begun. What was to be said under the one before may have been committed then, and not hold any more.
func (l *loop) begins() {
	for _, i := range l.items {
		i.statement, i.refused, i.retry = nil, 0, time.Time{}
	}
}

// advance takes the next step for each item, and returns when there is another if nothing happens.
func (l *loop) advance(now time.Time) (next time.Time) {
	next = now.Add(longestWait)
	var said []*item
	for _, of := range slices.SortedFunc(maps.Keys(l.items), Instance.compare) {
		i := l.items[of]
		switch {
		case i.calling:
			continue
		case now.Before(i.again):
			next = earlier(next, i.again)
			continue
		case l.heart.fenced && i.phase.runs():
			l.stop(i)
			continue
		case l.listed < i.asOf || l.heart.fenced || !l.watch.known:
			continue
		}
		if wants, at := l.advanceItem(i); !wants {
			continue
		} else if now.Before(at) {
			next = earlier(next, at)
		} else {
			said = append(said, i)
		}
	}
	if len(said) > 0 && l.heart.term != 0 && !l.saying {
		l.confirm(said)
	}
	return next
}

// advanceItem takes the next step for an item that the ledger and the runtime are known of. It reports whether there is a statement to be
// confirmed, and when that may be tried.
func (l *loop) advanceItem(i *item) (wants bool, at time.Time) {
	next, fact := decide(i.task, i.leaving, i.phase)
	switch {
	case next == stop:
		l.stop(i)
	case i.saying:
	case next == forget:
		l.forget(i)
	case next == rest && i.phase == 0:
		delete(l.items, i.instance)
	case next == rest:
		i.statement = nil
	default:
		l.prepare(i, fact)
		if i.refused == 0 || l.watch.work.Revision <= i.refused {
			at = i.retry
		}
		if next == begin && at.Before(l.failures[i.instance.Capsule].until) {
			at = l.failures[i.instance.Capsule].until
		}
		return true, at
	}
	return false, at
}

// prepare makes the statement of a fact, unless there is one. A Begun whose outcome is not known is not replaced while its
// instance may still be started: the ledger may have it by now, and it is this agent's.
func (l *loop) prepare(i *item, fact Fact) {
	s := i.statement
	if s == nil || s.Fact != fact && (s.Fact != Begun || i.task == nil || i.phase != 0) {
		i.statement = &Statement{ID: orbit.NewProposalID(), Instance: i.instance, Fact: fact, Seen: l.watch.work.Revision}
	}
}

// confirm has the statements of items committed.
func (l *loop) confirm(items []*item) {
	a, node, term := l.agent, l.agent.Node.ID, l.heart.term
	said := make([]Statement, len(items))
	for n, i := range items {
		said[n], i.saying = *i.statement, true
	}
	l.saying = true
	var out []orbit.Outcome
	l.call(a.every(), func(ctx context.Context) error {
		out = a.Control.Confirm(ctx, node, term, said)
		return nil
	}, func(now time.Time, err error) {
		l.saying = false
		for n, i := range items {
			outcome := orbit.Outcome{Err: orbit.ErrUnknown}
			if n < len(out) && err == nil {
				outcome = out[n]
			} else if err != nil {
				outcome.Err = err
			}
			i.saying = false
			l.settle(now, i, said[n], outcome)
		}
	})
}

// settle takes note of the outcome of a statement.
func (l *loop) settle(now time.Time, i *item, s Statement, o orbit.Outcome) {
	refused := errors.Is(o.Err, orbit.ErrConflict) || errors.Is(o.Err, orbit.ErrInfeasible)
	current := i.statement != nil && i.statement.ID == s.ID // else the agent has joined anew
	switch {
	case o.Err == nil:
		i.refused, i.retry = 0, time.Time{}
		if current && s.Fact == Begun && i.phase == 0 {
			l.start(i)
		}
	case refused || errors.Is(o.Err, orbit.ErrInvalid):
		i.refused, i.retry = max(1, l.watch.work.Revision), now.Add(l.agent.every())
		if !refused {
			l.tell("confirm", o.Err)
		}
	default: // unknown, or not sent
		i.refused, i.retry = 0, now.Add(l.agent.retry())
		l.tell("confirm", o.Err)
		return
	}
	if current {
		i.statement = nil
	}
}

// start starts an instance whose Begun is committed, unless the node is fenced.
func (l *loop) start(i *item) {
	h := &l.heart
	limit := l.agent.every()
	if !h.fence.IsZero() {
		limit = time.Until(h.fence)
	}
	if h.fenced || limit <= 0 || i.task == nil {
		return
	}
	task := *i.task
	i.starting = true
	l.runtime(i, limit, "start", func(ctx context.Context) error {
		if err := ctx.Err(); err != nil { // the process was suspended
			return fmt.Errorf("too late: %w", err)
		}
		return l.agent.Runtime.Start(ctx, task)
	}, func(now time.Time, err error) {
		i.starting, i.stopped = false, false
		if err == nil {
			i.phase = Running
		} else {
			l.failed(now, i.instance.Capsule)
		}
	})
}

func (l *loop) stop(i *item) {
	i.stopped = true
	l.runtime(i, l.agent.stopping(), "stop", func(ctx context.Context) error { return l.agent.Runtime.Stop(ctx, i.instance) }, func(_ time.Time, err error) {
		if err == nil {
			i.phase = Failed // until the next list
		}
	})
}

func (l *loop) forget(i *item) {
	l.runtime(i, l.agent.stopping(), "forget", func(ctx context.Context) error { return l.agent.Runtime.Forget(ctx, i.instance) }, nil)
}

// runtime makes a call of the runtime about an item. After it the item is looked at when a new list has been made.
func (l *loop) runtime(i *item, limit time.Duration, what string, f func(context.Context) error, then func(time.Time, error)) {
	i.calling = true
	l.call(limit, f, func(now time.Time, err error) {
		i.calling = false
		l.clock++
		i.asOf, l.look = l.clock, true
		if err != nil {
			i.again = now.Add(l.agent.retry())
			l.tell(what+" "+i.instance.String(), err)
		}
		if then != nil {
			then(now, err)
		}
	})
}
