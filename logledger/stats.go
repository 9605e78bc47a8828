package logledger

import "sync/atomic"

// Stats are counts of what a ledger has done since Open.
type Stats struct {
	// Entries is how many entries this ledger has appended, Changes how many changes they had. Followed is how many entries of
	// other ledgers it has applied.
	Entries, Changes, Followed int64
	// Lost is how many times another ledger has taken the index first. Posts is how many times this ledger has asked others
	// to append for it.
	Lost, Posts int64
	// Checkpoints is how many checkpoints were made, CheckpointErrors how many have failed. Jumps is how many times this
	// ledger was so far behind that it went on from a checkpoint.
	Checkpoints, CheckpointErrors, Jumps int64
	// Recovered is how many changes Open has read after the checkpoint.
	Recovered int64
}

// counters are the counts of a ledger.
type counters struct {
	entries, changes, followed, lost, posts, checkpoints, checkpointErrors, jumps atomic.Int64
	// recovered is what Open has read.
	recovered int64
}

// Stats returns the counts. They are exact while no call is under way.
func (l *Ledger) Stats() Stats {
	c := &l.stats
	return Stats{
		Entries: c.entries.Load(), Changes: c.changes.Load(), Followed: c.followed.Load(), Lost: c.lost.Load(), Posts: c.posts.Load(),
		Checkpoints: c.checkpoints.Load(), CheckpointErrors: c.checkpointErrors.Load(), Jumps: c.jumps.Load(), Recovered: c.recovered,
	}
}
