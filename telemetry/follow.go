package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// This file reads the ledger: other processes acquire and end terms too.

var errLeases = errors.New("telemetry: Leases needs a Ledger, and a Prefix that ends in a slash; set them before first use")

// follow brings this process up to what the ledger has.
func (l *Leases) follow(ctx context.Context) error {
	if l.Ledger == nil || !strings.HasSuffix(l.prefix(), "/") {
		return errLeases
	}
	l.mu.Lock()
	after, followed := l.seen, l.followed
	l.mu.Unlock()
	if followed {
		changes, err := l.Ledger.Changes(ctx, after)
		if err == nil {
			l.absorb(changes)
			return nil
		}
		if !errors.Is(err, orbit.ErrCompacted) {
			return fmt.Errorf("telemetry: leases: %w", err)
		}
	}
	state, err := l.Ledger.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("telemetry: leases: %w", err)
	}
	l.reread(state)
	return nil
}

// absorb takes over what has changed. Of two that read at once, one may bring what is known already.
func (l *Leases) absorb(changes []orbit.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, from := l.clock(), l.seen
	for i := range changes {
		c := &changes[i]
		if c.Revision <= from {
			continue
		}
		l.seen = c.Revision
		if mark, ok := c.Do.(orbit.Mark); ok {
			if name, ok := l.nameOf(mark.Key); ok {
				l.learn(name, mark.Value, c.Revision, now)
			}
		}
	}
}

// reread takes over a whole state. What it says the same of as before stays as it is.
func (l *Leases) reread(state *orbit.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followed && state.Revision() <= l.seen {
		return
	}
	now, there := l.clock(), map[string]bool{}
	for key, value := range state.Marks(l.prefix()) {
		if name, ok := l.nameOf(key); ok {
			_, at := state.Mark(key)
			there[name] = true
			l.learn(name, value, at, now)
		}
	}
	var gone []string
	for name := range l.leases {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		l.learn(name, "", state.Revision(), now)
	}
	l.followed, l.seen = true, state.Revision()
}

// learn takes over one change of a row. It requires the lock.
func (l *Leases) learn(name, value string, at orbit.Revision, now time.Time) {
	le := l.leases[name]
	if le == nil {
		if value == "" {
			return
		}
		le = &lease{name: name, state: isCorrupt}
		l.leases[name] = le
	} else if at <= le.at {
		return
	}
	if value == "" {
		l.vanish(le, at)
		return
	}
	l.leave(le)
	le.at, le.bet, le.learned, le.sent, le.member = at, at, now, nil, memberNote{}
	r, err := parseRow(value)
	le.holder = r.holder
	switch {
	case err != nil:
		le.state = isCorrupt
		l.corrupt[name] = err
	case r.live:
		le.state, le.epoch, le.end = isLive, at, now.Add(l.ttl())
		l.live++
		l.arm(le)
	default:
		le.state, le.ended = isOver, r.ended
		if le.ended.After(now) {
			le.ended = now
		}
		l.fileOver(le)
	}
	l.news.add(name)
}

// leave takes a lease out of the table that its state has it in. It requires the lock.
func (l *Leases) leave(le *lease) {
	switch le.state {
	case isLive:
		l.live--
	case isOver:
		l.unfileOver(le)
	case isCorrupt:
		delete(l.corrupt, le.name)
	}
}

// vanish takes over that a row is not there any more. A term that has not ended in the ledger is over with it, and
// its end is still to be committed, so that whoever keeps more than the lease learns of it; a lease that was over
// has been swept. It requires the lock.
func (l *Leases) vanish(le *lease, at orbit.Revision) {
	switch le.state {
	case isLive, isDead:
		if le.state == isLive {
			l.die(le)
		}
		le.at, le.bet, le.sent = at, 0, nil
	default:
		l.leave(le)
		delete(l.leases, le.name)
		l.news.add(le.name)
	}
}
