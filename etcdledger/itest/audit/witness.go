package audit

import (
	"context"
	"errors"

	"github.com/orbitsched/orbit"
)

// Kind is the kind of a proposal's answer.
type Kind string

// The kinds of answers.
const (
	Committed   Kind = "committed"
	Conflict    Kind = "conflict"
	Infeasible  Kind = "infeasible"
	Invalid     Kind = "invalid"
	Unknown     Kind = "unknown"
	Unavailable Kind = "unavailable"
	Other       Kind = "other"
)

// Answer is a ledger's answer to one proposal.
type Answer struct {
	// ID is the id of the proposal.
	ID orbit.ProposalID `json:"id"`
	// Kind is what the ledger has answered.
	Kind Kind `json:"kind"`
	// Revision is that of the commit; 0: the answer is an error.
	Revision orbit.Revision `json:"revision,omitempty"`
}

// Witness is a ledger that reports every answer before it returns the answer. If the process is killed after the
// report, the answer counts as given. Its methods may be called from any goroutine.
type Witness struct {
	orbit.Ledger
	// Tell is called from the goroutine of the call, with the proposal that was answered.
	Tell func(p *orbit.Proposal, a Answer, err error)
}

// Propose implements [orbit.Ledger].
func (w *Witness) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	rev, err := w.Ledger.Propose(ctx, p)
	w.tell(&p, rev, err)
	return rev, err
}

// ProposeBatch implements [orbit.Batcher]. It proposes one by one if the ledger is no Batcher.
func (w *Witness) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	b, ok := w.Ledger.(orbit.Batcher)
	if !ok {
		out := make([]orbit.Outcome, len(batch))
		for i := range batch {
			out[i].Revision, out[i].Err = w.Propose(ctx, batch[i])
		}
		return out
	}
	out := b.ProposeBatch(ctx, batch)
	for i := range batch {
		w.tell(&batch[i], out[i].Revision, out[i].Err)
	}
	return out
}

func (w *Witness) tell(p *orbit.Proposal, rev orbit.Revision, err error) {
	w.Tell(p, Answer{ID: p.ID, Kind: KindOf(err), Revision: rev}, err)
}

// KindOf returns the kind of an answer by its error.
func KindOf(err error) Kind {
	switch {
	case err == nil:
		return Committed
	case errors.Is(err, orbit.ErrConflict):
		return Conflict
	case errors.Is(err, orbit.ErrInfeasible):
		return Infeasible
	case errors.Is(err, orbit.ErrInvalid):
		return Invalid
	case errors.Is(err, orbit.ErrUnknown):
		return Unknown
	case errors.Is(err, orbit.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	default:
		return Other
	}
}
