package logtest_test

import (
	"testing"

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
