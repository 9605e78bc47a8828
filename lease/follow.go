package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// This file reads the ledger: other processes acquire and end terms too.

var errShared = errors.New("its refreshes are shared with other processes; set Keeper.Refreshes here, too")

var errKeeper = fmt.Errorf("lease: %w: a Keeper needs a Ledger, and a Prefix that ends in a slash; set them before first use", orbit.ErrInvalid)

// check returns what is wrong with the fields.
func (k *Keeper) check() error {
	if k.Ledger == nil || !strings.HasSuffix(k.prefix(), "/") {
		return errKeeper
	}
	return nil
}

// follow brings this process up to the ledger's current state.
func (k *Keeper) follow(ctx context.Context) error {
	if err := k.check(); err != nil {
		return err
	}
	k.mu.Lock()
	after, followed := k.seen, k.followed
	k.mu.Unlock()
	if followed {
		changes, err := k.Ledger.Changes(ctx, after)
		if err == nil {
			k.absorb(changes)
			return nil
		}
		if !errors.Is(err, orbit.ErrCompacted) {
			return fmt.Errorf("lease: %w", err)
		}
	}
	state, err := k.Ledger.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	k.reread(state)
	return nil
}

// absorb applies changes. It skips those that a concurrent call has applied already.
func (k *Keeper) absorb(changes []orbit.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, from := k.clock(), k.seen
	for i := range changes {
		c := &changes[i]
		if c.Revision <= from {
			continue
		}
		k.seen = c.Revision
		if mark, ok := c.Do.(orbit.Mark); ok {
			if name, ok := k.nameOf(mark.Key); ok {
				k.learn(name, mark.Value, c.Revision, now)
			}
		}
	}
}

// reread applies a whole state. Leases whose row has not changed keep their record.
func (k *Keeper) reread(state *orbit.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.followed && state.Revision() <= k.seen {
		return
	}
	now, there := k.clock(), map[string]bool{}
	for key, value := range state.Marks(k.prefix()) {
		if name, ok := k.nameOf(key); ok {
			_, at := state.Mark(key)
			there[name] = true
			k.learn(name, value, at, now)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.leases)) {
		if !there[name] {
			k.learn(name, "", state.Revision(), now)
		}
	}
	k.followed, k.seen = true, state.Revision()
}

// learn applies one change of a row. The caller must hold the lock.
func (k *Keeper) learn(name, value string, at orbit.Revision, now time.Time) {
	le := k.leases[name]
	if le == nil {
		if value == "" {
			return
		}
		le = &lease{name: name, state: isCorrupt}
		k.leases[name] = le
	} else if at <= le.at {
		return
	}
	if value == "" {
		k.vanish(le, at)
		return
	}
	was, known := *le, le.state != isCorrupt || le.at != 0 // the first term is free
	k.leave(le)
	le.at, le.bet, le.learned, le.sent, le.member = at, at, now, nil, memberNote{}
	r, err := parseRow(value)
	if r.token != "" && k.Refreshes == nil {
		err = errShared
	}
	le.holder, le.token, le.heard, le.yielded, le.kept = r.holder, r.token, time.Time{}, false, r.kept
	switch {
	case err != nil:
		le.state = isCorrupt
		k.corrupt[name] = err
	case r.live:
		le.state, le.epoch, le.end = isLive, at, now.Add(k.ttl())
		if le.token != "" {
			le.end = now // so that the next step asks the Refreshes for how long the term lives
		}
		if known {
			k.begin(&le.terms, now) // terms that other processes have begun count too
		}
		k.live++
		k.scheduleExpiry(le)
	default:
		le.state, le.ended = isOver, r.ended
		if le.ended.After(now) {
			le.ended = now
		}
		if le.since = now; !k.followed {
			le.since = le.ended
		}
		if was.state == isOver && was.ended.Equal(le.ended) { // the same end, with another cordon
			le.since = was.since
			if r.kept {
				le.learned = was.learned
			}
		}
		k.fileOver(le)
	}
	k.changes.add(name)
}

// leave removes a lease from the list that belongs to its state. The caller must hold the lock.
func (k *Keeper) leave(le *lease) {
	switch le.state {
	case isLive:
		k.live--
	case isOver:
		k.unfileOver(le)
	case isCorrupt:
		delete(k.corrupt, le.name)
	}
}

// vanish applies the deletion of a row. If the row said that a term was live, the term is now dead, and its end is
// still to be committed, so that Members cordons the node in that commit. If the row said that the lease was over, the
// row has been swept, and the record of the lease is dropped. The caller must hold the lock.
func (k *Keeper) vanish(le *lease, at orbit.Revision) {
	switch le.state {
	case isLive, isDead:
		if le.state == isLive {
			k.end(le)
		}
		le.at, le.bet, le.sent = at, 0, nil
	default:
		k.leave(le)
		delete(k.leases, le.name)
		k.changes.add(le.name)
	}
}
