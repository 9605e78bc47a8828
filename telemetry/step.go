package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// LeaseRound is what one step of [Leases] did.
type LeaseRound struct {
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
func (r *LeaseRound) active() bool {
	return len(r.Ended)+len(r.Swept)+r.Conflicts+r.Unknown+len(r.Errors) > 0
}

const (
	maxEnds   = 1024 // ends committed in one step
	maxSweeps = 64   // rows swept in one step
	maxErrors = 16
)

// Step does one round: it follows the ledger, commits the ends of leases that have run out, and sweeps the rows of
// those that have been over for long, oldest first, at most 64 a step. A term whose end has come is over: no
// refresh in between wins. What is left goes on in the next step, for which LeaseRound.Next says the time. Errors
// are those in the round, joined; a row that is corrupt stops none of the others.
func (l *Leases) Step(ctx context.Context) (LeaseRound, error) {
	leave, err := l.enter(ctx)
	if err != nil {
		return LeaseRound{}, err
	}
	defer leave()
	with := riders{ready: always}
	round := l.step(ctx, with)
	l.conclude(&round, with.ready)
	return round, errors.Join(round.Errors...)
}

// enter waits for its turn to step: not on a lock, for the ledger is asked meanwhile.
func (l *Leases) enter(ctx context.Context) (leave func(), err error) {
	l.init()
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
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
func (l *Leases) step(ctx context.Context, with riders) (round LeaseRound) {
	if err := l.follow(ctx); err != nil {
		round.fail(err)
		return round
	}
	l.commit(ctx, l.ends(&round), with.ending, &round)
	l.commit(ctx, l.sweeps(with.ready), with.sweeping, &round)
	return round
}

// errand is one change of a row that a step is to commit.
type errand struct {
	lease lease // as it was when it was looked at
	to    row
	p     *orbit.Proposal
}

// ends returns the leases whose end is to be committed, the earliest first.
func (l *Leases) ends(round *LeaseRound) []errand {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	round.View = l.seen
	l.expire(now)
	l.sortDead()
	var out []errand
	for _, le := range l.dead[:min(len(l.dead), maxEnds)] {
		out = append(out, errand{lease: *le, to: row{holder: le.holder, ended: now}, p: le.sent})
	}
	return out
}

// sortDead leaves in dead what is dead, in order. It requires the lock.
func (l *Leases) sortDead() {
	l.dead = slices.DeleteFunc(l.dead, func(le *lease) bool {
		le.listed = le.state == isDead
		return !le.listed
	})
	slices.SortFunc(l.dead, func(a, b *lease) int {
		return cmp.Or(a.end.Compare(b.end), cmp.Compare(a.name, b.name))
	})
}

// sweeps returns the leases whose row is to be swept away, the oldest first.
func (l *Leases) sweeps(ready func(*lease) bool) []errand {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	var out []errand
	for _, le := range l.over {
		if now.Before(le.ended.Add(l.sweep())) || len(out) == maxSweeps {
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
func (l *Leases) commit(ctx context.Context, errands []errand, with rider, round *LeaseRound) {
	if len(errands) == 0 {
		return
	}
	var state *orbit.State
	if with != nil {
		var err error
		if state, err = l.Ledger.Snapshot(ctx); err != nil {
			round.fail(fmt.Errorf("telemetry: leases: %w", err))
			return
		}
	}
	var batch []orbit.Proposal
	var sent []*errand
	for i := range errands {
		e := &errands[i]
		if e.p == nil && !l.prepare(e, state, with, round) {
			continue
		}
		batch, sent = append(batch, *e.p), append(sent, e)
	}
	for i, o := range propose(ctx, l.Ledger, batch) {
		l.settle(sent[i], o, round)
	}
}

// prepare makes the proposal of an errand. It reports false if the row must not change now.
func (l *Leases) prepare(e *errand, state *orbit.State, with rider, round *LeaseRound) bool {
	e.p = l.change(e.to, &e.lease, round.View)
	if with == nil {
		return true
	}
	do, bets, ok := with(state, &e.lease)
	e.p.Do, e.p.If = append(e.p.Do, do...), append(e.p.If, bets...)
	if !ok {
		l.note(&e.lease, memberNote{})
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
func (l *Leases) settle(e *errand, o orbit.Outcome, round *LeaseRound) {
	again := (*orbit.Proposal)(nil)
	switch {
	case o.Err == nil && e.to.holder == "":
		round.Swept = append(round.Swept, e.lease.name)
		l.committed(e.lease.name, e.p, o.Revision)
	case o.Err == nil:
		round.Ended = append(round.Ended, Term{Name: e.lease.name, Holder: e.lease.holder, Epoch: e.lease.epoch})
		l.committed(e.lease.name, e.p, o.Revision)
	case errors.Is(o.Err, orbit.ErrConflict):
		round.Conflicts++
	case errors.Is(o.Err, orbit.ErrUnknown) || e.lease.sent != nil && errors.Is(o.Err, orbit.ErrUnavailable):
		round.Unknown++
		again = e.p
		round.fail(fmt.Errorf("telemetry: lease %q: %w", e.lease.name, o.Err))
	default:
		round.fail(fmt.Errorf("telemetry: lease %q: %w", e.lease.name, o.Err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if le := l.leases[e.lease.name]; le != nil && le.at == e.lease.at && le.state == e.lease.state {
		le.sent = again
	}
}

// fail keeps an error of the ledger, up to a bound.
func (r *LeaseRound) fail(err error) {
	r.failed = true
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
}

// conclude says how things stand at the end of a step.
func (l *Leases) conclude(round *LeaseRound, ready func(*lease) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	l.expire(now)
	l.sortDead()
	round.Live, round.Next = l.live, sooner(round.Next, l.next(now, ready))
	var names []string
	for name := range l.corrupt {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxErrors)] {
		round.Errors = append(round.Errors, &LeaseError{Kind: ErrCorrupt, Term: Term{Name: name}, Reason: l.corrupt[name].Error()})
	}
}
