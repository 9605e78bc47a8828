package etcdledger

import "sync/atomic"

// Stats count what a [Ledger] has done since it was opened.
type Stats struct {
	// Proposals committed, and transactions sent for them.
	Commits, Transactions uint64
	// Transactions that met somebody else's commit, whose proposals were judged again.
	Retries uint64
	// Linearizable reads that were asked for, one by each Snapshot and one to confirm rejections. Those that are asked for
	// while a read is under way share the next one.
	Reads uint64
	// Requests of which no answer came.
	LostAnswers uint64
	// How often all records were read again: after compaction, or a write that is no commit.
	Reloads uint64
	// Records of what is gone that were deleted.
	Swept uint64
	// Records that are damaged now.
	Damaged int
}

// counters are what Stats are read from.
type counters struct {
	commits, transactions, retries, reads, lostAnswers, reloads, swept atomic.Uint64
}

// Stats returns what the ledger has done.
func (l *Ledger) Stats() Stats {
	c := &l.counters
	return Stats{
		Commits: c.commits.Load(), Transactions: c.transactions.Load(), Retries: c.retries.Load(),
		Reads: c.reads.Load(), LostAnswers: c.lostAnswers.Load(), Reloads: c.reloads.Load(), Swept: c.swept.Load(),
		Damaged: len(l.mirror.look().bad),
	}
}
