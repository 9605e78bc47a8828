package logtest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// TestMemory: the log in memory keeps the rules for logs.
func TestMemory(t *testing.T) {
	stores := map[logledger.Log]*logtest.Store{}
	another := func(_ *testing.T, log logledger.Log) logledger.Log { return stores[log].Open(logtest.Faults{}) }
	logtest.Suite{
		Peer: another,
		Reopen: func(t *testing.T, log logledger.Log) logledger.Log {
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			next := another(t, log)
			stores[next] = stores[log]
			return next
		},
	}.Run(t, func(t *testing.T) logledger.Log {
		store := &logtest.Store{}
		log := store.Open(logtest.Faults{})
		stores[log] = store
		return log
	})
}

// TestStored: what is made as an example of a stored log has everything that is checked.
func TestStored(t *testing.T) {
	store := &logtest.Store{}
	s := logtest.Stored{Open: func(testing.TB) logledger.Poster { return store.Open(logtest.Faults{}) }, Large: 20_000}
	state, err := (&orbit.MemoryLedger{}).Snapshot(t.Context())
	require.NoError(t, err)
	s.Make(t, state)
	found, err := logledger.Inspect(t.Context(), store.Open(logtest.Faults{}), nil)
	require.NoError(t, err)
	var want strings.Builder
	require.NoError(t, found.State.Dump(&want))
	s.Check(t, want.String())
}
