// Package send sends proposals to any ledger.
package send

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
)

// All sends a batch, in one call if the ledger is an [orbit.Batcher], and returns one outcome for each proposal. The
// outcome of a proposal that the ledger leaves out of its answer is ErrUnknown.
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

// First and Most are the shortest and the longest wait before a proposal with an unknown outcome is sent again. The
// wait doubles each time (exponential backoff).
const (
	First = 10 * time.Millisecond
	Most  = time.Second
)

// Settle sends a proposal, which must have an id, until its outcome is known. If ctx ends before that, the error wraps
// ErrUnknown and the error of ctx. An ErrUnavailable that follows an ErrUnknown is no outcome: it says that the
// repetition was not sent, but nothing about the first attempt.
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

// Pause waits for d; false: ctx has ended before.
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
