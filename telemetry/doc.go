// Package telemetry is the soft plane of orbit: what nodes last said of themselves, and what has been claimed of them
// since. Nothing that nodes say is a promise, and losing all of it costs one round of reports. Whether they are there at
// all is a matter of package lease, which has its promises in the ledger.
//
//	node ── Report, every 10 s ─► Board ── Reports(after), what has changed ──► View ──► Navigator
//	                              │ ▲  ▲── Latest(node), before it is called stale ─┘        │
//	      refreshes the term that │ │  └── Claim, Unclaim, Exhausted ────────────────── creator
//	      the report names        ▼ │ whose lease has changed
//	                           lease.Keeper
//
// # Reports
//
// Nodes report their full state, again and again, to a [Board]. Views ask the board what has changed since
// they last asked. Most reports repeat the one before; they cost one comparison and reach no reader. A board that is
// restarted knows everything after one round of reports, and readers who come with a version of the one before are
// given everything.
//
// # Claims
//
// Between two reports of a node its slots are given away. Each one that is given away is noted with [Board.Claim], and from
// then on all readers see one free slot less, and one warm slot less if there is one, until the node reports
// again. What is shown is a debit on what was reported, never less than nothing: free slots are still for the
// ledger to promise, so take the lesser of the ledger's count and the report's. A node that promised a warm slot
// and had none is put right with [Board.Exhausted].
//
// # Several processes
//
// Each process has a board of its own. [Board.Feed] sends what one knows to another over any connection, as differences, and
// [Board.Follow] takes it: so a node reports to one process, and the navigators of all of them plan on it. A connection that is made
// again begins with everything. A change is on the other board as soon as it is sent, a heartbeat within a second; after that both
// show the same, less what has been claimed on each.
//
// Claims are seen on the board on which they were made alone, until the node's next report. Slots are safe all the same, because the
// ledger counts what is placed; a warm slot may be promised by each process once, and then one of these boots cold.
//
// # Refusals
//
// A board believes no more than it must. It refuses, counts in [Stats] and says in a [*Refusal] why: malformed
// numbers, heartbeats from the future or older than the known one, too many words, too many reports from one node,
// too many nodes and, with leases, reports that do not name the node's current term. What was refused has changed
// nothing; only a report under the current term can use up what a node may send.
//
// Heartbeats carry the nodes' clocks, and are compared with the board's: nodes may be Ahead (10 s), and stay fresh
// as much longer.
package telemetry
