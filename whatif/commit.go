package whatif

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// Commit sends the proposals of the report to the ledger, in their order. If the ledger is still at the revision of
// Before, and nothing else is committed meanwhile, all proposals are committed, and the ledger ends in a state like
// After.
//
// Otherwise Commit stops at the first proposal that is refused, because later ones may rest on it. Done is the number
// of committed proposals. The error wraps the receipt of the refused one, which says what has changed; none of its
// commitments takes effect. After ErrUnknown and ErrUnavailable call Commit again: proposals that are committed already
// are not committed a second time.
//
// A proposal may name revisions of the fork. Commit replaces them by the revisions that the ledger has given to the
// same commits.
func (r *Report) Commit(ctx context.Context, ledger orbit.Ledger) (done int, err error) {
	given := map[orbit.Revision]orbit.Revision{}
	for i := range r.sent {
		p := r.sent[i].Clone()
		translate(&p, given)
		at, err := ledger.Propose(ctx, p)
		if err != nil {
			return i, fmt.Errorf("whatif: proposal %d of %d was not committed, those before it were: %w", i+1, len(r.sent), changed(err))
		}
		given[r.sent[i].at] = at
	}
	return len(r.sent), nil
}

// changed turns an infeasible refusal into a conflict. The ledger calls a proposal infeasible if no change since its
// view explains the refusal, and the view here is the commit of an earlier proposal of the report. But the fork
// accepted the proposal, so the ledger must have changed since the fork began.
func changed(err error) error {
	var r *orbit.Rejection
	if errors.As(err, &r) && errors.Is(r.Kind, orbit.ErrInfeasible) {
		conflict := *r
		conflict.Kind = orbit.ErrConflict
		return &conflict
	}
	return err
}

// translate replaces the revisions of the fork in a proposal by those of the ledger. Given has the ledger's revision
// for each revision of the fork.
func translate(p *orbit.Proposal, given map[orbit.Revision]orbit.Revision) {
	swap := func(at *orbit.Revision) {
		if now, ok := given[*at]; ok {
			*at = now
		}
	}
	swap(&p.View)
	for i, bet := range p.If {
		switch bet := bet.(type) {
		case orbit.NodeAt:
			swap(&bet.Usage)
			swap(&bet.Specification)
			p.If[i] = bet
		case orbit.MarkAt:
			swap(&bet.Revision)
			p.If[i] = bet
		}
	}
	for i, do := range p.Do {
		switch do := do.(type) {
		case orbit.Evict:
			swap(&do.Since)
			p.Do[i] = do
		case orbit.Nominate:
			swap(&do.Since)
			p.Do[i] = do
		case orbit.Confirm:
			swap(&do.Since)
			p.Do[i] = do
		case orbit.Respec:
			swap(&do.Since)
			p.Do[i] = do
		}
	}
}
