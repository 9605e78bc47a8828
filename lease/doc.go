// Package lease says who is alive. A lease has a name and at most one living holder. Each term of a lease begins and
// ends with a mark in the ledger, so that every process sees the same term and a proposal can bet on it. Refreshes of a
// term never reach the ledger: they stay in memory, or in [Refreshes] that processes share.
//
//	node or scheduler ── Acquire, once ──► Keeper ── Mark "live" ─────────────► Ledger ◄── Place, MarkAt(Key, Epoch) ── engine
//	        └────────── Refresh ─────────►   │                                    │
//	                                         └── not refreshed: Mark "over" ─────►│ follow
//	Members, for nodes:                      ▲                                    │
//	        Join ──► PutNode with the mark ──┘   over: cordon; lost: Release ────►│
//
// # Terms
//
// [Keeper] keeps leases by name. Each lease has a row in the ledger: its mark. The epoch of a term is the revision of
// the mark that began the term. A refresh takes a lock and makes no commit. A term is dead as soon as TTL has passed
// since its last refresh was received (without Refreshes, to the nanosecond). It is dead for ever, even before its end
// is committed; a holder that comes back begins a new term. Rows that have been over for an hour are swept, that is,
// deleted, a few at a time. So a holder that comes and goes changes its row instead of making new ones.
//
//	Acquire ─► Term{Name, Holder, Epoch}      in the ledger, at once
//	Refresh(term), Live(name)                 in memory
//	In(state, name), MarkAt{Key(name), Epoch} in the ledger, the same for all processes
//	Step, Run                                 commit the ends of terms that have run out
//
// # Members
//
// [Members] keeps nodes under leases. [Members.Join] lets a node take work, and merges what the node says of itself with
// what operators have said of it. The commit that ends the node's lease also cordons the node. When the node has stayed away for another five minutes, its capsules return to pending, each once,
// however many processes run Members. When the row is swept, the node is removed. A host that flaps costs at most 41
// terms and as many ends in any hour, and keeps its capsules. If more than half of all nodes are lost at once, nothing
// is taken off them until they return or [Members.AcceptLoss] is called.
//
// # Processes
//
// Without [Keeper.Refreshes] one process keeps the leases of a ledger, and all holders refresh there. With Refreshes
// any number of processes may keep them, each with a Keeper or Members of its own, and a holder may send each refresh
// to another process:
//
//	holder ── Refresh ──► Keeper ── Step: Keep ──► Refreshes ◄── Step: Left ── Keeper of another process
//
// A term lives, or has ended, for all processes alike. It ends when no process has passed on a refresh for TTL. A
// holder may rely on less: after a Refresh that was accepted, its term lives for at least half of TTL, whatever happens
// to the processes, and the capsules on a node are not given to another node for [Members.Fence].
//
// # How long a dead host can get work
//
// These times hold for hosts that report to a telemetry.Board with these leases every 10 s. They assume that no report
// is on its way for longer than that interval. The board refuses a heartbeat that is older than the known one. So the
// last refresh of a lease comes at most one heartbeat after its host has died. A dead host can get work for:
//
//   - one heartbeat, TTL (60 s), and the time for which the reader caches reports, if nodes whose lease has run out are
//     filtered out ([orbit.Report] Expired);
//   - one heartbeat, TTL and one step of Run, whatever a reader caches, if the placement also bets on the term,
//     MarkAt{Key(node), Epoch}. Run steps at the very moment at which a lease runs out, and at most a second later
//     after a step that has failed;
//   - one heartbeat, the board's Stale (30 s) and the time for which the reader caches reports, if stale nodes are
//     filtered out.
//
// A process that keeps leases in memory and starts meanwhile adds one TTL: it assumes of every term in the ledger that
// the term was refreshed at the moment at which the process first read it. With shared Refreshes a start adds nothing.
// There a process that is slow to pass on a refresh adds at most a quarter of TTL. The leases of etcd add five seconds
// (they are rounded up to seconds, at least two, and their end is noticed late), and an election in etcd adds one TTL. Over
// Postgres an outage of the server, and the death of the process to which a host has reported last, add a quarter of TTL.
// While the ledger is unavailable no end is committed, but nothing can be placed either.
//
// # Clocks
//
// Leases run only by the clock of the process that keeps them, or by the clock of the shared Refreshes; those of holders
// and nodes decide nothing. Each process counts the time until a node is lost, or a row is swept, from when it has read
// of the end. The row of a lease that is over has the time of the end, by the clock of the process that committed it.
// Only a process that has started since goes by that time. A time in the future is read as now. A time from a clock that
// is behind makes a node lost too soon, but never within one TTL after the process has read it. The times in the rows
// also say how many nodes were lost at once ([Members.MaxLoss]), so the clocks of these processes should agree to within
// a minute or so.
package lease
