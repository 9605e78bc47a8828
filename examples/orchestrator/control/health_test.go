package control

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
)

// full is a ledger on a full disk.
type full struct{ orbit.Ledger }

func (full) Health() error { return errors.New("no space left on device") }

// TestHealth: the API says whether the ledger can commit, and why not.
func TestHealth(t *testing.T) {
	for _, c := range []struct {
		ledger orbit.Ledger
		status int
		says   string
	}{{&orbit.MemoryLedger{}, http.StatusOK, "true"}, {full{&orbit.MemoryLedger{}}, http.StatusServiceUnavailable, "no space left on device"}} {
		w := httptest.NewRecorder()
		control := &Control{ledger: c.ledger, local: &agent.Local{Ledger: c.ledger}, metrics: prometheus.NewRegistry()}
		control.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
		require.Equal(t, c.status, w.Code)
		require.Contains(t, w.Body.String(), c.says)
	}
}
