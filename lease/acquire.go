package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
	"github.com/orbitsched/orbit/internal/send"
)

// rider returns the commitments and bets that are added to the proposal which changes a row, such as the PutNode that
// cordons the node together with the end of its lease. After an error the row must not be changed now.
type rider func(state *orbit.State, le *lease) (do []orbit.Commitment, bets []orbit.Precondition, err error)

// Acquire begins a term of the lease for the holder. It commits a mark, with a bet on the previous mark of the lease.
// The same holder may begin a new term at any time, which ends the old one at once; another holder may do so only when
// the lease is over.
//
// A holder should have a name that two living things never share, such as that of a process or of a machine, and not
// one that is made of the name of the lease: whoever asks for the lease would have that one. A holder that may start
// again under its name adds the name of the run, as in "machine-1#5f3c": another run of machine-1 may begin a term only
// when the present one has not been refreshed for half of TTL, or after [Keeper.Yield]; until then the error is
// [ErrRunning].
//
// The error is a [*Error] ([ErrHeld], [ErrRunning], [ErrCorrupt], [ErrTooMany], [orbit.ErrInvalid]) or the ledger's. A
// proposal whose outcome is unknown is sent again until ctx ends. If ctx ends first and the proposal was committed all
// the same, the term is never refreshed, and it runs out.
func (k *Keeper) Acquire(ctx context.Context, name, holder string) (Term, error) {
	return k.acquire(ctx, name, holder, nil)
}

func (k *Keeper) acquire(ctx context.Context, name, holder string, with rider) (Term, error) {
	k.init()
	if err := badLease(name, holder); err != nil {
		return Term{}, err
	}
	var shared fresh
	for {
		if err := k.follow(ctx); err != nil {
			return Term{}, err
		}
		heard, err := k.probe(ctx, Term{Name: name, Holder: holder})
		if err != nil {
			return Term{}, err
		}
		was, view, err := k.claimable(Term{Name: name, Holder: holder}, heard)
		if err != nil {
			return Term{}, err
		}
		if err := k.renew(ctx, &shared); err != nil {
			return Term{}, fmt.Errorf("lease %q: %w", name, err)
		}
		p := k.change(row{live: true, holder: holder, token: shared.token}, &was, view) // the view of the row, which was read before the snapshot below
		if with != nil {
			state, err := k.Ledger.Snapshot(ctx)
			if err != nil {
				return Term{}, fmt.Errorf("lease %q: %w", name, err)
			}
			do, bets, err := with(state, &was)
			if err != nil {
				return Term{}, err
			}
			p.Do, p.If = append(p.Do, do...), append(p.If, bets...)
		}
		rev, err := send.Settle(ctx, k.Ledger, *p)
		switch {
		case err == nil:
			k.committed(name, p, rev)
			term := Term{Name: name, Holder: holder, Epoch: rev}
			k.promised(term, shared.began.Add(k.ttl()))
			return term, nil
		case !errors.Is(err, orbit.ErrConflict) || ctx.Err() != nil:
			return Term{}, fmt.Errorf("lease %q: %w", name, err)
		}
	}
}

// claimable returns a copy of this process's record of the lease, or an error if the holder must not begin a term. Heard is what probe
// has returned.
func (k *Keeper) claimable(t Term, heard time.Time) (was lease, view orbit.Revision, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, le := k.clock(), k.leases[t.Name]
	if le == nil {
		return lease{name: t.Name}, k.seen, nil
	}
	if le.state == isCorrupt {
		return lease{}, 0, &Error{Kind: ErrCorrupt, Term: t, Reason: k.corrupt[t.Name].Error()}
	}
	if k.alive(t.Name, now) != nil {
		if err := k.refused(t, le, now, heard); err != nil {
			return lease{}, 0, err
		}
	}
	left := le.terms
	if wait := k.begin(&left, now); wait > 0 {
		return lease{}, 0, &Error{Kind: ErrTooMany, Term: t, Until: now.Add(wait)}
	}
	return *le, k.seen, nil
}

// begin takes one term from a name's allowance and returns 0. If no term is left, it takes none and returns the time
// until the next one becomes available.
func (k *Keeper) begin(left *rate.Allowance, now time.Time) time.Duration {
	terms := cmp.Or(k.Terms, defaultTerms)
	if terms <= 0 {
		return 0
	}
	return left.Take(now, time.Hour/time.Duration(terms), terms)
}

// change returns the proposal that sets a row to a new value; an empty holder deletes the row. It bets that the row has
// not changed since this process read it.
func (k *Keeper) change(to row, le *lease, view orbit.Revision) *orbit.Proposal {
	key, value := k.Key(le.name), ""
	if to.holder != "" {
		value = to.String()
	}
	return &orbit.Proposal{
		ID: orbit.NewProposalID(), View: view,
		Do: []orbit.Commitment{orbit.Mark{Key: key, Value: value}},
		If: []orbit.Precondition{orbit.MarkAt{Key: key, Revision: le.bet}},
	}
}

// committed applies a row change that this process has just committed, so that it holds here before the ledger is read
// again. The first commitment of p must be the row's mark. If the ledger has been read up to that revision already,
// committed does nothing.
func (k *Keeper) committed(name string, p *orbit.Proposal, at orbit.Revision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if mark, ok := p.Do[0].(orbit.Mark); ok && at > k.seen {
		k.learn(name, mark.Value, at, k.clock())
	}
}

// Resign ends a term early: in this process at once, and in the ledger by a commit. If the ledger cannot be reached,
// Resign returns its error, and the next Step commits the end. The error is a [*Error] if the term is over already.
func (k *Keeper) Resign(ctx context.Context, t Term) error {
	k.init()
	p, err := k.resign(t)
	if err != nil {
		return err
	}
	rev, err := k.Ledger.Propose(ctx, *p)
	if err != nil && !errors.Is(err, orbit.ErrConflict) {
		return fmt.Errorf("lease %q is resigned, which the next Step commits: %w", t.Name, err)
	} else if err == nil {
		k.committed(t.Name, p, rev)
	}
	return nil
}

// resign ends a term in this process, and returns the proposal that commits the end.
func (k *Keeper) resign(t Term) (*orbit.Proposal, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	le, expired := k.current(t, now)
	if expired != nil {
		return nil, expired
	}
	k.end(le)
	le.sent = k.change(row{holder: le.holder, ended: now}, le, k.seen)
	return le.sent, nil
}
