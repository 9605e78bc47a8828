package ledgertest_test

import (
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
