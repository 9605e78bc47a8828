// Package etcdledger is an [orbit.Ledger] that is stored in etcd, for orchestrators with more than one process. Engines and
// navigators run on it unchanged. Each process opens a [Ledger] of its own with the same prefix.
//
//	Propose ─► queue ─► judge on the mirror ─► pack ─► one transaction ─► etcd
//	                       ▲    (State.Check)          (compares, records, log)
//	Snapshot ─► mirror ◄───┴──────────────── watch ◄──────────────────────┘
//	Changes     (State.Apply)
//
// # What is in etcd
//
// Below the prefix are two records for each node (its description, and a count of what is on it), one for each capsule,
// gang, hold and mark, and the key log, which every commit overwrites with its changes. The watch delivers all versions of
// that key in order: they are the history. The ledger's revision is etcd's revision of the log. Ids are escaped, so that no
// id leads out of the prefix. Below terms/ is a key for each living term of a lease whose refreshes processes share
// ([Ledger.Refreshes]); these are no records. Values are JSON with a version number; unknown fields are errors.
//
// # How a commit is made
//
// Invariants: every record that the judging of a proposal reads is compared by its transaction. A record is deleted only by
// the garbage collection, which overwrites the key gc, and every transaction compares that key. A proposal whose outcome any
// commit may change ([orbit.Footprint].All) compares the log. So:
//
//  1. A proposal is judged on the mirror, which is at etcd's revision R.
//  2. Proposals that hold one after another are packed into one transaction, up to the server's limit of operations. The
//     transaction compares that no record that was read has changed after R.
//  3. If the transaction succeeds, its revision is that of the commits. If not, the mirror catches up and each proposal is
//     judged again: it is sent again if its bets still hold, and is otherwise a conflict with a receipt.
//  4. If the answer is lost, the same transaction is sent again. It cannot be applied twice, because the first copy changes
//     records that the second one compares.
//
// A rejection describes a state that is newer than the start of the call, because a linearizable read confirms it first.
// Records that two transactions of one process would compete for are locked in the process, so a process never conflicts
// with itself.
//
// Two simpler designs were rejected. If one key held the whole state, every commit would conflict with every other one. If
// each node had a lock, the locks of processes that have died would have to be broken.
//
// # Damaged records
//
// A record is damaged if it cannot be decoded or contradicts other records, such as a node's count that does not agree with
// the capsules and holds on the node. A ledger with a damaged record cannot be opened. In an open ledger all calls fail with
// [ErrCorrupt], which names the key, until the right value is back. [Repair] mends a ledger that no process has open. A
// write below the prefix that is no commit (etcdctl put) makes every mirror read all records again.
package etcdledger
