// Package send sends proposals to any ledger.
package send

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
)

// All sends a batch, in one call if the ledger is an [orbit.Batcher], and returns an outcome for each proposal. It is
// ErrUnknown for a proposal that the ledger has left out of its answer.
func All(ctx context.Context, ledger orbit.Ledger, batch []orbit.Proposal) []orbit.Outcome {
	if len(batch) == 0 {
		return nil
	}
	out := make([]orbit.Outcome, len(batch))
	if b, ok := ledger.(orbit.Batcher); ok {
		for i := range out {
			out[i].Err = orbit.ErrUnknown
		}
		copy(out, b.ProposeBatch(ctx, batch))
		return out
	}
	for i := range batch {
		out[i].Revision, out[i].Err = ledger.Propose(ctx, batch[i])
	}
	return out
}

// First and Most are the first and the longest wait before a proposal with an unknown outcome is sent again. Each wait is
// twice as long as the one before.
const (
	First = 10 * time.Millisecond
	Most  = time.Second
)

// Settle sends a proposal, which must have an id, until its outcome is known. If ctx ends before, the error wraps
// ErrUnknown and the context's error. ErrUnavailable after ErrUnknown is no outcome: it says that the repetition was not
// sent, and nothing about the first time.
func Settle(ctx context.Context, ledger orbit.Ledger, p orbit.Proposal) (orbit.Revision, error) {
	var unknown error
	for wait := First; ; wait = min(2*wait, Most) {
		rev, err := ledger.Propose(ctx, p)
		switch {
		case errors.Is(err, orbit.ErrUnknown):
			unknown = err
		case unknown == nil || !errors.Is(err, orbit.ErrUnavailable):
			return rev, err
		}
		if !Pause(ctx, wait) {
			return 0, errors.Join(unknown, ctx.Err())
		}
	}
}

// Pause waits for d, and reports false if ctx ends before.
func Pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
