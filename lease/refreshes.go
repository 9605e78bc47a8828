package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// This file shares refreshes with other processes.

// Refreshes has the refreshes of terms where all processes that keep the same leases see them. A term is named by the bet on it: the key
// of its row and its epoch. Each term is alive or has been ended; what was ended stays ended. etcdledger.Ledger.Refreshes
// returns one that is made of etcd's own leases. All methods are called with at most some thousand terms, and may be called from any
// goroutine.
type Refreshes interface {
	// Keep refreshes terms, and returns for how long each lives at least, counted from when Keep was called: about ttl, and not less; 0 if
	// it has been ended. A term that is not known begins to live, unless it was ended in the last 24 hours.
	Keep(ctx context.Context, terms []orbit.MarkAt, ttl time.Duration) ([]time.Duration, error)
	// End ends the terms that have not been refreshed for the ttl that their last Keep was given, and those that are not known.
	// It returns for how long each of the others still lives about; 0 if it has been ended, by this call or an earlier one.
	End(ctx context.Context, terms []orbit.MarkAt) ([]time.Duration, error)
}

// FindsWithin is the longest that it takes, with [Keeper.Refreshes] and while they and the ledger can be reached, from TTL after the last
// heartbeat of a holder until a Run at work has committed the end of its term: a second until the heartbeat was passed on, a
// second of rounding, three until etcd has found a lease that has run out, and a second for the step.
const FindsWithin = 6 * time.Second

// maxShared is the most terms that are refreshed or checked in one call.
const maxShared = 4096

// share passes on the refreshes that this process has received, and asks for the terms of which it has received none for TTL.
func (k *Keeper) share(ctx context.Context, round *Round) {
	if k.Refreshes == nil {
		return
	}
	for kept, began := k.takeHeard(); len(kept) > 0; kept, began = k.takeHeard() {
		lives, err := k.Refreshes.Keep(ctx, k.bets(kept), k.ttl())
		if k.answered(kept, lives, err, began, true, round); err != nil {
			return
		}
	}
	for due, began := k.takeDue(); len(due) > 0; due, began = k.takeDue() {
		lives, err := k.Refreshes.End(ctx, k.bets(due))
		if k.answered(due, lives, err, began, false, round); err != nil {
			return
		}
	}
}

// takeHeard takes terms that have been refreshed here since the last call.
func (k *Keeper) takeHeard() ([]Term, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var terms []Term
	for len(k.heard) > 0 && len(terms) < maxShared {
		le := k.heard[0]
		k.heard = k.heard[1:]
		if le.heard && le.state == isLive {
			terms = append(terms, le.term())
		}
		le.heard = false
	}
	return terms, k.clock()
}

// takeDue takes terms that seem to have run out.
func (k *Keeper) takeDue() ([]Term, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	k.expire(now)
	var terms []Term
	for len(k.due) > 0 && len(terms) < maxShared {
		le := k.due[0]
		k.due = k.due[1:]
		le.due = false
		if le.state == isLive && now.Before(le.end) {
			k.scheduleExpiry(le)
		} else if le.state == isLive {
			terms = append(terms, le.term())
		}
	}
	return terms, now
}

// bets returns the bets on terms.
func (k *Keeper) bets(terms []Term) []orbit.MarkAt {
	bets := make([]orbit.MarkAt, len(terms))
	for i, t := range terms {
		bets[i] = orbit.MarkAt{Key: k.Key(t.Name), Revision: t.Epoch}
	}
	return bets
}

// answered takes note of the answer of the Refreshes to a call that began at a time. After an error the terms are left for the next step.
func (k *Keeper) answered(terms []Term, lives []time.Duration, err error, began time.Time, kept bool, round *Round) {
	if err == nil && len(lives) != len(terms) {
		err = fmt.Errorf("%w: %d answers for %d terms", orbit.ErrUnavailable, len(lives), len(terms))
	}
	if err != nil {
		round.fail(fmt.Errorf("lease: refreshes: %w", err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, t := range terms {
		le := k.leases[t.Name]
		switch {
		case le == nil || le.state != isLive || le.at != t.Epoch:
		case err != nil && kept:
			k.hear(le)
		case err != nil:
			k.doubt(le)
		case lives[i] <= 0:
			k.end(le)
		case kept:
			le.end, le.sure = later(le.end, began.Add(lives[i])), later(le.sure, began.Add(k.ttl()))
		default:
			le.end = later(le.end, began.Add(lives[i]))
			k.scheduleExpiry(le)
		}
	}
}

// hear has the next step pass on a refresh. The caller must hold the lock.
func (k *Keeper) hear(le *lease) {
	if !le.heard {
		le.heard = true
		k.heard = append(k.heard, le)
	}
}

// doubt has the next step ask whether a term still lives. The caller must hold the lock.
func (k *Keeper) doubt(le *lease) {
	if !le.due {
		le.due = true
		k.due = append(k.due, le)
	}
}

// confirmed says that no process ends a term before TTL after a time.
func (k *Keeper) confirmed(t Term, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if le := k.leases[t.Name]; le != nil && le.state == isLive && le.at == t.Epoch {
		le.sure = later(le.sure, at.Add(k.ttl()))
	}
}

// slack is how long before a Refresh that was accepted the last one may lie that all processes know of.
func (k *Keeper) slack() time.Duration {
	if k.Refreshes == nil {
		return 0
	}
	return k.ttl() / 2
}
