package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// Round is what one step of [Keeper] did.
type Round struct {
	// View is the revision up to which the ledger was read before anything was proposed.
	View orbit.Revision
	// Live is the number of leases that are live now, as far as this process knows.
	Live int
	// Ended are the terms whose end this step has committed, in the order in which they ended.
	Ended []Term
	// Swept are the names whose row this step has deleted, oldest first.
	Swept []string
	// Conflicts is the number of proposals that were refused because another process was first; the next step decides
	// again.
	Conflicts int
	// Unknown is the number of proposals whose outcome is not known; the next step sends them again.
	Unknown int
	// Next is the time at which the next step has something to do, unless something happens before; zero: no such time
	// is known.
	Next time.Time
	// Errors are all errors except conflicts: those of corrupt rows and those of the ledger, at most 16 of each.
	Errors []error

	failed bool // a call of the ledger has failed
}

// active reports whether the step did something or failed, so that Hook is called.
func (r *Round) active() bool {
	return len(r.Ended)+len(r.Swept)+r.Conflicts+r.Unknown+len(r.Errors) > 0
}

const (
	maxEnds   = 1024 // ends committed in one step
	maxSweeps = 64   // rows swept in one step
	maxErrors = 16
)

// Step does one round. It reads the ledger's changes, passes refreshes on to Refreshes if these are set, commits the
// ends of leases that have run out (at most 1,024), and deletes the rows of leases that have been over for
// [Keeper.Sweep], the oldest first (at most 64). A term whose end has come is over: no refresh that arrives before the
// commit revives it. The next step goes on with the rest; Round.Next says when. The error joins the errors in the
// round. A corrupt row does not affect the other leases.
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

// enter waits for its turn to step. It uses a channel and not a lock, because a step calls the ledger and the wait has
// to end with ctx.
func (k *Keeper) enter(ctx context.Context) (leave func(), err error) {
	k.init()
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// riders are what Members commits together with the changes of rows.
type riders struct {
	ending, sweeping rider             // nil: nothing
	ready            func(*lease) bool // the row of a lease that is over may be swept; called under the lock
}

func always(*lease) bool { return true }

// step does one round with riders, without the summary that conclude adds. The caller must hold the turn.
func (k *Keeper) step(ctx context.Context, with riders) (round Round) {
	err := k.follow(ctx)
	k.share(ctx, &round) // also while the ledger cannot be reached
	if err != nil {
		round.fail(err)
		return round
	}
	k.commit(ctx, k.ends(&round), with.ending, &round)
	k.commit(ctx, k.sweeps(with.ready), with.sweeping, &round)
	return round
}

// rowChange is one change of a row that a step has to commit.
type rowChange struct {
	lease lease // a copy from when the change was decided
	to    row
	p     *orbit.Proposal
}

// ends returns the leases whose end is to be committed, the earliest first.
func (k *Keeper) ends(round *Round) []rowChange {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	round.View = k.seen
	k.expire(now)
	k.sortDead()
	var out []rowChange
	for _, le := range k.dead[:min(len(k.dead), maxEnds)] {
		out = append(out, rowChange{lease: *le, to: row{holder: le.holder, ended: now}, p: le.sent})
	}
	return out
}

// sortDead removes the leases that are no longer dead from the list dead, and sorts the list by the time of their end.
// The caller must hold the lock.
func (k *Keeper) sortDead() {
	k.dead = slices.DeleteFunc(k.dead, func(le *lease) bool {
		le.listed = le.state == isDead
		return !le.listed
	})
	slices.SortFunc(k.dead, func(a, b *lease) int {
		return cmp.Or(a.end.Compare(b.end), cmp.Compare(a.name, b.name))
	})
}

// sweeps returns the leases whose row is to be deleted, the oldest first.
func (k *Keeper) sweeps(ready func(*lease) bool) []rowChange {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	var out []rowChange
	for _, le := range k.over {
		if now.Before(le.since.Add(k.sweepInterval())) || len(out) == maxSweeps {
			break
		}
		if ready(le) {
			out = append(out, rowChange{lease: *le, p: le.sent})
		}
	}
	return out
}

// commit proposes all changes and records the outcomes. If a change has been sent before with an unknown outcome,
// commit sends the same proposal again.
func (k *Keeper) commit(ctx context.Context, changes []rowChange, with rider, round *Round) {
	if len(changes) == 0 {
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
	var sent []*rowChange
	for i := range changes {
		e := &changes[i]
		if e.p == nil && !k.prepare(e, state, with, round) {
			continue
		}
		batch, sent = append(batch, *e.p), append(sent, e)
	}
	for i, o := range send.All(ctx, k.Ledger, batch) {
		k.recordOutcome(sent[i], o, round)
	}
}

// prepare makes the proposal of a rowChange. It reports false if the row must not change now.
func (k *Keeper) prepare(e *rowChange, state *orbit.State, with rider, round *Round) bool {
	e.p = k.change(e.to, &e.lease, round.View)
	if with == nil {
		return true
	}
	do, bets, err := with(state, &e.lease)
	e.p.Do, e.p.If = append(e.p.Do, do...), append(e.p.If, bets...)
	if err != nil {
		k.note(&e.lease, memberNote{})
	}
	return err == nil
}

// recordOutcome applies the outcome of a rowChange to the lease and the round. If the outcome is unknown, the lease
// keeps the proposal, so that the next step sends it again.
func (k *Keeper) recordOutcome(e *rowChange, o orbit.Outcome, round *Round) {
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

// fail adds an error of the ledger to the round, up to a limit.
func (r *Round) fail(err error) {
	r.failed = true
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
}

// conclude fills in the parts of the round that describe the state after the step.
func (k *Keeper) conclude(round *Round, ready func(*lease) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	k.expire(now)
	k.sortDead()
	round.Live, round.Next = k.live, sooner(round.Next, k.next(now, ready))
	names := slices.Sorted(maps.Keys(k.corrupt))
	for _, name := range names[:min(len(names), maxErrors)] {
		round.Errors = append(round.Errors, &Error{Kind: ErrCorrupt, Term: Term{Name: name}, Reason: k.corrupt[name].Error()})
	}
}
