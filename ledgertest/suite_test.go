package ledgertest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/ledgertest"
)

func memory(*testing.T) orbit.Ledger { return &orbit.MemoryLedger{} }

// A ledger that takes little at a time is asked for little at a time, and its windows are looked beyond.
func TestSmallMemoryLedger(t *testing.T) {
	scale.Long(t)
	small := orbit.Limits{Commitments: 40, Preconditions: 20, Capsules: 30, GangMembers: 12, IDBytes: 60, SpecBytes: 300,
		ValueBytes: 50, History: 500, Terminal: 50, ProposalIDs: 300, PlacementIDs: 20}
	ledgertest.Suite{Seed: 2}.Run(t, func(*testing.T) orbit.Ledger { return &orbit.MemoryLedger{Bounds: small} })
}

func TestMemoryLedger(t *testing.T) { ledgertest.Suite{}.Run(t, memory) }

// What cannot be run is said so, in both ways of running it.
func TestSuiteThatCannotBeRun(t *testing.T) {
	for says, suite := range map[string]ledgertest.Suite{
		`Skip names "shrinks"`: {Skip: map[string]string{"shrinks": "a slip of the pen"}},
		"must not be negative": {Scale: -1},
		"must not be":          {Patience: -1},
	} {
		failures := suite.Check(t, memory)
		require.Len(t, failures, 1)
		require.ErrorContains(t, failures["suite"], says)
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
		failures := ledgertest.Suite{}.Check(t, open)
		require.Len(t, failures, len(ledgertest.RuleNames()))
		for _, err := range failures {
			require.ErrorContains(t, err, says)
		}
	}
	alone := ledgertest.Suite{Peer: func(*testing.T, orbit.Ledger) orbit.Ledger { return nil }}
	require.ErrorContains(t, alone.Check(t, memory)["fresh"], "the peer is nil")
}
