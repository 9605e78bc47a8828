// Package logledger is an [orbit.Ledger] on a log: a sequence of entries in some store, with a conditional append. Packages
// diskledger, etcdledger and pgledger are such logs; [Log] is all that another store needs.
//
//	Propose ─► judge on the newest known state ─► group ─► Append(index, entry) ─┬─ written ──► answer all, show the state
//	                                                                             ├─ taken ────► read, apply, judge again
//	                                                                             └─ no answer ► read the index: whose is it?
//
// # How a commit is made
//
// An [orbit.MemoryLedger] judges proposals at once, on the state after all that was judged before. Their changes are
// collected in a group. One goroutine appends the group as one entry at the next index of the log; meanwhile the next group
// is collected, so all that arrive during one append share the next. If another process has taken the index, the ledger goes
// back to the state in the log, applies what the other has appended, and judges its group again. So there is one order of
// commits, everything is judged on all that comes before it, and no rule needs to say what it has read.
//
// Entries hold what was committed, not what was proposed: applying them judges nothing, so versions of orbit that judge
// differently can share a log, and a log opens under later rules.
//
// Invariants: a commit is answered when its entry is in the log. Readers see only what is in the log. A refusal is answered
// when it rests on a state that was the newest during the call. A proposal is in at most one entry; its id makes sure of
// that if it is sent again.
//
// # Several processes
//
// A plain race for the next index starves who is further away from the store. So the processes take turns, and the one whose
// turn it is appends the proposals of all: combine.go says how. [Poster] is what a log needs for that.
//
// # Opening, and falling behind
//
// Now and then a ledger stores its whole state as a checkpoint, in the background, and removes the entries before the
// checkpoint before that. Open reads the newest checkpoint and the entries after it. A ledger that has not read entries that
// were removed, because its process was stopped for long, goes on from the newest checkpoint.
//
// # Versions
//
// The first byte of an entry and of a checkpoint is the lowest version of this package that can read it. A ledger that meets
// a higher one stops with [ErrVersion], and calls nothing damaged.
package logledger
