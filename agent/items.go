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

// item is the agent's record of an instance. It exists as long as the ledger or the runtime has the instance.
type item struct {
	instance Instance
	// task and leaving are from the newest Work: the instance's placement, nil if it is not placed here, and whether it
	// is leaving the node.
	task    *Task
	leaving bool
	// phase is from the runtime's newest list; 0: the instance is not listed.
	phase Phase
	// asOf is the value of loop.clock after the last call of the runtime about the instance. A list that was begun at a
	// lower clock may not show the effect of that call, so it is ignored for this item.
	asOf uint64

	// calling says that a call of the runtime about the instance is under way, starting that it is a call of Start.
	calling, starting bool
	// stopped says that the agent has stopped the instance, so its end is not counted as a failure.
	stopped bool
	// statement is to be confirmed; nil: nothing is. saying says that it is being sent.
	statement *Statement
	saying    bool
	// retry is the earliest time of the next statement. If the last statement was refused, refused is the revision of
	// the newest Work at that time, and a newer Work allows the next statement at once. 0: it was not refused.
	retry   time.Time
	refused orbit.Revision
	// again is the earliest time of the next call of the runtime, after a call that has failed.
	again time.Time
}

func (i *item) running() bool { return i.phase.runs() || i.starting }

// failure is the record of a capsule that has failed on this node: how often, when last, and until when the capsule is
// not started here again.
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

// setWork updates the items from a new Work.
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

// setList updates the items from a list of the runtime. Began is the value of loop.clock when the call of List began.
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

// failed notes that a capsule has failed on this node. Each failure doubles the delay before the next start here, from
// 1 s to at most 1 min.
func (l *loop) failed(now time.Time, id orbit.CapsuleID) {
	f := l.failures[id]
	wait := min(firstBackoff<<min(f.count, 10), longestWait)
	l.failures[id] = failure{f.count + 1, now, now.Add(wait)}
}

// begins drops all statements, because a new term has begun. A statement of the old term may have been committed, and
// the node may have been emptied since, so the fact may no longer hold. The next Work and list lead to new statements.
func (l *loop) begins() {
	for _, i := range l.items {
		i.statement, i.refused, i.retry = nil, 0, time.Time{}
	}
}

// advance takes the next step for each item. It returns the time of its next call, unless something happens before.
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

// advanceItem takes the next step for an item. It must know what the ledger and the runtime say of the item. It reports
// whether the item has a statement to confirm, and the earliest time for that.
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

// prepare makes the statement of a fact, unless the item has that statement already. It does not replace a Begun whose
// outcome is not known while the instance may still be started. The ledger may have committed this Begun; sending it
// again tells, whereas another fact, such as Stopped, would give up an instance that this agent may start.
func (l *loop) prepare(i *item, fact Fact) {
	s := i.statement
	if s == nil || s.Fact != fact && (s.Fact != Begun || i.task == nil || i.phase != 0) {
		i.statement = &Statement{ID: orbit.NewProposalID(), Instance: i.instance, Fact: fact, Seen: l.watch.work.Revision}
	}
}

// confirm sends the statements of the items in one call.
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

// settle handles the outcome of a statement. A committed Begun starts the instance. A refused statement is dropped; the
// item makes another one after a newer Work, or after Every. A statement with an unknown outcome is kept and sent
// again.
func (l *loop) settle(now time.Time, i *item, s Statement, o orbit.Outcome) {
	refused := errors.Is(o.Err, orbit.ErrConflict) || errors.Is(o.Err, orbit.ErrInfeasible)
	current := i.statement != nil && i.statement.ID == s.ID // false if the agent has joined anew meanwhile
	switch {
	case o.Err == nil:
		i.refused, i.retry = 0, time.Time{}
		if current && s.Fact == Begun && i.phase == 0 {
			l.start(i)
		}
	case refused || errors.Is(o.Err, orbit.ErrInvalid):
		i.refused, i.retry = max(1, l.watch.work.Revision), now.Add(l.agent.every())
		if !refused {
			l.reportError("confirm", o.Err)
		}
	default: // the outcome is unknown, or the statement was not sent
		i.refused, i.retry = 0, now.Add(l.agent.retry())
		l.reportError("confirm", o.Err)
		return
	}
	if current {
		i.statement = nil
	}
}

// start starts an instance whose Begun is committed, unless the node is fenced. The call of Start must end before the
// fence.
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
		if err := ctx.Err(); err != nil { // the process was suspended, and the node may be fenced by now
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

// runtime makes a call of the runtime about an item, with a time limit, and then calls then if it is not nil. The item
// takes no further step until a list that was begun after the call is there.
func (l *loop) runtime(i *item, limit time.Duration, what string, f func(context.Context) error, then func(time.Time, error)) {
	i.calling = true
	l.call(limit, f, func(now time.Time, err error) {
		i.calling = false
		l.clock++
		i.asOf, l.look = l.clock, true
		if err != nil {
			i.again = now.Add(l.agent.retry())
			l.reportError(what+" "+i.instance.String(), err)
		}
		if then != nil {
			then(now, err)
		}
	})
}
