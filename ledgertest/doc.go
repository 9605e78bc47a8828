// Package ledgertest checks that a ledger keeps what [orbit.Ledger] promises. The author of one calls it from a
// test:
//
//	func TestLedger(t *testing.T) {
//		ledgertest.Suite{}.Run(t, func(t *testing.T) orbit.Ledger { return open(t) })
//	}
//
// Open gives a fresh, empty ledger each time. One that several processes share is checked over two handles:
//
//	ledgertest.Suite{Peer: func(t *testing.T, l orbit.Ledger) orbit.Ledger { return another(t, l) }}
//
// Each rule is a subtest of its name, so that go test -run TestLedger/shrink checks one alone; with -v each says
// what holds, why, and which line of docs/scenarios.md it covers, and so does a failure. [Suite.Check] returns what is
// broken instead.
//
// # What a ledger is asked
//
// The rules are in rules.go, in the order in which they are checked: what is taken and what is not; capsules;
// room, devices and gangs; nodes; bets and receipts; all or nothing; what is sent again; batches; history,
// snapshots and waiting; contexts; races; load. Everything is sized by [orbit.Ledger.Limits], so a ledger that
// takes little at a time is asked for little at a time. What a limit puts out of reach is skipped, with the
// reason.
//
// Nothing is asked that is not promised. Revisions may have gaps, and proposals of one batch may share one. A
// handle may hear late of what was committed through another, but [orbit.Ledger.Snapshot] and
// [orbit.Ledger.Propose] may not answer with less than what was complete before. No rule asks how long something
// takes; only a case that takes longer than Suite.Patience counts as one that never ends.
//
// # History and replay
//
// A race detector says nothing about a ledger that checks first and acts later. So a [Recorder] notes when calls
// began and ended and what was answered, and [History.Check] replays what was committed, in order of revision and
// sequence, and asks whether a ledger that is one thing at a time could have answered like that. [Load] does this
// for many goroutines that do everything at once; run it for as long as you like, also while you stop servers.
//
// # Faults
//
// [Faults] makes any ledger fail in the ways in which ledgers fail: for tests of engines and navigators, of
// anything that calls one. It is used by the rule "load-faults", too.
package ledgertest
