// Package diskledger is an [orbit.Ledger] in a folder on disk, for one process whose placements must survive its restart.
//
//	Propose ─► judge (in memory) ─► group ─► one write, one fsync ─► answer
//	                                              │
//	Snapshot, Changes, Wait ◄── newest state on the disk
//
// # How a commit is made
//
// A [orbit.MemoryLedger] judges proposals at once. What it has committed is collected in a group. One goroutine takes the
// group, appends its changes to the log as one record, and waits until the disk has them; meanwhile the next group is
// collected. So any number of proposals that arrive during one sync share the next one. A proposal is answered when its group
// is on the disk. A refusal is answered when the state that it rests on is. Readers see a state when it is on the disk.
//
// Invariants: nothing is answered and nothing is shown that a crash can take back. A group is written only when the group
// before it is on the disk. After a failed write or sync nothing is written any more.
//
// The simpler design, to write each proposal by itself under the ledger's lock, was rejected: it commits as many proposals a
// second as the disk syncs, however many proposers there are.
//
// # What is in the folder
//
// A checkpoint (00000007.checkpoint) is a dump of the whole state ([orbit.State.Dump]). A log (00000007.log) has the changes
// behind the checkpoint of its number, and the logs after it go on. LOCK is locked while a ledger is open. README.md has the
// format.
//
// A checkpoint is made in the background, from an immutable state, after a new log was begun. When it is on the disk the files
// before it are removed. Open reads the newest checkpoint and the logs since, and begins a new log.
//
// # Damage
//
// A crash can leave the rest of an unfinished write at the end of the last log. It was never answered, and Open cuts it off: the
// header of the next log says where the valid part ends. Any other byte that is wrong makes Open fail with a [*CorruptError]. The
// two are told apart by what stands behind: a record that was written later shows that the damaged one was on the disk.
package diskledger
