// Package lease says who is alive. A lease has a name and at most one living holder. A term of it begins and ends with a
// mark in the ledger, so that every process sees the same one and a proposal can bet on it; refreshes stay in memory, or in
// [Refreshes] that processes share.
//
//	node or scheduler ── Acquire, once ──► Keeper ── Mark "live" ─────────────► Ledger ◄── Place, MarkAt(Key, Epoch) ── engine
//	        └────────── Refresh ─────────►   │                                    │
//	                                         └── not refreshed: Mark "over" ─────►│ follow
//	Members, for nodes:                      ▲                                    │
//	        Join ──► PutNode with the mark ──┘   over: cordon; lost: Release ────►│
//
// # Terms
//
// [Keeper] keeps leases by name. The epoch of a term is the revision of the mark that began it. A refresh costs a lock
// and never reaches the ledger. A term is dead TTL after its last refresh was received, for ever, also while its end
// is not committed yet (without Refreshes to the nanosecond); a holder that comes back begins another. Rows that have been over for an
// hour are swept, a few at a time, so a holder that comes and goes changes its row instead of making rows.
//
//	Acquire ─► Term{Name, Holder, Epoch}      in the ledger, at once
//	Refresh(term), Live(name)                 in memory
//	In(state, name), MarkAt{Key(name), Epoch} what holds for everybody
//	Step, Run                                 commit what has run out
//
// # Members
//
// [Members] keeps nodes under leases: [Members.Join] lets a node take work; when its lease is over it is cordoned
// in the same commit; when it has stayed away for another five minutes its capsules return to pending, once,
// however many processes run Members; and it leaves when its row is swept. A host that flaps costs at most 41 terms and
// as many ends in any hour, and none of its capsules. Where more than half of all nodes are lost at once, nothing is
// taken off them until they return or [Members.AcceptLoss] is called.
//
// # Processes
//
// Without [Keeper.Refreshes] one process keeps the leases of a ledger, and all holders refresh there. With it any number of processes
// may, each with a Keeper or Members of its own, and a holder may refresh at any of them, another one each time:
//
//	holder ── Refresh ──► Keeper ── Step: Keep ──► Refreshes ◄── Step: Left ── Keeper of another process
//
// A term lives or has ended for all of them alike, and it ends when no process has passed on a refresh for TTL. What a holder may rely on
// is shorter: after a Refresh that was accepted its term lives for half of TTL at least, whatever happens to the processes, and a
// node's capsules stay its own for [Members.Fence].
//
// # How long a dead host can get work
//
// The following holds for hosts that report to a telemetry.Board with these leases every 10 s. The last report may come
// late, but a heartbeat that is older than the known one is refused, and one that was longer on the way than the nodes'
// pace is not counted on: so the lease was refreshed for the last time at most one heartbeat after the host had died.
// From its death on:
//
//   - where nodes whose lease has run out are filtered out ([orbit.Report] Expired): one heartbeat, TTL (60 s) and what the
//     reader caches;
//   - where the placement bets on the term as well, MarkAt{Key(node), Epoch}: one heartbeat, TTL and one step of Run,
//     whatever a reader caches. Run steps at the very moment at which a lease runs out, and at most a second later
//     after a step that has failed;
//   - where stale nodes are filtered out, which is a matter of the heartbeat and not of when it came: the board's Stale
//     (30 s) and what the reader caches, with clocks that agree.
//
// A process that keeps leases in memory and is started meanwhile adds one TTL: it takes every term that the ledger has to
// have been refreshed when it first read of it. With shared Refreshes a start adds nothing. There a process that is slow to pass
// on a refresh adds at most a quarter of TTL; etcd's leases add five seconds (they are rounded up to seconds, at least two, and
// their end is noticed late), and an election of etcd's adds one TTL. While the ledger is unavailable no end is committed, but nothing
// can be placed either.
//
// # Clocks
//
// Leases run by the clock of the process that keeps them, or by that of the shared Refreshes, alone. Rows carry the time of their end for the sweep and for
// lost nodes: clocks of processes that keep leases should agree to within a minute or so; one that is ahead is taken for
// now, and one that is behind makes nodes lost sooner, though never within one TTL of being read.
package lease
