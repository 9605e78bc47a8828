package whatif

import (
	"context"
	"sync"

	"github.com/orbitsched/orbit"
)

// fork is a ledger in memory that begins at a state and records the proposals that are committed on it.
type fork struct {
	orbit.MemoryLedger

	mu   sync.Mutex
	sent []committed
}

// committed is a proposal as it was sent, and the revision of its commit.
type committed struct {
	orbit.Proposal
	at orbit.Revision
}

func newFork(state *orbit.State) *fork {
	return &fork{MemoryLedger: orbit.MemoryLedger{Start: state}}
}

// Propose implements [orbit.Ledger].
func (f *fork) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := f.MemoryLedger.Propose(ctx, p)
	if err == nil && (len(f.sent) == 0 || at > f.sent[len(f.sent)-1].at) { // not newer: the proposal was committed before
		f.sent = append(f.sent, committed{p.Clone(), at})
	}
	return at, err
}

// ProposeBatch implements [orbit.Batcher].
func (f *fork) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = f.Propose(ctx, batch[i])
	}
	return out
}
