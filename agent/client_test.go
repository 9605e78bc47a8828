package agent_test

import (
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

	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	lost := agent.Client{URL: server.URL}
	out = lost.Confirm(t.Context(), "n", 1, said)
	require.ErrorIs(t, out[0].Err, orbit.ErrUnknown)
	require.NotErrorIs(t, out[0].Err, orbit.ErrUnavailable)
}
