package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
	"github.com/orbitsched/orbit/lease"
)

// heartbeat is the agent's record of the node's lease.
type heartbeat struct {
	// holder is the holder of the node's lease: this machine and this Run.
	holder string
	// term is the current term; 0: there is none, or it is over.
	term orbit.Revision
	// lasts is Lease.Fence: for this long after an accepted report the node's capsules are placed nowhere else.
	lasts time.Duration
	// fence is the time at which everything begins to stop; zero: the agent has not joined, and the runtime is a
	// Watchdog, which keeps that time itself. fenced says that the time has come.
	fence  time.Time
	fenced bool
	// calling says that a call of Join or Report is under way. Otherwise at is when the next call is due.
	calling bool
	at      time.Time
	// unheard says that the last report was refused with lease.ErrUnheard.
	unheard bool
	// patience is when the agent reports that another agent of this machine keeps the node's lease; zero: there was none.
	patience time.Time
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

// beat fences the node if the time of the fence has come, and begins a call of Join or Report if one is due.
func (l *loop) beat(now time.Time) {
	h := &l.heart
	if !h.fenced && !h.fence.IsZero() && !now.Before(h.fence) {
		h.fenced = true
		l.reportError(fmt.Sprintf("node %q", l.agent.Node.ID), ErrFenced)
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

// mayJoin reports whether the agent may join: only instances run that are placed on the node or leaving it. If the node
// is fenced, absent or lost, nothing at all may run, because its capsules may be placed elsewhere. The agent must have
// a list of the runtime and a Work, so that it knows all this.
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
	a, node, holder, sent := l.agent, l.agent.Node, l.heart.holder, now
	node.Confirms, node.State = true, orbit.Ready
	l.heart.calling = true
	var got Lease
	var unguarded error
	l.call(a.every(), func(ctx context.Context) (err error) {
		if got, err = a.Control.Join(ctx, node, holder); err == nil && got.Term != 0 {
			unguarded = a.extend(ctx, sent, got.Fence)
		}
		return err
	}, func(now time.Time, err error) {
		l.heart.calling, l.heart.at = false, now.Add(a.retry())
		l.reportError("extend the time of the watchdog", unguarded)
		if err != nil {
			l.reportError("join", err)
			return
		}
		if got.Term == 0 {
			l.awaitPredecessor(now, sent, got)
			return
		}
		l.heart.term, l.heart.lasts, l.heart.patience = got.Term, got.Fence, time.Time{}
		l.watch.least = min(l.watch.least, got.Term) // another ledger, such as a restored one, may be at a lower revision
		l.begins()
		l.accepted(now, sent)
		l.heart.at = now // report at once, because engines place nothing on a node that has not reported yet
	})
}

// awaitPredecessor handles the answer that another agent of this machine has reported lately. If that one has died, it
// is the predecessor whose capsules run on here, and the answer says for how long they may do so without a term. If it
// still reports after the time in which a dead one would have been given up, there are two agents.
func (l *loop) awaitPredecessor(now, sent time.Time, got Lease) {
	h := &l.heart
	if end := sent.Add(got.Fence - l.agent.stopping()); !h.fence.IsZero() && !h.fenced && end.After(h.fence) {
		h.fence = end
	}
	if !h.patience.IsZero() && !now.Before(h.patience) {
		l.reportError("join", fmt.Errorf("%w: another agent of this machine (%s) reports for node %q; a node has one agent, and each machine needs a Machine of its own",
			lease.ErrRunning, cmp.Or(l.agent.Machine, machine()), l.agent.Node.ID))
		h.patience = time.Time{}
	}
	if h.patience.IsZero() {
		h.patience = now.Add(got.Wait)
	}
}

// leave tells Control that this agent has ended, so that its successor need not wait until that shows.
func (l *loop) leave() {
	if l.heart.term == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), min(l.agent.every(), time.Second))
	defer cancel()
	err := guard.Run(func() error { return l.agent.Control.Leave(ctx, l.agent.Node.ID, l.heart.term) })
	if err != nil && !errors.Is(err, lease.ErrExpired) {
		l.agent.report(fmt.Errorf("agent: leave: %w", err))
	}
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
		l.reportError("extend the time of the watchdog", unguarded)
		switch {
		case err == nil:
			l.accepted(now, sent)
		case errors.Is(err, lease.ErrExpired):
			h.term, h.at = 0, now
		case errors.Is(err, lease.ErrUnheard) && !h.unheard: // that process has not read of the term yet; the next report will do
		default:
			l.reportError("report", err)
		}
		h.unheard = errors.Is(err, lease.ErrUnheard)
	})
}

// accepted notes that a Join or Report that was sent at the time sent has been accepted, and moves the fence. It counts
// from the sending and not from the answer, because the lease is refreshed at some time in between.
func (l *loop) accepted(now, sent time.Time) {
	h := &l.heart
	h.at = sent.Add(l.agent.every())
	h.fence = sent.Add(h.lasts - l.agent.stopping())
	h.fenced = !now.Before(h.fence)
}

// extend tells the runtime, if it is a Watchdog, until when everything may run.
func (a *Agent) extend(ctx context.Context, sent time.Time, lasts time.Duration) error {
	if w, guarded := a.Runtime.(Watchdog); guarded {
		return w.Extend(ctx, sent.Add(lasts-a.stopping()))
	}
	return nil
}
