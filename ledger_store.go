package orbit

import "context"

// This file has what a ledger that keeps its history outside the process needs of a [MemoryLedger]: such a ledger has a
// MemoryLedger judge its proposals, stores the changes that this makes (Commit), follows what other processes have
// stored (Apply), and takes back what it could not store (Reset).

// Commit is ProposeBatch that also returns the changes of the proposals that it has committed, in order. Nobody may
// write to them. If other calls commit at the same time, their changes are not among them.
func (l *MemoryLedger) Commit(batch []Proposal) (out []Outcome, changes []Change) {
	l.init()
	out, changes = make([]Outcome, len(batch)), make([]Change, 0, len(batch))
	for from := 0; from < len(batch); from += batchRun {
		to := min(from+batchRun, len(batch))
		l.proposeRun(context.Background(), batch[from:to], out[from:to], &changes)
	}
	return out, changes
}

// Apply commits changes that another ledger has committed, as [State.Apply] does, but in place. The changes must be that
// ledger's history after the newest revision of this one, in order and without gaps. After an error the ledger has the
// changes up to the proposal that the error is about.
func (l *MemoryLedger) Apply(changes []Change) error {
	l.init()
	wake, err := l.applyLocked(changes)
	if wake != nil {
		close(wake)
	}
	return err
}

// applyLocked is the critical section of Apply. The caller closes the returned channel, if it is not nil, after the
// unlock.
func (l *MemoryLedger) applyLocked(changes []Change) (chan struct{}, error) {
	c := cloners.Get().(*cloner)
	defer c.giveBack()
	l.mu.Lock()
	defer l.mu.Unlock()
	var soon ahead
	for planned := 0; len(changes) > 0; {
		if planned <= 0 {
			planned = soon.planChanges(changes)
			l.sink = soon.read(l.live)
		}
		n := sameProposal(changes)
		if err := l.applyOne(c, changes[:n]); err != nil {
			return l.takeWake(), err
		}
		changes, planned = changes[n:], planned-n
	}
	return l.takeWake(), nil
}

// applyOne applies the changes of one proposal. It requires mu.
func (l *MemoryLedger) applyOne(c *cloner, changes []Change) error {
	defer l.tx.reset()
	if err := l.live.replay(&l.tx, c, changes); err != nil {
		return err
	}
	l.live.publish(&l.tx)
	l.history.append(l.live.rev, &l.tx)
	l.rev.Store(uint64(l.live.rev))
	return nil
}

// Between returns the changes after a revision up to another one, for a ledger that shows less than it has judged. The
// slice and the error are those of [Ledger.Changes].
func (l *MemoryLedger) Between(after, upTo Revision) ([]Change, error) {
	l.init()
	changes, err := l.newer(after)
	if err != nil {
		return nil, err
	}
	return changes.upTo(upTo).changes(), nil
}

// Reset makes s the state of the ledger. If s is an earlier state of this ledger, a Snapshot for example, what was
// committed since is undone: the revisions are given again. From any other state, such as one that was restored from a
// newer dump, the ledger goes on without the history before it: [Ledger.Changes] then fails with ErrCompacted for
// older revisions. Calls of Wait return when the ledger is past their revision, as if nothing had been undone.
func (l *MemoryLedger) Reset(s *State) {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = s.thaw()
	l.history.truncate(s.rev)
	l.rev.Store(uint64(s.rev))
	l.frozen.Store(nil)
}
