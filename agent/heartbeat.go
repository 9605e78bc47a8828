package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// heartbeat is what is known of the node's lease.
type heartbeat struct {
	// The term; 0: there is none, or it is over.
	term orbit.Revision
	// How long after an accepted report nothing is given to others.
	lasts time.Duration
	// When everything begins to stop; zero: the runtime sees to that. And whether that has come.
	fence  time.Time
	fenced bool
	// Join or Report is under way, or when it is due.
	calling bool
	at      time.Time
}

// misfit returns an error if the lease is too short for the agent's settings.
func (l *loop) misfit() error {
	h, a := &l.heart, l.agent
	if h.term == 0 || h.lasts > a.stopping()+a.every() {
		return nil
	}
	return fmt.Errorf("agent: %w: others may begin what is placed on node %q %v after a report; to report every %v and stop within %v takes longer",
		orbit.ErrInvalid, a.Node.ID, h.lasts, a.every(), a.stopping())
}

// beat fences the node when it is time, and joins or reports.
func (l *loop) beat(now time.Time) {
	h := &l.heart
	if !h.fenced && !h.fence.IsZero() && !now.Before(h.fence) {
		h.fenced = true
		l.tell(fmt.Sprintf("node %q", l.agent.Node.ID), ErrFenced)
	}
	if w := &l.watch; w.work.Absent && w.work.Revision >= h.term { // another client has put the node as lost, or removed it
		h.term = 0
	}
	switch {
	case h.calling || now.Before(h.at):
	case h.term != 0:
		l.report(now)
	case l.mayJoin():
		l.join(now)
	}
}

// mayJoin reports whether nothing runs that is not the node's own any more. A node that is fenced, absent or lost has nothing of its own.
func (l *loop) mayJoin() bool {
	if l.listed == 0 || !l.watch.known {
		return false
	}
	for _, i := range l.items {
		if i.running() && (l.heart.fenced || l.watch.work.Absent || i.task == nil && !i.leaving) {
			return false
		}
	}
	return true
}

func (l *loop) join(now time.Time) {
	a, node, sent := l.agent, l.agent.Node, now
	node.Confirms, node.State = true, orbit.Ready
	l.heart.calling = true
	var got Lease
	var unguarded error
	l.call(a.every(), func(ctx context.Context) (err error) {
		if got, err = a.Control.Join(ctx, node, a.holder()); err == nil {
			unguarded = a.extend(ctx, sent, got.Fence)
		}
		return err
	}, func(now time.Time, err error) {
		l.heart.calling, l.heart.at = false, now.Add(a.retry())
		l.tell("extend the time of the watchdog", unguarded)
		if err != nil {
			l.tell("join", err)
			return
		}
		l.heart.term, l.heart.lasts = got.Term, got.Fence
		l.watch.least = min(l.watch.least, got.Term) // it is below what was seen if this is another ledger
		l.begins()
		l.accepted(now, sent)
		l.heart.at = now // engines give nothing to a node that has not reported yet
	})
}

func (l *loop) report(now time.Time) {
	a, h, sent := l.agent, &l.heart, now
	term, lasts := h.term, h.lasts
	h.calling = true
	var unguarded error
	l.call(a.every(), func(ctx context.Context) error {
		r := orbit.Report{Node: a.Node.ID, Term: term, At: sent}
		if a.Report != nil {
			a.Report(&r)
		}
		err := a.Control.Report(ctx, r)
		if err == nil {
			unguarded = a.extend(ctx, sent, lasts)
		}
		return err
	}, func(now time.Time, err error) {
		h.calling, h.at = false, now.Add(a.retry())
		l.tell("extend the time of the watchdog", unguarded)
		switch {
		case err == nil:
			l.accepted(now, sent)
		case errors.Is(err, lease.ErrExpired):
			h.term, h.at = 0, now
		default:
			l.tell("report", err)
		}
	})
}

// accepted notes that a report which was sent at a time has kept the node's term alive.
func (l *loop) accepted(now, sent time.Time) {
	h := &l.heart
	h.at = sent.Add(l.agent.every())
	h.fence = sent.Add(h.lasts - l.agent.stopping())
	h.fenced = !now.Before(h.fence)
}

// extend tells a watchdog until when everything may run.
func (a *Agent) extend(ctx context.Context, sent time.Time, lasts time.Duration) error {
	if w, guarded := a.Runtime.(Watchdog); guarded {
		return w.Extend(ctx, sent.Add(lasts-a.stopping()))
	}
	return nil
}
