package diskledger

import "sync/atomic"

// Stats are counts of what a ledger has done since Open.
type Stats struct {
	// Groups is how many groups of commits were written to the log, each with one sync.
	Groups int64
	// Changes is how many changes those groups had.
	Changes int64
	// Checkpoints is how many checkpoints were written, CheckpointErrors how many have failed.
	Checkpoints, CheckpointErrors int64
	// Recovered is how many changes Open has read from the logs after the checkpoint.
	Recovered int64
	// Cut is how many bytes of an unfinished write Open has cut off the end of the log.
	Cut int64
}

// counters are the counts of a ledger.
type counters struct {
	groups, changes, checkpoints, checkpointErrors atomic.Int64
	// recovered and cut are what Open has found.
	recovered, cut int64
}

// Stats returns the counts. They are exact while no call is under way.
func (l *Ledger) Stats() Stats {
	c := &l.stats
	return Stats{
		Groups: c.groups.Load(), Changes: c.changes.Load(),
		Checkpoints: c.checkpoints.Load(), CheckpointErrors: c.checkpointErrors.Load(),
		Recovered: c.recovered, Cut: c.cut,
	}
}
