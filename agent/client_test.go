package agent_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
)

// A connection that is refused has carried nothing, so the outcome is known; one that breaks may have carried the request.
func TestClientTellsRefusedFromLost(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	said := []agent.Statement{{ID: orbit.NewProposalID(), Fact: agent.Begun}}
	refused := agent.Client{URL: "http://" + listener.Addr().String()}
	_, err = refused.Join(t.Context(), orbit.Node{ID: "n"}, "h")
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	require.NotErrorIs(t, err, orbit.ErrUnknown)
	out := refused.Confirm(t.Context(), "n", 1, said)
	require.ErrorIs(t, out[0].Err, orbit.ErrUnavailable)

	for name, end := range map[string]http.HandlerFunc{
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
			}
			if err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(end)
			defer server.Close()
			lost := agent.Client{URL: server.URL}
			out := lost.Confirm(t.Context(), "n", 1, said)
			require.ErrorIs(t, out[0].Err, orbit.ErrUnknown)
			require.NotErrorIs(t, out[0].Err, orbit.ErrUnavailable)
		})
	}
}
