package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// faulty is a ledger with faults.
type faulty struct {
	orbit.Ledger
	faults *Faults
}

// faultyBatcher is a faulty ledger that takes batches.
type faultyBatcher struct {
	*faulty
	batcher orbit.Batcher
}

// Propose implements [orbit.Ledger].
func (l *faulty) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	fault, pause := l.faults.draw(p)
	if err := l.before(ctx, fault, pause); err != nil {
		return 0, err
	}
	rev, err := l.Ledger.Propose(ctx, p)
	return l.after(ctx, fault, pause, rev, err)
}

// before applies a fault that comes before the proposal is sent. The error is the answer; nil: the proposal is sent.
func (l *faulty) before(ctx context.Context, fault Fault, pause time.Duration) error {
	switch fault {
	case Conflict:
		s, err := l.Ledger.Snapshot(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w, and no conflict either: %w", orbit.ErrUnavailable, ErrInjected, err)
		}
		return &orbit.Rejection{Kind: orbit.ErrConflict, Do: -1, Reason: ErrInjected.Error(), At: s.Revision(), TakenAt: s.Revision()}
	case Unavailable:
		return fmt.Errorf("%w: %w", orbit.ErrUnavailable, ErrInjected)
	case Lost:
		return fmt.Errorf("%w: %w", orbit.ErrUnknown, ErrInjected)
	case Panicked:
		panic(Panicked)
	case Delayed:
		if early(pause) {
			send.Pause(ctx, pause)
		}
	}
	return nil
}

// after applies a fault that changes or delays an answer.
func (l *faulty) after(ctx context.Context, fault Fault, pause time.Duration, rev orbit.Revision, err error) (orbit.Revision, error) {
	switch {
	case fault == Applied && !errors.Is(err, orbit.ErrUnavailable):
		return 0, fmt.Errorf("%w: %w", orbit.ErrUnknown, ErrInjected)
	case fault == Delayed && !early(pause):
		send.Pause(ctx, pause)
	}
	return rev, err
}

// early reports whether a delay comes before the proposal is sent; otherwise it comes after the answer.
func early(pause time.Duration) bool { return pause/time.Microsecond%2 == 0 }

// ProposeBatch implements [orbit.Batcher].
func (l *faultyBatcher) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	faults, pauses := make([]Fault, len(batch)), make([]time.Duration, len(batch))
	var sent []orbit.Proposal
	var at []int
	for i := range batch {
		faults[i], pauses[i] = l.faults.draw(batch[i])
		if out[i].Err = l.before(ctx, faults[i], pauses[i]); out[i].Err == nil {
			sent, at = append(sent, batch[i]), append(at, i)
		}
	}
	answers := l.batcher.ProposeBatch(ctx, sent)
	for k, i := range at {
		o := orbit.Outcome{Err: orbit.ErrUnknown} // for a proposal to which the ledger has returned no outcome
		if k < len(answers) {
			o = answers[k]
		}
		out[i].Revision, out[i].Err = l.after(ctx, faults[i], pauses[i], o.Revision, o.Err)
	}
	return out
}

// read applies the fault of a read.
func (l *faulty) read(ctx context.Context) error {
	switch fault, pause := l.faults.drawRead(); fault {
	case Unavailable:
		return fmt.Errorf("%w: %w", orbit.ErrUnavailable, ErrInjected)
	case Delayed:
		send.Pause(ctx, pause)
	}
	return nil
}

// Snapshot implements [orbit.Ledger].
func (l *faulty) Snapshot(ctx context.Context) (*orbit.State, error) {
	if err := l.read(ctx); err != nil {
		return nil, err
	}
	return l.Ledger.Snapshot(ctx)
}

// Changes implements [orbit.Ledger].
func (l *faulty) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if err := l.read(ctx); err != nil {
		return nil, err
	}
	return l.Ledger.Changes(ctx, after)
}

// Wait implements [orbit.Ledger].
func (l *faulty) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	if err := l.read(ctx); err != nil {
		return 0, err
	}
	return l.Ledger.Wait(ctx, after)
}
