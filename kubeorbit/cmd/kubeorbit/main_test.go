package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/kubeorbit"
	"github.com/stretchr/testify/require"
)

// ask returns the status and the text of an answer.
func ask(p *pages, path string) (int, string) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// A scheduler that has lost the API server is alive and says so, and is not ready. A replica that waits for the lead is ready.
func TestHealth(t *testing.T) {
	p := &pages{}
	is := func(path string, status int, text string) {
		t.Helper()
		code, body := ask(p, path)
		require.Equal(t, status, code, "%s: %s", path, body)
		require.Equal(t, text+"\n", body, path)
	}
	const lost = "the API server is lost: watch pods: refused"
	run := func() {
		t.Helper()
		is("/healthz", 200, "ok")
		is("/readyz", 200, "ok")
		p.say(kubeorbit.Status{Lost: errors.New("watch pods: refused")})
		is("/healthz", 200, "ok, but "+lost)
		is("/readyz", 503, lost)
		p.say(kubeorbit.Status{})
	}
	run()
	code, _ := ask(p, "/metrics")
	require.Equal(t, 503, code)
	ledger := &orbit.MemoryLedger{}
	p.start(ledger, kubeorbit.Population(ledger))
	run()
}

// The metrics say how many pods wait for which reason, and whether the API server is lost.
func TestMetrics(t *testing.T) {
	p, ledger := &pages{}, &orbit.MemoryLedger{}
	p.start(ledger, kubeorbit.Population(ledger))
	has := func(lines ...string) {
		t.Helper()
		code, body := ask(p, "/metrics")
		require.Equal(t, 200, code)
		for _, line := range lines {
			require.Contains(t, body, "\n"+line+"\n")
		}
	}
	has("kubeorbit_api_server_lost 0")
	p.say(kubeorbit.Status{Lost: errors.New("refused"), Waiting: map[string]int{"gang": 3, "parked": 0}})
	has("kubeorbit_api_server_lost 1", `kubeorbit_waiting_pods{reason="gang"} 3`, `kubeorbit_waiting_pods{reason="parked"} 0`)
	_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"default/a/uid"}, Spec: &orbit.Spec{}}}})
	require.NoError(t, err)
	has(`orbit_waiting_capsules{engine="services",kind="unplanned"} 1`)
	code, body := ask(p, "/orbit/api/explain?capsule=default/a")
	require.Equal(t, 200, code, body)
	require.Contains(t, body, "default/a/uid")
}
