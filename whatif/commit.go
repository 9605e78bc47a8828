package whatif

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// Commit sends the proposals of the report to the ledger, in their order. On a ledger that is still at the revision of Before, and
// that has no other writer meanwhile, all of them are committed, and what was shown is what happens. Otherwise it
// stops at the first that is refused, because later ones may rest on it: done says how many proposals are committed, and the error
// wraps the receipt, which says what has changed. Nothing of a proposal that is refused happens. After ErrUnknown and ErrUnavailable
// call Commit again: proposals that are committed already are not committed a second time.
//
// Revisions that a proposal names and that came about on the fork are replaced by those that the ledger has given to the same commits.
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

// changed makes a refusal a conflict. The ledger calls it infeasible if what the proposal rests on is older than its view, which is the
// commit of an earlier proposal of the report; but the fork, which is older, took the proposal.
func changed(err error) error {
	var r *orbit.Rejection
	if errors.As(err, &r) && errors.Is(r.Kind, orbit.ErrInfeasible) {
		conflict := *r
		conflict.Kind = orbit.ErrConflict
		return &conflict
	}
	return err
}

// translate replaces revisions of the fork.
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
		case orbit.Resize:
			swap(&do.Since)
			p.Do[i] = do
		}
	}
}
