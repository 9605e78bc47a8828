// Package telemetry is the soft plane of orbit: what nodes last said of themselves, what has been claimed of them
// since, and whether they are there at all. Nothing that nodes say is a promise, and losing all of it costs one
// round of reports. The only promises are terms of leases, and those are in the ledger.
//
//	node ─── Join, once ──► Members ── PutNode, Mark "live" ─────► Ledger ◄── Place, MarkAt(Key, Epoch) ── creator
//	 │                         ▲ │                                   │
//	 │                    ends │ └── end: Mark "over", cordon ──────►│
//	 │                         │     lost: Release its capsules ────►│ follow
//	 │                      Leases ◄─────────────────────────────────┘
//	 │                         ▲ refreshed by each report, in memory
//	 └── Report, every 10 s ─► Board ── Reports(after), what has changed ──► View ──► Navigator
//	                           ▲  ▲──── Latest(node), before it is called stale ─┘        │
//	                           │  └──── Claim, Unclaim, Exhausted ────────────────── creator
//	                    (Report.Term names the lease's epoch)
//
// # Board
//
// Nodes report their full state, again and again, to a [Board]. Views ask the board what has changed since
// they last asked. Most reports repeat the one before; they cost one comparison and reach nobody. A board that is
// restarted knows everything after one round of reports, and readers who come with a version of the one before are
// given everything.
//
// Between two reports of a node its slots are given away. Who gives one away says so with [Board.Claim], and from
// then on all readers see one free slot less, and one warm slot less if there is one, until the node reports
// again. What is shown is a debit on what was reported, never less than nothing: free slots are still for the
// ledger to promise, so take the lesser of the ledger's count and the report's. A node that promised a warm slot
// and had none is put right with [Board.Exhausted].
//
// A board believes no more than it must. It refuses, counts in [Stats] and says in a [*Refusal] why: malformed
// numbers, heartbeats from the future or older than the known one, too many words, too many reports from one node,
// too many nodes and, with leases, reports that do not name the node's current term. What was refused has changed
// nothing; only who has the term can use up what a node may send.
//
// # Leases
//
// [Leases] keeps leases by name. A term begins with a mark in the ledger and ends with another; its epoch is the
// revision of the first. Refreshes are soft: they stay in this process, cost a lock, and never reach the ledger. A
// term is dead TTL after its last refresh was received, to the nanosecond and for ever, also while its end is not
// committed yet; a holder that comes back begins another. Rows that have been over for an hour are swept, a few at
// a time, so a holder that comes and goes changes its row instead of making rows.
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
// whoever else runs Members; and it leaves when its row is swept. A host that flaps costs at most 41 terms and as
// many ends in any hour, and none of its capsules.
//
// # How long a dead host can get work
//
// Its last report may come late, but a heartbeat that is older than the known one is refused, and one that was
// longer on the way than the nodes' pace is not counted on: so the lease was refreshed for the last time at most
// one heartbeat (10 s) after the host had died. From its death on:
//
//   - where nodes whose lease has run out are filtered out ([orbit.Report] Expired): one heartbeat, TTL (60 s) and what the
//     reader caches;
//   - where the placement bets on the term as well, MarkAt{Key(node), Epoch}: one heartbeat, TTL and one step of Run,
//     whatever anybody caches. Run steps at the very moment at which a lease runs out, and at most a second later
//     after a step that has failed;
//   - where stale nodes are filtered out, which is a matter of the heartbeat and not of when it came: Stale (30 s) and what
//     the reader caches, with clocks that agree.
//
// A process that keeps leases and is started meanwhile adds one TTL: it takes every term that the ledger has to
// have been refreshed when it first read of it. While the ledger is unavailable no end is committed, but nothing
// can be placed either.
//
// # Clocks
//
// Heartbeats carry the nodes' clocks, and are compared with the board's: nodes may be Ahead (10 s), and stay fresh
// as much longer. Leases run by the clock of the process that keeps them alone. Rows carry the time of their end
// for the sweep and for lost nodes: clocks of processes that keep leases should agree to within a minute or so;
// one that is ahead is taken for now, and one that is behind makes nodes lost sooner, though never within one TTL
// of being read.
package telemetry
