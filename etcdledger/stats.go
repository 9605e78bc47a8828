package etcdledger

import "sync/atomic"

// Stats count what a [Ledger] has done since it was opened.
type Stats struct {
	// Proposals committed, and transactions sent for them.
	Commits, Transactions uint64
	// Transactions that met a commit of another process, whose proposals were judged again.
	Retries uint64
	// Linearizable reads that were asked for, one by each Snapshot and one to confirm rejections. Those that are asked for
	// while a read is under way share the next one.
	Reads uint64
	// Transactions sent of which no answer came.
	LostAnswers uint64
	// How often all records were read again: after compaction, or a write that is no commit.
	Reloads uint64
	// Records that were deleted because what they describe is gone.
	Collected uint64
}

// counters are what Stats are read from.
type counters struct {
	commits, transactions, retries, reads, lostAnswers, reloads, collected atomic.Uint64
}

// Stats returns what the ledger has done.
func (l *Ledger) Stats() Stats {
	c := &l.counters
	return Stats{
		Commits: c.commits.Load(), Transactions: c.transactions.Load(), Retries: c.retries.Load(),
		Reads: c.reads.Load(), LostAnswers: c.lostAnswers.Load(), Reloads: c.reloads.Load(), Collected: c.collected.Load(),
	}
}
