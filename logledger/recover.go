package logledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// This file has what happens when the log does not answer as it should.

// maxBackoff is the longest time between two attempts while the log does not work.
const maxBackoff = time.Second

// recover finds out what has become of an entry whose append has failed with err, and tries again meanwhile. It returns
// when the entry is in the log, when another entry is in its place, or when it cannot be there and the patience is over. It
// reports whether the log works.
func (l *Ledger) recover(a *attempt, err error) bool {
	sent := a.data != nil && !errors.Is(err, orbit.ErrUnavailable) // it may be in the log, now or later
	until := time.Now().Add(max(0, l.options.Patience))
	if l.troubled() != nil {
		until = time.Time{} // the patience is over
	}
	for answered := false; ; {
		if !answered && (errors.Is(err, ErrFailed) || !time.Now().Before(until) || l.life.Err() != nil) {
			l.giveUp(a, err, sent)
			answered = true
		}
		if answered && (!sent || errors.Is(err, ErrFailed) || l.life.Err() != nil) {
			l.w.retry = time.Now().Add(maxBackoff)
			return false
		}
		l.pause()
		var over bool
		if over, sent, err = l.again(a, sent, err); over {
			return true
		}
	}
}

// pause waits before the next attempt: a little longer each time, but not when the ledger is being closed.
func (l *Ledger) pause() {
	l.w.backoff = min(max(2*l.w.backoff, 5*time.Millisecond), maxBackoff)
	l.w.retry = time.Now().Add(l.w.backoff)
	select {
	case <-time.After(l.w.backoff):
	case <-l.life.Done():
	}
}

// again is one more attempt. It reports whether the outcome of the entry is known.
func (l *Ledger) again(a *attempt, sent bool, last error) (over, stillSent bool, err error) {
	if a.data == nil { // refusals, which wait only to learn whether there is anything new
		if _, err := l.log.Tail(l.life); err != nil {
			return false, false, unavailable(err)
		}
		l.revive(a)
		return true, false, nil
	}
	if sent {
		page, err := l.log.Read(l.life, l.w.index)
		switch {
		case errors.Is(err, ErrTrimmed):
			l.giveUp(a, err, true)
			l.catchUp()
			return true, true, nil
		case err != nil:
			return false, true, err
		case len(page.Entries) > 0:
			l.settle(a, page)
			return true, true, nil
		}
	}
	posts, err := l.log.Append(l.life, Append{Index: l.w.index + 1, Data: a.data, Settled: a.settled})
	switch {
	case err == nil:
		l.committed(a, posts)
		return true, true, nil
	case errors.Is(err, ErrTaken) && sent:
		return false, true, last // read whose it is
	case errors.Is(err, ErrTaken):
		l.revive(a)
		return true, false, nil
	}
	return false, sent || !errors.Is(err, orbit.ErrUnavailable), err
}

// settle learns from the entry at the index of an attempt whether it is that of the attempt.
func (l *Ledger) settle(a *attempt, page Page) {
	e, err := DecodeEntry(page.Entries[0])
	if err == nil && e.Writer == l.self && e.Number == a.entry.Number {
		l.committed(a, nil)
		return
	}
	l.revive(a)
}

// revive puts the group of an attempt that is not in the log back, if its proposals are not answered, and reads what is new.
func (l *Ledger) revive(a *attempt) {
	l.mu.Lock()
	l.trouble = nil
	l.mu.Unlock()
	l.w.retry, l.w.backoff = time.Time{}, 0
	l.putBack(a.group)
	l.catchUp()
}

// giveUp answers all proposals with an error. Those of the attempt may be in the log if it was sent; in any case the
// ledger does not send them again under another index.
func (l *Ledger) giveUp(a *attempt, err error, sent bool) {
	why := unavailable(err)
	if sent {
		why = unknown(err)
	}
	l.failAll(a.group, why, err)
	if l.life.Err() == nil {
		l.tellLost(err)
	}
}

// tellLost tells that the store does not answer, once in an outage, and of an error that is final in any case.
func (l *Ledger) tellLost(err error) {
	if errors.Is(err, ErrFailed) {
		l.options.OnError(err)
		return
	}
	l.w.outage.Lost(err, func(error) { l.options.OnError(l.Health()) })
}

// failAll answers the proposals of a group, and all that have arrived since.
func (l *Ledger) failAll(g *group, why, trouble error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range g.runs {
		if r.posted { // others may still commit it
			r.fail(unknown(trouble))
		} else {
			r.fail(why)
		}
	}
	g.runs = nil
	l.failOpen(trouble)
	l.trouble = trouble
	l.wake()
}

// failOpen answers the proposals of the open group. Others may still commit those that are posted. It requires mu.
func (l *Ledger) failOpen(err error) {
	for _, r := range l.open.runs {
		if r.posted {
			r.fail(unknown(err))
		} else {
			r.fail(unavailable(err))
		}
	}
	l.open, l.stale = &group{}, true
	l.w.orphan()
}

// give answers a group that can never be stored. If others may still commit what this ledger has posted, no outcome is known,
// all that waits gets an error, and an entry withdraws the posts.
func (l *Ledger) give(a *attempt, err error) {
	if len(l.w.posted)+len(l.w.orphans) > 0 {
		l.failAll(a.group, unknown(err), err)
		l.mu.Lock()
		l.trouble = nil
		l.mu.Unlock()
		l.commit(true)
		return
	}
	for _, r := range a.group.runs {
		r.fail(fmt.Errorf("logledger: %w: %w", orbit.ErrInvalid, err))
	}
	l.putBack(&group{})
}
