package lease_test

import (
	"context"

	"github.com/orbitsched/orbit"
)

// faulty is a ledger that fails when it is told to: before a proposal is judged, or after. It takes no batches.
type faulty struct {
	orbit.Ledger
	before, after func(p orbit.Proposal) error
	ids           []orbit.ProposalID
	// Before the next snapshot is taken, once.
	between func()
}

func (f *faulty) Snapshot(ctx context.Context) (*orbit.State, error) {
	if between := f.between; between != nil {
		f.between = nil
		between()
	}
	return f.Ledger.Snapshot(ctx)
}

func (f *faulty) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	f.ids = append(f.ids, p.ID)
	if f.before != nil {
		if err := f.before(p); err != nil {
			return 0, err
		}
	}
	rev, err := f.Ledger.Propose(ctx, p)
	if f.after != nil {
		if err := f.after(p); err != nil {
			return 0, err
		}
	}
	return rev, err
}

// times fails the first n times.
func times(n int, err error) func(orbit.Proposal) error {
	return func(orbit.Proposal) error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}
