// Package ledgertest checks that a ledger keeps what [orbit.Ledger] promises. The author of a ledger calls it from a test:
//
//	func TestLedger(t *testing.T) {
//		ledgertest.Suite{}.Run(t, func(t *testing.T) orbit.Ledger { return open(t) })
//	}
//
// Open returns a fresh, empty ledger each time. A ledger that several processes share is checked through two handles:
//
//	ledgertest.Suite{Peer: func(t *testing.T, l orbit.Ledger) orbit.Ledger { return another(t, l) }}
//
// Each rule is a subtest of its name, so that go test -run TestLedger/shrink checks one alone. With -v, and in a failure,
// each subtest states the rule, the reason for it, and the line of docs/scenarios.md that it covers. [Suite.Check] returns
// the broken rules instead.
//
// # What is checked
//
// The rules are in rules.go, in the order in which they are checked: valid and invalid input; capsules; free capacity,
// devices and gangs; nodes; bets and receipts; all or nothing; repeated proposals; batches; history, snapshots and waiting;
// contexts; races; load. The cases are sized by [orbit.Ledger.Limits], so a ledger with small limits gets small proposals.
// A case that the limits make too long is skipped, with the reason.
//
// The suite requires nothing that [orbit.Ledger] does not promise. Revisions may have gaps, and proposals of one batch may
// share one. A handle may show commits of another handle late in Changes and Wait, but [orbit.Ledger.Snapshot] and
// [orbit.Ledger.Propose] must answer from a state that includes every commit that was complete before. No rule measures
// time; only a case that takes longer than Suite.Patience counts as one that never ends.
//
// # History and replay
//
// A race detector does not find a ledger that checks first and acts later. So a [Recorder] notes when each call began and
// ended and what the answer was. [History.Check] replays the commits in order of revision and sequence, and reports the
// answers that a ledger which does one thing at a time could not have given. [Load] does this for many goroutines that use
// the ledger at once. It can run for any time, also while servers are stopped.
//
// # Faults
//
// [Faults] makes any ledger fail in the ways in which ledgers fail, for tests of engines, navigators and other callers. The
// rule "load-faults" uses it too.
package ledgertest
