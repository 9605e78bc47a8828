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

// TestNeverOversubscribed: many goroutines propose at once through two ledgers on one log, and the history of their commits, which ledgertest adds up by itself, never has more
// on a node than the node has.
func TestNeverOversubscribed(t *testing.T) {
	store := &logtest.Store{}
	ledger, peer := open(t, store.Open(logtest.Faults{}), logledger.Options{}), open(t, store.Open(logtest.Faults{}), logledger.Options{})
	figures, err := ledgertest.Load{Operations: 1000}.Run(t.Context(), ledger, peer)
	require.NoError(t, err)
	require.Positive(t, figures.Infeasible+figures.Conflicts, "nothing was refused, so nothing was tried")
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
