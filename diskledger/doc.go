// Package diskledger is an [orbit.Ledger] in a folder on disk, for one process whose placements must survive its restart.
//
//	Propose ─► judge (in memory) ─► group ─► one write, one fsync ─► answer
//	                                              │
//	Snapshot, Changes, Wait ◄── newest state on the disk
//
// # How a commit is made
//
// An [orbit.MemoryLedger] judges proposals at once. The changes of committed proposals are collected in a group. One
// goroutine takes the group, appends its changes to the log as one record, and waits until they are on the disk;
// meanwhile the next group is collected. So all proposals that arrive during one sync share the next sync. A committed
// proposal is answered when its group is on the disk. A refusal is answered when the state that it was judged on is on
// the disk. Readers see a state when it is on the disk.
//
// Invariants: a crash cannot undo anything that was answered or shown to a reader. A group is written only when the
// group before it is on the disk. After a failed write or sync nothing is written any more.
//
// The simpler design, to write each proposal by itself under the ledger's lock, was rejected: it commits only as many
// proposals a second as the disk can do syncs, however many proposers there are.
//
// # What is in the folder
//
// A checkpoint (00000007.checkpoint) is a dump of the whole state ([orbit.State.Dump]). The log with the same number
// (00000007.log) has the changes after that checkpoint, and the logs with higher numbers continue it. LOCK is locked
// while a ledger is open. README.md describes the format.
//
// A checkpoint is written in the background, from an immutable state, after a new log was begun. When the checkpoint is
// on the disk, all files with lower numbers are removed. Open reads the newest checkpoint and the logs after it, and
// begins a new log.
//
// # Damage
//
// A crash can leave a part of an unfinished write at the end of the last log. Its proposals were never answered, so
// Open cuts it off: the header of the next log says where the valid part ends. Any other wrong byte makes Open fail
// with a [*CorruptError]. Open tells the two cases apart by the bytes that follow: if a later record follows, the
// damaged record was on the disk once.
package diskledger
