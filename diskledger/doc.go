// Package diskledger is an [orbit.Ledger] in a folder on disk, for one process whose placements must survive its restart.
//
//	Propose ─► judge (in memory) ─► group ─► one write, one fsync ─► answer
//	                                              │
//	Snapshot, Changes, Wait ◄── newest state on the disk
//
// A ledger here is a [logledger.Ledger]: package logledger judges proposals, collects their changes in groups, and makes
// checkpoints. This package is the log beneath it ([logledger.Log]). It appends each group as one record to a file, and
// waits until the record is on the disk; meanwhile the next group is collected. So all proposals that arrive during one
// sync share the next sync.
//
// Invariants: a crash cannot undo anything that was answered or shown to a reader. A group is written only when the
// group before it is on the disk. After a failed sync nothing is written any more. What Open reads it makes durable before
// it shows it: a process that was killed between a write and its sync has left a record that only the operating system has.
//
// The simpler design, to write each proposal by itself under the ledger's lock, was rejected: it commits only as many
// proposals a second as the disk can do syncs, however many proposers there are.
//
// # What is in the folder
//
// Entries are counted through all files. A checkpoint (00000007.checkpoint) has the whole state after an entry; its header
// says after which. A log (00000007.log) has the entries after those of the log with the number before. LOCK is locked while
// a ledger is open. FORMAT.md describes the format; old.go reads version 1 of it.
//
// A checkpoint is written in the background. When it is on the disk, older checkpoints are removed, and the logs all of
// whose entries it includes. Open reads the newest checkpoint and the entries after it. It appends nothing: the first Append
// begins a new log.
//
// # Damage, and a full disk
//
// A crash can leave a part of an unfinished write at the end of the last log. Its proposals were never answered, so
// Open cuts it off: the header of the next log says where the valid part ends. Any other wrong byte makes Open fail
// with a [*logledger.CorruptError]. Open tells the two cases apart by the bytes that follow: if a later record follows, the
// damaged record was on the disk once. Each log has a random salt in its records, so that nothing else is taken for one.
//
// A write that fails because the disk is full is cut off in the same way: the ledger begins another log when there is room.
package diskledger
