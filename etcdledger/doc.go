// Package etcdledger is a [orbit.Ledger] over etcd, for orchestrators of more than one process. The same engines and
// navigators run on it unchanged, each process with a [Ledger] of its own over the same prefix.
//
//	Propose ─► queue ─► judge on the mirror ─► pack ─► one transaction ─► etcd
//	                       ▲    (State.Check)          (compares, records, log)
//	Snapshot ─► mirror ◄───┴──────────────── watch ◄──────────────────────┘
//	Changes     (State.Apply)
//
// # What is in etcd
//
// Below the prefix are one record for each node, capsule, gang, hold and mark, and one key, log, that every commit
// overwrites with what it has changed. The watch delivers all versions of that key in order: they are the history.
// The ledger's revision is etcd's revision of the log. Ids are escaped, so none leaves its prefix. Values are
// JSON with a version, decoded strictly.
//
// # How a commit is made
//
// Invariants: every record that a judgement has read is among the compares of its transaction; a record is deleted
// only by the collection of garbage, which overwrites the key gc, and that key is among the compares of every transaction. So:
//
//  1. A proposal is judged on the mirror, which is at etcd's revision R.
//  2. Proposals that hold one after another are packed into one transaction, up to the server's limit of
//     operations. It compares: none of what was read has changed after R.
//  3. If it succeeds, its revision is the commit's. If not, the mirror catches up and each proposal is judged again: it
//     is sent again if its bet still holds, else it is a conflict with a receipt.
//  4. If the answer is lost, the same transaction is sent again. It cannot be applied twice, for the first copy
//     changes what the second compares.
//
// Whatever a rejection says was true after the call began: the mirror catches up with a linearizable read first.
// Records that two transactions of one process would compete for are locked in the process, so it never competes
// with itself.
//
// A read-modify-write of one key that holds the world would be simpler, and every commit would conflict with every
// other; a lock per node would have to be given back by processes that have died.
//
// # What is damaged
//
// A record that cannot be decoded or does not fit the others, as a node's count of capsules and holds that is not what
// there is, keeps a ledger from opening, and stops one that is open: all calls fail with [ErrCorrupt], which names the key,
// until the right value is back. [Repair] mends a ledger that is closed everywhere. A write below the prefix that is no
// commit (etcdctl put) makes every mirror read all records again.
package etcdledger
