// Package telemetry is the soft plane of orbit: the newest report of each node, less the slots that have been claimed
// since it was sent. A report is not a promise, and losing all reports costs one round of reporting. Whether a node is
// alive is decided by package lease, whose terms are in the ledger.
//
//	node ── Report, every 10 s ─► Board ── Reports(after), what has changed ──► View ──► Navigator
//	                              │ ▲  ▲── Latest(node), before it is called stale ─┘        │
//	      refreshes the term that │ │  └── Claim, Unclaim, Exhausted ────────────────── creator
//	      the report names        ▼ │ names of leases that have changed
//	                           lease.Keeper
//
// # Reports
//
// Nodes report their full state, again and again, to a [Board]. Views ask the board for the reports that have changed
// since they last asked. Most reports repeat the one before; these cost one comparison and reach no reader. A board
// that is restarted knows everything after one round of reports. A reader that comes with a version of the old board
// gets all reports.
//
// # Claims
//
// Slots of a node are given away between two of its reports. Note each such slot with [Board.Claim]: from then on all
// readers see one free slot less, and one warm slot less if there is one, until the node reports again. Readers see the
// reported numbers minus the claims, and never less than zero. These numbers are hints; only the ledger promises a
// slot, so use the smaller of the ledger's count and the report's. If a node has reported a warm slot and turns out to
// have none, correct its report with [Board.Exhausted].
//
// # Several processes
//
// Each process has a board of its own. [Board.Feed] sends the reports of one board over any connection, as differences,
// and [Board.Follow] takes them into another board. So a node reports to one process, and the navigators of all
// processes plan on its report. A new connection begins with all reports. The other board has a change as soon as it is
// sent, and a heartbeat within a second. Then both boards have the same reports; each shows them less the claims made
// on itself.
//
// Until the node's next report, a claim is visible only on the board on which it was made. This oversubscribes no
// slots, because the ledger counts what is placed. But each process may promise the same warm slot once, and then only
// one sandbox gets it and the others boot cold.
//
// # Refusals
//
// A board refuses a report with malformed numbers, with a heartbeat older than the known one, or with too many words; a
// report of a node that reports too often, or of one node too many; and, with leases, a report that does not name the
// node's current term. It counts refusals in [Stats] and returns a [*Refusal] that says why. A
// refused report changes nothing. Only a report under the current term counts against the number of reports that a node
// may send.
//
// # Clocks
//
// A report is as old as its receipt, by the clock of the board that has received it ([orbit.Report].Received). Boards
// that feed each other send ages and not times. The heartbeat ([orbit.Report].At) is a time of the node's clock, which
// may be wrong. It is compared only with other heartbeats of the node: to find the newer of two reports, and to estimate
// which claims the node knew of when it sent a report. If a node's clock is set back, its reports are refused for 10 s,
// or for a third of the leases' TTL if that is less.
package telemetry
