package logledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// catchUp applies all entries that others have appended, and reads the posts that wait.
func (l *Ledger) catchUp() {
	for {
		page, err := l.log.Read(l.life, l.w.index)
		if errors.Is(err, ErrTrimmed) {
			err = l.jump()
			if err == nil {
				continue
			}
		}
		if err == nil {
			err = l.apply(page.Entries)
		}
		if err != nil {
			l.behind(err)
			return
		}
		if !page.More {
			l.w.posts = page.Posts
			break
		}
	}
	l.w.retry, l.w.backoff = time.Time{}, 0
	if l.troubled() == nil {
		l.w.outage.Back(l.options.OnError)
	}
}

// behind notes that what others have appended cannot be read. It is tried again, unless that is of no use.
func (l *Ledger) behind(err error) {
	if l.life.Err() != nil {
		return
	}
	if errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrFailed, err)
	}
	if errors.Is(err, ErrFailed) {
		l.failAll(&group{}, unavailable(err), err)
	}
	l.w.backoff = min(max(2*l.w.backoff, 10*time.Millisecond), maxBackoff)
	l.w.retry = time.Now().Add(l.w.backoff)
	l.tellLost(err)
}

// apply applies entries of other ledgers.
func (l *Ledger) apply(data [][]byte) error {
	if len(data) == 0 {
		return nil
	}
	entries, rev := make([]Entry, len(data)), l.shown.Load().state.Revision()
	for i := range data {
		e, err := DecodeEntry(data[i])
		if err == nil {
			rev, err = e.Continue(rev)
		}
		if err != nil {
			return placed(l.log, l.w.index+Index(i)+1, err)
		}
		entries[i] = e
	}
	for i := range entries {
		l.count(l.w.index+Index(i)+1, &entries[i])
		l.w.entered(&entries[i])
	}
	return l.applyLocked(entries)
}

// applyLocked is the critical section of apply.
func (l *Ledger) applyLocked(entries []Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rebase()
	l.w.encoding = nil
	l.stale = len(l.open.runs) > 0
	for i := range entries {
		if err := l.judge.Apply(entries[i].Changes); err != nil {
			l.judge.Reset(l.shown.Load().state)
			return placed(l.log, l.w.index+Index(i)+1, fmt.Errorf("%w: %w", ErrCorrupt, err))
		}
	}
	state, _ := l.judge.Snapshot(context.Background()) // cannot fail
	l.stats.followed.Add(int64(len(entries)))
	l.shown.Store(&position{l.w.index + Index(len(entries)), state})
	for i := range entries { // after the state is shown, so that nobody is told of what he cannot see
		l.w.index++
		for k := range entries[i].Settled {
			l.settled(&entries[i].Settled[k], l.w.index)
		}
	}
	l.wake()
	return nil
}

// jump goes on from the newest checkpoint, because entries that this ledger has not read were removed.
func (l *Ledger) jump() error {
	at, _, err := readCheckpoint(l.life, l.log)
	if err != nil {
		return err
	}
	if at.index <= l.w.index {
		return fmt.Errorf("%w: entry %d is missing, and the newest checkpoint is at %d", ErrCorrupt, l.w.index+1, at.index)
	}
	l.stats.jumps.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rebase()
	l.judge.Reset(at.state)
	l.w.index, l.w.encoding, l.w.since, l.w.lastDue = at.index, nil, 0, at.index
	l.stale = len(l.open.runs) > 0
	l.shown.Store(at)
	l.wake()
	return nil
}
