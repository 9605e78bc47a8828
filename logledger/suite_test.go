package logledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// open opens a ledger on a handle, and closes it after the test.
func open(t testing.TB, log logledger.Log, o logledger.Options) *logledger.Ledger {
	l, err := logledger.Open(t.Context(), log, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// TestSuite: ledgers on one log are one ledger that keeps all promises.
func TestSuite(t *testing.T) {
	stores := map[orbit.Ledger]*logtest.Store{}
	ledgertest.Suite{
		Peer: func(t *testing.T, l orbit.Ledger) orbit.Ledger {
			return open(t, stores[l].Open(logtest.Faults{}), logledger.Options{})
		},
	}.Run(t, func(t *testing.T) orbit.Ledger {
		store := &logtest.Store{}
		l := open(t, store.Open(logtest.Faults{}), logledger.Options{})
		stores[l] = store
		return l
	})
}
