package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/lease"
)

// Scheduler wraps a navigator so that it can be one of several schedulers that a [Dispatcher] assigns capsules to. It
// is the navigator of an engine with the same name, and adds two things:
//
//   - It gives back what the navigator cannot place: one proposal clears the capsule's owner and marks the capsule as
//     failed by this scheduler, so that the dispatcher tries the other schedulers.
//   - With Leases, every proposal bets on the scheduler's term. The dispatcher reassigns its capsules only after the end
//     of the term has been committed, and from then on the ledger refuses proposals with that bet. Without the bet a
//     scheduler whose lease is over could still place capsules that belong to another one by now, because the ledger
//     does not check who owns a capsule that a proposal places.
//
// Scheduler claims nothing: it plans what it has been assigned. A gang with no placed member is given back as a whole,
// even if only some of its members have no place. The pending members of a running gang are not given back, because
// they belong where the others run. Capsules whose id is too long for the key of a mark are not given back either; they
// are reported as unplaced with [ErrKey].
type Scheduler struct {
	// Name is the name of the scheduler and of its engine. Required.
	Name string
	// Navigator is the wrapped navigator, which does the planning. Required.
	Navigator orbit.Navigator
	// Leases are the leases of all schedulers, with [LeasePrefix]. If set, nothing is planned without a term; run
	// [Scheduler.Keep], or call [Scheduler.Serve] with a term. Nil: the scheduler needs no lease.
	Leases *lease.Keeper
	// Patience is how many passes in a row a capsule may stay unplaced for another reason than [*orbit.NoFit] before it is
	// given back; default 16, negative: never. A capsule with a NoFit is given back at once.
	Patience int

	term atomic.Pointer[lease.Term]
	// Keep's last error, which says why there is no live term; nil: Keep has had no error since.
	trouble atomic.Pointer[error]
	// When the running call of Plan began; nil: none is running.
	began atomic.Pointer[time.Time]
	// In how many passes in a row each capsule was left unplaced.
	unplaced map[orbit.CapsuleID]int
	swept    int
}

// Claims returns false.
func (s *Scheduler) Claims(string, orbit.AppClass) bool { return false }

// Serve sets the term that proposals bet on from now on. It may be called from any goroutine.
func (s *Scheduler) Serve(t lease.Term) { s.term.Store(&t) }

// Keep holds the lease until ctx ends, and then resigns it and returns nil. It acquires a term, calls Serve with it,
// refreshes it every third of the lease's TTL, and acquires a new one if the term was lost. If report is not nil it is
// called from Keep's goroutine with every error. While there is no term, Plan's error wraps Keep's last one.
//
// Every call of Keep is a separate holder: a second scheduler of the same name gets [lease.ErrHeld] (the [*lease.Error]
// says who holds the lease and until when) and tries again until the lease is free. A scheduler that is started again
// after a crash therefore waits until its old lease has run out.
//
// The lease vouches for the engine, not for this goroutine: once a call of Plan has run for longer than the TTL, Keep
// stops refreshing ([ErrStuck]), so that other schedulers get the capsules. When Plan returns, Keep begins a new term;
// what that Plan returned can no longer be committed. End ctx when the engine's Run returns.
func (s *Scheduler) Keep(ctx context.Context, report func(error)) error {
	if s.Leases == nil || s.Name == "" {
		return fmt.Errorf("shard: %w: Scheduler.Keep needs Name and Leases", orbit.ErrInvalid)
	}
	ttl := s.Leases.TTL
	if ttl <= 0 {
		ttl = 60 * time.Second
	}
	var term lease.Term
	for holder := fmt.Sprintf("%s-%016x", s.Name, rand.Uint64()); ctx.Err() == nil; send.Pause(ctx, ttl/3) {
		err := s.hold(ctx, &term, holder, ttl)
		if err == nil {
			s.trouble.Store(nil)
		} else if ctx.Err() == nil {
			s.trouble.Store(&err)
			if report != nil {
				report(err)
			}
		}
	}
	if term.Epoch == 0 {
		return nil
	}
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.Leases.Resign(resigning, term); err != nil && !errors.Is(err, lease.ErrExpired) && report != nil {
		report(err)
	}
	return nil
}

// hold refreshes the term, or acquires a new one if the term is over or there was none.
func (s *Scheduler) hold(ctx context.Context, term *lease.Term, holder string, ttl time.Duration) error {
	if began := s.began.Load(); began != nil && time.Since(*began) > ttl {
		return fmt.Errorf("shard: scheduler %q: %w: it began %v ago; its lease is left to run out", s.Name, ErrStuck, time.Since(*began))
	}
	if term.Epoch != 0 {
		if err := s.Leases.Refresh(*term); !errors.Is(err, lease.ErrExpired) {
			return err
		}
	}
	next, err := s.Leases.Acquire(ctx, s.Name, holder)
	switch {
	case errors.Is(err, lease.ErrHeld):
		return fmt.Errorf("shard: scheduler %q: another scheduler holds the lease of this name; give each one a name of its own: %w", s.Name, err)
	case err != nil:
		return err
	}
	*term = next
	s.Serve(next)
	return nil
}

// Plan calls the wrapped navigator, adds the proposals that give capsules back, and puts the bet on the term first in
// every proposal. The note "givenBack" is the number of proposals that give capsules back; their capsules are reported
// as unplaced with [ErrGivenBack].
func (s *Scheduler) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if s.Navigator == nil || s.Name == "" {
		return orbit.Plan{}, fmt.Errorf("shard: %w: Scheduler needs Name and Navigator", orbit.ErrInvalid)
	}
	now := time.Now()
	s.began.Store(&now)
	defer s.began.Store(nil)
	fence, reached, err := s.fence(view.State())
	if err != nil || !reached {
		return orbit.Plan{}, err
	}
	pending, divided := s.leaveDivided(view.State(), pending)
	pending = s.leaveFailing(view, pending, &divided)
	plan, err := s.Navigator.Plan(ctx, view, pending)
	back := append(s.giveBack(view, &plan), divided.Proposals...)
	plan.Unplaced = append(plan.Unplaced, divided.Unplaced...)
	plan.Proposals = append(plan.Proposals, back...)
	if fence != nil {
		for i := range plan.Proposals {
			p := &plan.Proposals[i]
			p.If = append([]orbit.Precondition{fence}, p.If...) // first, so that the receipt of a lost term says so
		}
	}
	plan.Notes = append(plan.Notes, slog.Int("givenBack", len(back)))
	return plan, err
}

// fence returns the bet on the term (nil without leases), and reports whether the view has reached the revision at
// which the term began. An older view may show capsules as the scheduler's that have been given to others since.
func (s *Scheduler) fence(state *orbit.State) (bet orbit.Precondition, reached bool, err error) {
	if s.Leases == nil {
		return nil, true, nil
	}
	term := s.term.Load()
	if term == nil {
		err := fmt.Errorf("shard: scheduler %q: %w: it has not begun a term; run Scheduler.Keep", s.Name, ErrNoTerm)
		if why := s.trouble.Load(); why != nil {
			err = fmt.Errorf("%w: %w", err, *why)
		}
		return nil, false, err
	}
	if state.Revision() < term.Epoch {
		return nil, false, nil
	}
	if now, live := s.Leases.In(state, s.Name); !live || now.Epoch != term.Epoch {
		return nil, false, fmt.Errorf("shard: scheduler %q: %w: its term %d is over, and its capsules go to others; Scheduler.Keep begins a new term", s.Name, ErrNoTerm, term.Epoch)
	}
	return orbit.MarkAt{Key: s.Leases.Key(s.Name), Revision: term.Epoch}, true, nil
}
