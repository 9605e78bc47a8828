package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// This file shares refreshes with other processes.

// Refreshes is a store of refreshes that all processes which keep the same leases share. It has a token for each
// term; a token lives or has ended. A token that has ended must never live again, whichever process asks and
// whatever has failed. etcdledger.Refreshes returns an implementation on etcd's own leases, and
// pgledger.OpenRefreshes one on a table in Postgres. All methods may be called from any goroutine, with at most
// 4,096 tokens in a call. After an error nothing is known of any of the tokens; Keep may have extended some.
type Refreshes interface {
	// Begin returns a new token, which is a word without spaces. The token lives for at least ttl from the call of
	// Begin on.
	Begin(ctx context.Context, ttl time.Duration) (token string, err error)
	// Keep extends the life of each token by the ttl of its Begin. It returns for how long each token lives at least,
	// from the call of Keep on; 0: the token has ended.
	Keep(ctx context.Context, tokens []string) ([]time.Duration, error)
	// Left returns for how long each token lives at least if it is not extended, from the call of Left on; 0: the token
	// has ended. For a token that lives but is about to end, the result may be as short as a nanosecond.
	Left(ctx context.Context, tokens []string) ([]time.Duration, error)
}

// Silences is implemented by Refreshes whose Left returns less than a token lasts, such as those of pgledger: then the end of a
// term does not say when it was refreshed. Without it, a term whose token has a life of N left was refreshed TTL - N ago.
type Silences interface {
	// Silent returns for how long at least the token has not been extended, as far as the calls of Left and Keep have seen; 0 if
	// they have not seen it twice.
	Silent(token string) time.Duration
}

const (
	maxShared = 4096                   // the most tokens in one call
	askEvery  = 500 * time.Millisecond // the shortest time between two calls of Left for a token that still lives
)

// fresh is the token of a term that is about to begin, and the time at which Refreshes.Begin was called for it.
type fresh struct {
	token string
	began time.Time
}

// renew makes a new token if there is none, or if more than a quarter of TTL has passed since the last one was made. A
// repeated attempt of Acquire can therefore use the token of the attempt before.
func (k *Keeper) renew(ctx context.Context, f *fresh) (err error) {
	if now := k.clock(); k.Refreshes != nil && now.Sub(f.began) > k.ttl()/4 {
		f.began = now
		if f.token, err = k.Refreshes.Begin(ctx, k.ttl()); err != nil {
			return fmt.Errorf("refreshes: %w", err)
		}
	}
	return nil
}

// share passes on the refreshes that this process has received, and then asks Refreshes about the terms whose end has
// come by this process's knowledge: another process may have passed on a refresh.
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

// asked is a term in a call of Keep or Left. It has copies of the lease's term and token, because the lease may change
// during the call.
type asked struct {
	lease *lease
	term  orbit.Revision
	token string
	heard time.Time // Keep: when the term was refreshed; zero: Left
}

func tokens(some []asked) []string {
	out := make([]string, len(some))
	for i := range some {
		out[i] = some[i].token
	}
	return out
}

// takeHeard takes the terms that have been refreshed in this process and not passed on, at most maxShared. It drops
// refreshes that were received more than a quarter of TTL ago: Keep counts from now, so passing an old refresh on would
// keep the lease of a holder that has died since alive for too long.
func (k *Keeper) takeHeard() (now time.Time, some []asked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now = k.clock()
	for len(k.heard) > 0 && len(some) < maxShared {
		le := k.heard[0]
		k.heard = k.heard[1:]
		if le.state == isLive && now.Sub(le.heard) < k.ttl()/4 { // heard is zero, and so too old, if another term has begun since
			some = append(some, asked{le, le.at, le.token, le.heard})
		}
		le.heard = time.Time{}
	}
	return now, some
}

// takeDue takes the terms whose end has come by this process's knowledge, at most maxShared.
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

// answered applies the answer of Keep or Left, whose call began at the time began. After an error the terms are left
// for the next step.
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
			k.noteRefresh(le, a.heard)
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

// noteRefresh notes a refresh that was received at the time at. The next step passes it on. The caller must hold the lock.
func (k *Keeper) noteRefresh(le *lease, at time.Time) {
	if le.heard.IsZero() {
		k.heard = append(k.heard, le)
	}
	le.heard = later(le.heard, at)
}

// doubt makes the next step ask Refreshes whether a term still lives. The caller must hold the lock.
func (k *Keeper) doubt(le *lease) {
	if !le.due {
		le.due = true
		k.due = append(k.due, le)
	}
}

// promised notes until when the token of a term that this process has just begun is known to live.
func (k *Keeper) promised(t Term, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if le := k.leases[t.Name]; le != nil && le.state == isLive && le.at == t.Epoch && le.token != "" {
		le.end = later(le.end, until)
	}
}

// slack returns by how much the life that an accepted refresh promises may be shorter than TTL: half of TTL with
// Refreshes, otherwise nothing.
func (k *Keeper) slack() time.Duration {
	if k.Refreshes == nil {
		return 0
	}
	return k.ttl() / 2
}
