// Package logledger makes an [orbit.Ledger] of a log: a sequence of entries in some store, with an append that succeeds only at the
// next index. Packages diskledger, etcdledger and pgledger have such logs. For another store, implement [Log].
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
// commits, and each proposal is judged on all that comes before it. No rule has to record what it has read to detect a later
// change of that.
//
// Entries hold what was committed, not what was proposed. Whoever applies an entry judges nothing. So versions of orbit that judge
// differently can share a log, and a log that was written under earlier rules can be opened under later ones.
//
// Invariants: a commit is answered only after its entry is in the log. Readers see only what is in the log. A refusal is answered
// only if the state on which it rests was the newest at some time during the call. A proposal is in at most one entry, even
// if it is sent again: it is known by its id.
//
// # Several processes
//
// If all processes raced for the next index, those further away from the store would hardly ever win. So they take turns, and the one
// whose turn it is appends the proposals of all: combine.go says how. A log has to implement [Poster] for that.
//
// # Opening, and falling behind
//
// Now and then a ledger stores its whole state as a checkpoint, in the background, and removes the entries before the previous
// checkpoint. Open reads the newest checkpoint and the entries after it. A ledger whose process was stopped for so long that
// entries were removed before it read them goes on from the newest checkpoint.
//
// # Versions
//
// The first byte of an entry and of a checkpoint is the lowest version of this package that can read it. A ledger that meets
// a higher one stops with [ErrVersion], and does not call the log damaged.
package logledger
