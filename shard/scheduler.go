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
	"github.com/orbitsched/orbit/lease"
)

// Scheduler makes a navigator one of several schedulers that share what a [Dispatcher] gives out. It is the navigator
// of an engine with the same name, and does two things that the one inside need not know of:
//
//   - what that one cannot place goes back: in one proposal the capsule is nobody's again and is marked as failed by
//     this scheduler, for the dispatcher to try the others;
//   - with Leases, every proposal bets on the scheduler's term. Once the end of the term has been committed, and
//     before that nothing is given to others, none of what is still on its way can be committed. The ledger does not
//     ask whose capsule a proposal places, so without the bet a scheduler that was given up for dead could still place
//     what others have by now.
//
// It claims nothing: it plans what it has been assigned. A gang of which nothing is placed goes back as a whole, also
// if only some of its members were found to have no place; members that are missing in a running gang stay, for they
// belong where the others are. Capsules whose id is too long to be marked stay too, and are reported as unplaced with
// a [*KeyError].
type Scheduler struct {
	// Name is that of the engine. Required.
	Name string
	// Navigator is the one inside. Required.
	Navigator orbit.Navigator
	// Leases, if set, are those of the schedulers, with [LeasePrefix]. Then nothing is planned without a term, which
	// [Scheduler.Keep] sees to, or [Scheduler.Serve].
	Leases *lease.Keeper
	// Patience is how many passes in a row a capsule is left unplaced for another reason than [*orbit.NoFit] until it
	// goes back; default 16, negative: it never does. What fits nowhere goes back at once.
	Patience int

	term atomic.Pointer[lease.Term]
	// Why there is no term that lives, as far as Keep knows; nil: there is one.
	trouble atomic.Pointer[error]
	// When the Plan began that is under way; nil: none is.
	began atomic.Pointer[time.Time]
	// How often capsules were left unplaced in a row.
	unplaced map[orbit.CapsuleID]int
	swept    int
}

// Claims returns false.
func (s *Scheduler) Claims(string, orbit.AppClass) bool { return false }

// Serve says under which term the scheduler plans from now on. It may be called from any goroutine.
func (s *Scheduler) Serve(t lease.Term) { s.term.Store(&t) }

// Keep holds the lease until ctx ends, and then resigns it and returns nil: it acquires a term, serves under
// it, refreshes it three times in its life, and begins a new one if it was lost. Report, if not nil, is called
// with all that goes wrong, from Keep's goroutine; what keeps the scheduler from having a term, Plan says too.
//
// Every Keep is a holder of its own: a second scheduler of the same name is refused ([lease.ErrHeld], of
// which the [*lease.Error] says who holds the lease and until when), and waits for its turn. One that
// has been started again without a chance to resign waits until its old lease has run out.
//
// The lease stands for the engine, not for this goroutine: while a Plan has not returned for longer than a
// lease lives it is not refreshed ([ErrStuck]), so that others get what the scheduler had. When the Plan
// returns a new term begins; what it planned cannot be committed any more. End ctx where the engine's Run
// returns.
func (s *Scheduler) Keep(ctx context.Context, report func(error)) error {
	if s.Leases == nil || s.Name == "" {
		return fmt.Errorf("shard: %w: Scheduler.Keep needs Name and Leases", orbit.ErrInvalid)
	}
	ttl := s.Leases.TTL
	if ttl <= 0 {
		ttl = 60 * time.Second
	}
	var term lease.Term
	for holder := fmt.Sprintf("%s-%016x", s.Name, rand.Uint64()); ctx.Err() == nil; pause(ctx, ttl/3) {
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

// hold refreshes a term, or begins another one if it is over or there was none.
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
		return fmt.Errorf("shard: scheduler %q: another one has this name; give each one a name of its own: %w", s.Name, err)
	case err != nil:
		return err
	}
	*term = next
	s.Serve(next)
	return nil
}

var (
	// ErrNoTerm says that a scheduler that needs a lease has none.
	ErrNoTerm = errors.New("scheduler holds no lease")
	// ErrStuck says that a Plan of a scheduler has not returned for longer than its lease lives.
	ErrStuck = errors.New("plan does not return")
)

// Plan lets the navigator inside plan, puts the bet on the term into its proposals, and adds those that give capsules
// back. It notes "givenBack" capsules. What has been given back is reported as unplaced with a [*GivenBackError].
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
	plan, err := s.Navigator.Plan(ctx, view, pending)
	back := s.giveBack(view, &plan)
	plan.Proposals = append(plan.Proposals, back...)
	if fence != nil {
		for i := range plan.Proposals {
			p := &plan.Proposals[i]
			p.If = append(p.If[:len(p.If):len(p.If)], fence)
		}
	}
	plan.Notes = append(plan.Notes, slog.Int("givenBack", len(back)))
	return plan, err
}

// fence returns the bet on the term, nil without leases, and reports whether the view has reached the term: an older one
// may show as its own what others have been given since.
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
		return nil, false, fmt.Errorf("shard: scheduler %q: %w: its term %d is over; what it had has been given to others", s.Name, ErrNoTerm, term.Epoch)
	}
	return orbit.MarkAt{Key: s.Leases.Key(s.Name), Revision: term.Epoch}, true, nil
}
