package ledgertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// recorded is a recorded handle.
type recorded struct {
	orbit.Ledger
	recorder *Recorder
	number   int
}

// recordedBatcher is a recorded handle that is an orbit.Batcher.
type recordedBatcher struct {
	*recorded
	batcher orbit.Batcher
}

// call returns a call that begins now. Its outcome is unknown if the ledger panics.
func (l *recorded) call(kind Kind) *Call {
	return &Call{Handle: l.number, Kind: kind, Start: l.recorder.begin(), Err: errPanicked}
}

var errPanicked = fmt.Errorf("%w: the call has panicked", orbit.ErrUnknown)

// Propose implements [orbit.Ledger].
func (l *recorded) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if p.ID.IsZero() {
		p.ID = orbit.NewProposalID()
	}
	c := l.call(Propose)
	c.Proposal = p
	defer func() { l.recorder.end(*c) }()
	c.Revision, c.Err = l.Ledger.Propose(ctx, p)
	return c.Revision, c.Err
}

// ProposeBatch implements [orbit.Batcher].
func (l *recordedBatcher) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	batch = append([]orbit.Proposal(nil), batch...)
	calls := make([]Call, len(batch))
	begin := l.recorder.begin()
	for i := range batch {
		if batch[i].ID.IsZero() {
			batch[i].ID = orbit.NewProposalID()
		}
		calls[i] = Call{Handle: l.number, Kind: Propose, Start: begin, Proposal: batch[i], Err: errPanicked}
	}
	defer func() { l.recorder.end(calls...) }()
	out := l.batcher.ProposeBatch(ctx, batch)
	for i := range calls {
		if calls[i].Err = errLeftOut; i < len(out) {
			calls[i].Revision, calls[i].Err = out[i].Revision, out[i].Err
		}
	}
	return out
}

var errLeftOut = errors.New("the ledger has left the proposal out of its answer")

// Snapshot implements [orbit.Ledger].
func (l *recorded) Snapshot(ctx context.Context) (*orbit.State, error) {
	c := l.call(Snapshot)
	defer func() { l.recorder.end(*c) }()
	s, err := l.Ledger.Snapshot(ctx)
	if c.Err = err; s != nil {
		c.Revision = s.Revision()
		if l.recorder.keeps() {
			c.State = s
		}
	}
	return s, err
}

// Changes implements [orbit.Ledger].
func (l *recorded) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	c := l.call(Changes)
	c.After = after
	defer func() { l.recorder.end(*c) }()
	c.Changes, c.Err = l.Ledger.Changes(ctx, after)
	return c.Changes, c.Err
}

// Wait implements [orbit.Ledger].
func (l *recorded) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	c := l.call(Wait)
	c.After = after
	defer func() { l.recorder.end(*c) }()
	c.Revision, c.Err = l.Ledger.Wait(ctx, after)
	return c.Revision, c.Err
}
