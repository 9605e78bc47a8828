package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// Round is what one step of [Keeper] did.
type Round struct {
	// The ledger was followed up to here before anything was proposed.
	View orbit.Revision
	// Leases that live now, as far as this process knows.
	Live int
	// Terms whose end this step has committed, in the order in which they ended.
	Ended []Term
	// Leases whose row this step has swept away, oldest first.
	Swept []string
	// Proposals lost to another process; looked at again in the next step.
	Conflicts int
	// Proposals whose outcome is not known; sent again in the next step.
	Unknown int
	// When there is more to do, if nothing else happens; zero: nothing is known.
	Next time.Time
	// All that went wrong but conflicts: rows that are corrupt, and what the ledger says; at most 16 of each.
	Errors []error

	failed bool // the ledger has
}

// active reports whether there is anything to tell.
func (r *Round) active() bool {
	return len(r.Ended)+len(r.Swept)+r.Conflicts+r.Unknown+len(r.Errors) > 0
}

const (
	maxEnds   = 1024 // ends committed in one step
	maxSweeps = 64   // rows swept in one step
	maxErrors = 16
)

// Step does one round: it follows the ledger, commits the ends of leases that have run out, and sweeps the rows of
// those that have been over for long, oldest first, at most 64 a step. A term whose end has come is over: no
// refresh in between wins. What is left goes on in the next step, for which Round.Next says the time. Errors
// are those in the round, joined; a row that is corrupt stops none of the others.
func (k *Keeper) Step(ctx context.Context) (Round, error) {
	leave, err := k.enter(ctx)
	if err != nil {
		return Round{}, err
	}
	defer leave()
	with := riders{ready: always}
	round := k.step(ctx, with)
	k.conclude(&round, with.ready)
	return round, errors.Join(round.Errors...)
}

// enter waits for its turn to step: not on a lock, for the ledger is asked meanwhile.
func (k *Keeper) enter(ctx context.Context) (leave func(), err error) {
	k.init()
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// riders are what somebody who keeps more than leases commits with the changes of rows.
type riders struct {
	ending, sweeping rider             // nil: nothing
	ready            func(*lease) bool // the row of a lease that is over may be swept; called under the lock
}

func always(*lease) bool { return true }

// step is Step with riders, but for its conclusion. It requires the turn.
func (k *Keeper) step(ctx context.Context, with riders) (round Round) {
	if err := k.follow(ctx); err != nil {
		round.fail(err)
		return round
	}
	k.commit(ctx, k.ends(&round), with.ending, &round)
	k.commit(ctx, k.sweeps(with.ready), with.sweeping, &round)
	return round
}

// errand is one change of a row that a step is to commit.
type errand struct {
	lease lease // as it was when it was looked at
	to    row
	p     *orbit.Proposal
}

// ends returns the leases whose end is to be committed, the earliest first.
func (k *Keeper) ends(round *Round) []errand {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	round.View = k.seen
	k.expire(now)
	k.sortDead()
	var out []errand
	for _, le := range k.dead[:min(len(k.dead), maxEnds)] {
		out = append(out, errand{lease: *le, to: row{holder: le.holder, ended: now}, p: le.sent})
	}
	return out
}

// sortDead leaves in dead what is dead, in order. It requires the lock.
func (k *Keeper) sortDead() {
	k.dead = slices.DeleteFunc(k.dead, func(le *lease) bool {
		le.listed = le.state == isDead
		return !le.listed
	})
	slices.SortFunc(k.dead, func(a, b *lease) int {
		return cmp.Or(a.end.Compare(b.end), cmp.Compare(a.name, b.name))
	})
}

// sweeps returns the leases whose row is to be swept away, the oldest first.
func (k *Keeper) sweeps(ready func(*lease) bool) []errand {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	var out []errand
	for _, le := range k.over {
		if now.Before(le.ended.Add(k.sweep())) || len(out) == maxSweeps {
			break
		}
		if ready(le) {
			out = append(out, errand{lease: *le, p: le.sent})
		}
	}
	return out
}

// commit proposes one change of a row for each errand, and sorts the outcomes. What may have been committed before
// is sent again as it was.
func (k *Keeper) commit(ctx context.Context, errands []errand, with rider, round *Round) {
	if len(errands) == 0 {
		return
	}
	var state *orbit.State
	if with != nil {
		var err error
		if state, err = k.Ledger.Snapshot(ctx); err != nil {
			round.fail(fmt.Errorf("lease: %w", err))
			return
		}
	}
	var batch []orbit.Proposal
	var sent []*errand
	for i := range errands {
		e := &errands[i]
		if e.p == nil && !k.prepare(e, state, with, round) {
			continue
		}
		batch, sent = append(batch, *e.p), append(sent, e)
	}
	for i, o := range propose(ctx, k.Ledger, batch) {
		k.settle(sent[i], o, round)
	}
}

// prepare makes the proposal of an errand. It reports false if the row must not change now.
func (k *Keeper) prepare(e *errand, state *orbit.State, with rider, round *Round) bool {
	e.p = k.change(e.to, &e.lease, round.View)
	if with == nil {
		return true
	}
	do, bets, ok := with(state, &e.lease)
	e.p.Do, e.p.If = append(e.p.Do, do...), append(e.p.If, bets...)
	if !ok {
		k.note(&e.lease, memberNote{})
	}
	return ok
}

// propose sends proposals in one call where the ledger takes that.
func propose(ctx context.Context, ledger orbit.Ledger, batch []orbit.Proposal) []orbit.Outcome {
	if b, ok := ledger.(orbit.Batcher); ok && len(batch) > 1 {
		out := b.ProposeBatch(ctx, batch)
		for len(out) < len(batch) {
			out = append(out, orbit.Outcome{Err: orbit.ErrUnknown})
		}
		return out[:len(batch)]
	}
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = ledger.Propose(ctx, batch[i])
	}
	return out
}

// settle takes over the outcome of an errand.
func (k *Keeper) settle(e *errand, o orbit.Outcome, round *Round) {
	again := (*orbit.Proposal)(nil)
	switch {
	case o.Err == nil && e.to.holder == "":
		round.Swept = append(round.Swept, e.lease.name)
		k.committed(e.lease.name, e.p, o.Revision)
	case o.Err == nil:
		round.Ended = append(round.Ended, Term{Name: e.lease.name, Holder: e.lease.holder, Epoch: e.lease.epoch})
		k.committed(e.lease.name, e.p, o.Revision)
	case errors.Is(o.Err, orbit.ErrConflict):
		round.Conflicts++
	case errors.Is(o.Err, orbit.ErrUnknown) || e.lease.sent != nil && errors.Is(o.Err, orbit.ErrUnavailable):
		round.Unknown++
		again = e.p
		round.fail(fmt.Errorf("lease %q: %w", e.lease.name, o.Err))
	default:
		round.fail(fmt.Errorf("lease %q: %w", e.lease.name, o.Err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if le := k.leases[e.lease.name]; le != nil && le.at == e.lease.at && le.state == e.lease.state {
		le.sent = again
	}
}

// fail keeps an error of the ledger, up to a bound.
func (r *Round) fail(err error) {
	r.failed = true
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
}

// conclude says how things stand at the end of a step.
func (k *Keeper) conclude(round *Round, ready func(*lease) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	k.expire(now)
	k.sortDead()
	round.Live, round.Next = k.live, sooner(round.Next, k.next(now, ready))
	var names []string
	for name := range k.corrupt {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxErrors)] {
		round.Errors = append(round.Errors, &Error{Kind: ErrCorrupt, Term: Term{Name: name}, Reason: k.corrupt[name].Error()})
	}
}
