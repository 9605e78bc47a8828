package ledgertest_test

import (
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
)

func memory(*testing.T) orbit.Ledger { return &orbit.MemoryLedger{} }

func TestMemoryLedger(t *testing.T) { ledgertest.Run(t, memory, ledgertest.Options{}) }
