package etcdledger

import "sync/atomic"

// Stats count what a [Ledger] has done since it was opened.
type Stats struct {
	// Commits is the number of committed proposals, Transactions the number of transactions sent for them.
	Commits, Transactions uint64
	// Retries is the number of transactions that conflicted with another process, so that their proposals were judged again.
	Retries uint64
	// Reads is the number of linearizable reads that were requested, one by each Snapshot and one to confirm the
	// rejections of a round. Requests that come while a read is under way share the next one, so etcd gets fewer.
	Reads uint64
	// LostAnswers is the number of transactions that were sent and not answered.
	LostAnswers uint64
	// Reloads is how often all records were read again, after a compaction or a write that is no commit.
	Reloads uint64
	// Collected is the number of records that GC has deleted.
	Collected uint64
}

// counters are the Stats while they are counted.
type counters struct {
	commits, transactions, retries, reads, lostAnswers, reloads, collected atomic.Uint64
}

// Stats returns the ledger's counts.
func (l *Ledger) Stats() Stats {
	c := &l.counters
	return Stats{
		Commits: c.commits.Load(), Transactions: c.transactions.Load(), Retries: c.retries.Load(),
		Reads: c.reads.Load(), LostAnswers: c.lostAnswers.Load(), Reloads: c.reloads.Load(), Collected: c.collected.Load(),
	}
}
