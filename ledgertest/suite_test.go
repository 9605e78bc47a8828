package ledgertest_test

import (
	"strings"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
)

func memory(*testing.T) orbit.Ledger { return &orbit.MemoryLedger{} }

// A ledger that takes little at a time is asked for little at a time, and its windows are looked beyond.
func TestSmallMemoryLedger(t *testing.T) {
	small := orbit.Limits{Commitments: 40, Preconditions: 20, Capsules: 30, GangMembers: 12, IDBytes: 60, SpecBytes: 300,
		ValueBytes: 50, History: 500, Terminal: 50, ProposalIDs: 300, PlacementIDs: 20}
	ledgertest.Run(t, func(*testing.T) orbit.Ledger { return &orbit.MemoryLedger{Bounds: small} }, ledgertest.Options{Seed: 2})
}

func TestMemoryLedger(t *testing.T) { ledgertest.Run(t, memory, ledgertest.Options{}) }

// What cannot be run is said so, in both ways of running it.
func TestOptions(t *testing.T) {
	for says, o := range map[string]ledgertest.Options{
		`Skip names "shrinks"`: {Skip: map[string]string{"shrinks": "a slip of the pen"}},
		"must not be negative": {Scale: -1},
		"must not be":          {Patience: -1},
	} {
		failures := ledgertest.Check(t, memory, o)
		if len(failures) != 1 || failures[0].Case != "options" || !strings.Contains(failures[0].Error(), says) {
			t.Errorf("failures are %v; want one that says %s", failures, says)
		}
	}
	for says, open := range map[string]func(*testing.T) orbit.Ledger{
		"open returns nil": func(*testing.T) orbit.Ledger { return nil },
		"is not empty": func(t *testing.T) orbit.Ledger {
			l := &orbit.MemoryLedger{}
			_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}})
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
	} {
		failures := ledgertest.Check(t, open, ledgertest.Options{})
		if len(failures) != len(ledgertest.RuleNames()) {
			t.Fatalf("%d rules fail, of %d", len(failures), len(ledgertest.RuleNames()))
		}
		for _, f := range failures {
			if !strings.Contains(f.Error(), says) {
				t.Errorf("%v; want: %s", f, says)
			}
		}
	}
	nobody := ledgertest.Options{Peer: func(*testing.T, orbit.Ledger) orbit.Ledger { return nil }}
	if f := ledgertest.Check(t, memory, nobody); len(f) == 0 || !strings.Contains(f[0].Error(), "the peer is nil") {
		t.Errorf("failures are %v", f)
	}
}
