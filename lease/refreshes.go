package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// This file shares refreshes with other processes.

// Refreshes has the refreshes of terms where all processes that keep the same leases see them: a token for each term, which lives
// or has ended. A token that has ended never lives again, whoever asks and whatever has failed. etcdledger.Ledger.Refreshes returns
// one that is made of etcd's own leases. All methods may be called from any goroutine, with at most some thousand tokens. An error
// means that nothing is known of any of them; Keep may then have kept some.
type Refreshes interface {
	// Begin returns a new token, a word without spaces. It lives for at least ttl, counted from when Begin was called.
	Begin(ctx context.Context, ttl time.Duration) (token string, err error)
	// Keep has tokens live for another ttl, that of their Begin, and returns for how long each lives at least, counted from when Keep
	// was called; 0: it has ended.
	Keep(ctx context.Context, tokens []string) ([]time.Duration, error)
	// Left returns for how long each token lives at least, if it is not kept meanwhile, counted from when Left was called; 0: it has
	// ended. A token that is about to end may be given as little as a nanosecond.
	Left(ctx context.Context, tokens []string) ([]time.Duration, error)
}

const (
	maxShared = 4096                   // the most tokens in one call
	askEvery  = 500 * time.Millisecond // the shortest time until a token that still lives is asked for again
)

// fresh is a token for a term that is to begin, and when its time began.
type fresh struct {
	token string
	began time.Time
}

// renew makes a token, unless there is one with most of its time left.
func (k *Keeper) renew(ctx context.Context, f *fresh) (err error) {
	if now := k.clock(); k.Refreshes != nil && now.Sub(f.began) > k.ttl()/4 {
		f.began = now
		if f.token, err = k.Refreshes.Begin(ctx, k.ttl()); err != nil {
			return fmt.Errorf("refreshes: %w", err)
		}
	}
	return nil
}

// share passes on the refreshes that this process has received, and asks for the terms that seem to have run out.
func (k *Keeper) share(ctx context.Context, round *Round) {
	if k.Refreshes == nil {
		return
	}
	for began, some := k.takeHeard(); len(some) > 0; began, some = k.takeHeard() {
		lives, err := k.Refreshes.Keep(ctx, tokens(some))
		if k.answered(some, lives, err, began, round); err != nil {
			return
		}
	}
	for began, some := k.takeDue(); len(some) > 0; began, some = k.takeDue() {
		lives, err := k.Refreshes.Left(ctx, tokens(some))
		if k.answered(some, lives, err, began, round); err != nil {
			return
		}
	}
}

// asked is a term for which the Refreshes are asked, as it was then.
type asked struct {
	lease *lease
	term  orbit.Revision
	token string
	heard time.Time // when it was refreshed; zero: it is asked whether it lives
}

func tokens(some []asked) []string {
	out := make([]string, len(some))
	for i := range some {
		out[i] = some[i].token
	}
	return out
}

// takeHeard takes terms that have been refreshed here since the last call. It leaves out refreshes that were received longer ago than
// a process may take to pass them on, because a holder that has died meanwhile would be found too late.
func (k *Keeper) takeHeard() (now time.Time, some []asked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now = k.clock()
	for len(k.heard) > 0 && len(some) < maxShared {
		le := k.heard[0]
		k.heard = k.heard[1:]
		if le.state == isLive && now.Sub(le.heard) < k.ttl()/4 { // zero if another term has begun since
			some = append(some, asked{le, le.at, le.token, le.heard})
		}
		le.heard = time.Time{}
	}
	return now, some
}

// takeDue takes terms that seem to have run out.
func (k *Keeper) takeDue() (now time.Time, some []asked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now = k.clock()
	k.expire(now)
	for len(k.due) > 0 && len(some) < maxShared {
		le := k.due[0]
		k.due = k.due[1:]
		le.due = false
		switch {
		case le.state != isLive:
		case now.Before(le.end):
			k.scheduleExpiry(le)
		default:
			some = append(some, asked{lease: le, term: le.at, token: le.token})
		}
	}
	return now, some
}

// answered takes note of the answer of the Refreshes to a call that began at a time. After an error the terms are left for the next
// step.
func (k *Keeper) answered(some []asked, lives []time.Duration, err error, began time.Time, round *Round) {
	if err == nil && len(lives) != len(some) {
		err = fmt.Errorf("%w: %d answers for %d terms", orbit.ErrUnavailable, len(lives), len(some))
	}
	if err != nil {
		round.fail(fmt.Errorf("lease: refreshes: %w", err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, a := range some {
		le, kept := a.lease, !a.heard.IsZero()
		switch {
		case le.state != isLive || le.at != a.term:
		case err != nil && kept:
			k.hear(le, a.heard)
		case err != nil:
			k.doubt(le)
		case lives[i] <= 0:
			k.end(le)
		case kept:
			le.end = later(le.end, began.Add(lives[i]))
		default:
			le.end = later(le.end, began.Add(max(lives[i], min(askEvery, k.ttl()/4))))
			k.scheduleExpiry(le)
		}
	}
}

// hear has the next step pass on a refresh that was received at a time. The caller must hold the lock.
func (k *Keeper) hear(le *lease, at time.Time) {
	if le.heard.IsZero() {
		k.heard = append(k.heard, le)
	}
	le.heard = later(le.heard, at)
}

// doubt has the next step ask whether a term still lives. The caller must hold the lock.
func (k *Keeper) doubt(le *lease) {
	if !le.due {
		le.due = true
		k.due = append(k.due, le)
	}
}

// promised notes until when a term of this process is known to live.
func (k *Keeper) promised(t Term, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if le := k.leases[t.Name]; le != nil && le.state == isLive && le.at == t.Epoch && le.token != "" {
		le.end = later(le.end, until)
	}
}

// slack is how much less than TTL a term may have left when a refresh of it is accepted.
func (k *Keeper) slack() time.Duration {
	if k.Refreshes == nil {
		return 0
	}
	return k.ttl() / 2
}
