package control

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// A board learns what its peer has been told, also after the connection was lost.
func TestFollowPeer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var here, there telemetry.Board
	server := httptest.NewServer(serveBoard(&there))
	done := make(chan error, 1)
	go func() { done <- followPeer(ctx, server.Client(), &here, server.URL+"/") }()
	for _, node := range []orbit.NodeID{"a", "b"} {
		_, version, err := here.Reports(ctx, 0)
		require.NoError(t, err)
		require.NoError(t, there.Report(orbit.Report{Node: node, At: time.Now(), FreeSlots: 7}))
		require.NoError(t, here.Wait(ctx, version))
		r, ok := here.Latest(node)
		require.True(t, ok)
		require.Equal(t, 7, r.FreeSlots)
		server.CloseClientConnections()
	}
	cancel()
	require.NoError(t, <-done)
	server.Close()
}

// silent is a body in which nothing comes before the request ends.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (silent) Close() error { return nil }

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// A peer that answers nothing, says nothing, is not there or is no control process is asked again, not at once and not never.
func TestFollowSilentPeer(t *testing.T) {
	for name, test := range map[string]struct {
		answer  transport
		longest time.Duration
	}{
		"does not answer": {func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, time.Minute + time.Second},
		"says nothing": {func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: silent{r.Context()}}, nil
		}, 11 * time.Second},
		"is not there": {func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }, time.Second},
		"is another": {func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 404, Body: http.NoBody}, nil
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []time.Time
				ctx, cancel := context.WithCancel(t.Context())
				client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					asked = append(asked, time.Now())
					return test.answer(r)
				})}
				done := make(chan error, 1)
				go func() { done <- followPeer(ctx, client, &telemetry.Board{}, "http://peer") }()
				time.Sleep(10 * time.Minute)
				cancel()
				require.NoError(t, <-done)
				require.GreaterOrEqual(t, len(asked), int(9*time.Minute/test.longest))
				for i := 1; i < len(asked); i++ {
					require.GreaterOrEqual(t, asked[i].Sub(asked[i-1]), time.Second)
					require.LessOrEqual(t, asked[i].Sub(asked[i-1]), test.longest)
				}
			})
		})
	}
}
