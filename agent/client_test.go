package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// A connection that is refused has carried nothing, so the outcome is known; one that breaks may have carried the request.
func TestClientTellsRefusedFromLost(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	said := []agent.Statement{{ID: orbit.NewProposalID(), Fact: agent.Begun}}
	refused := agent.Client{URLs: []string{"http://" + listener.Addr().String()}}
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
			lost := agent.Client{URLs: []string{server.URL}}
			out := lost.Confirm(t.Context(), "n", 1, said)
			require.ErrorIs(t, out[0].Err, orbit.ErrUnknown)
			require.NotErrorIs(t, out[0].Err, orbit.ErrUnavailable)
		})
	}
}

// processes are control processes by the host of their URL, each with what it answers to every call.
type processes struct {
	mu      sync.Mutex
	answers map[string]func(*http.Request) (*http.Response, error)
	calls   []string // the hosts that were called
}

func (p *processes) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.calls = append(p.calls, r.URL.Host)
	answer := p.answers[r.URL.Host]
	p.mu.Unlock()
	return answer(r)
}

// took returns the hosts that were called since the last call of took.
func (p *processes) took() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := strings.Join(p.calls, " ")
	p.calls = nil
	return out
}

func answer(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}, nil
	}
}

func refuse(kind string) func(*http.Request) (*http.Response, error) {
	return answer(http.StatusUnprocessableEntity, fmt.Sprintf(`{"error": "for a test", "kind": %q}`, kind))
}

func (p *processes) client(urls ...string) *agent.Client {
	return &agent.Client{URLs: urls, HTTP: &http.Client{Transport: p}}
}

// nodeOf returns a node whose first turn is at host, of the hosts a and b.
func nodeOf(t *testing.T, host string) orbit.NodeID {
	p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){"a": answer(http.StatusOK, `{}`), "b": answer(http.StatusOK, `{}`)}}
	for i := range 100 {
		node := orbit.NodeID(fmt.Sprint("n", i))
		require.NoError(t, p.client("http://a", "http://b").Report(t.Context(), orbit.Report{Node: node}))
		if p.took() == host {
			return node
		}
	}
	require.Fail(t, "no node begins with the process", host)
	return ""
}

// A client leaves a process that does not answer or cannot serve, and no other; it stays with the next one, and comes back when that
// one fails, too.
func TestClientLeavesWhatCannotServe(t *testing.T) {
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	lost := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }
	for name, test := range map[string]struct {
		first func(*http.Request) (*http.Response, error)
		stays bool
	}{
		"does not answer": {first: hang}, "connection lost": {first: lost}, "proxy": {first: answer(http.StatusBadGateway, "")}, "no JSON": {first: answer(http.StatusOK, "{")},
		"ledger away": {first: refuse("unavailable")}, "outcome unknown": {first: refuse("unknown")}, "cannot vouch": {first: refuse("unheard")}, "ends": {first: refuse("canceled")},
		"invalid": {refuse("invalid"), true}, "conflict": {refuse("conflict"), true}, "expired": {refuse("expired"), true}, "held": {refuse("held"), true},
		"running": {refuse("running"), true}, "too many": {refuse("tooMany"), true}, "nothing new": {refuse("deadline"), true}, "well": {answer(http.StatusOK, `{"revision": 1}`), true},
		"no work": {first: answer(http.StatusOK, `{"status": "ok"}`)}, "null": {first: answer(http.StatusOK, `null`)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){"a": test.first, "b": answer(http.StatusOK, `{"revision": 1}`)}}
				c, node := p.client("http://a/agent", "http://b/agent/"), nodeOf(t, "a")
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), sec)
					_, _ = c.Watch(ctx, node, 1)
					cancel()
				}
				if test.stays {
					require.Equal(t, "a a a", p.took())
					return
				}
				require.Equal(t, "a b b", p.took(), "one call, one process")
				p.answers["b"] = lost
				p.answers["a"] = answer(http.StatusOK, `{"revision": 1}`)
				for range 3 {
					_, _ = c.Watch(t.Context(), node, 1)
				}
				require.Equal(t, "b a a", p.took())
			})
		})
	}
}

// After a statement with an unknown outcome the next statements go to another process; after a refusal they do not.
func TestClientLeavesWhatCannotConfirm(t *testing.T) {
	for kind, want := range map[string]string{"conflict": "b b", "unknown": "b a", "unavailable": "b a"} {
		p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){
			"b": answer(http.StatusOK, fmt.Sprintf(`[{"revision": 3}, {"failure": {"error": "for a test", "kind": %q}}]`, kind)),
			"a": answer(http.StatusOK, `[{"revision": 3}, {"revision": 4}]`),
		}}
		c, node := p.client("http://a", "http://b"), nodeOf(t, "b")
		out := c.Confirm(t.Context(), node, 1, make([]agent.Statement, 2))
		require.NoError(t, out[0].Err)
		require.Error(t, out[1].Err)
		c.Confirm(t.Context(), node, 1, make([]agent.Statement, 2))
		require.Equal(t, want, p.took(), kind)
	}
}

// The end of the caller is no failure of the process.
func TestClientCallerEnds(t *testing.T) {
	p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){}}
	ended := func(r *http.Request) (*http.Response, error) { return nil, r.Context().Err() }
	p.answers["a"], p.answers["b"] = ended, ended
	c := p.client("http://a", "http://b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Report(ctx, orbit.Report{Node: "n"}), orbit.ErrUnknown)
	first := p.took()
	require.ErrorIs(t, c.Report(ctx, orbit.Report{Node: "n"}), orbit.ErrUnknown)
	require.Equal(t, first, p.took())
	_, err := (&agent.Client{}).Join(t.Context(), orbit.Node{ID: "n"}, "h")
	require.ErrorIs(t, err, orbit.ErrInvalid)
	require.ErrorIs(t, (&agent.Client{}).Confirm(t.Context(), "n", 1, make([]agent.Statement, 1))[0].Err, orbit.ErrInvalid)
}

// Agents of many nodes divide themselves among the processes.
func TestClientSpreads(t *testing.T) {
	for _, pattern := range []string{"n%d", "node-%03d", "rack-7/host-%d.example.org"} {
		p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){}}
		for _, host := range []string{"a", "b", "c"} {
			p.answers[host] = answer(http.StatusOK, `{}`)
		}
		calls := map[string]int{}
		for i := range 300 {
			require.NoError(t, p.client("http://a", "http://b", "http://c").Report(t.Context(), orbit.Report{Node: orbit.NodeID(fmt.Sprintf(pattern, i))}))
			calls[p.took()]++
		}
		for host, n := range calls {
			require.InDelta(t, 100, n, 40, "%s %s", pattern, host)
		}
	}
}

// If no process answers, an agent tries all of them, with a pause between two tries.
func TestClientPauses(t *testing.T) {
	for name, answers := range map[string]func(*http.Request) (*http.Response, error){
		"lost": func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }, "unavailable": refuse("unavailable"), "unheard": refuse("unheard"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){}}
				serve := func(r *http.Request) (*http.Response, error) { // a capsule waits for its start
					said := map[string]any{
						"/join": agent.Lease{Term: 1, Fence: fence}, "/watch": agent.Work{Revision: 1, Placed: []agent.Task{{Instance: agent.Instance{Capsule: "c", Since: 1}, Spec: spec(orbit.Batch, 1, 0)}}},
						"/confirm": []any{map[string]any{"failure": map[string]string{"error": "for a test", "kind": "unavailable"}}},
					}[r.URL.Path]
					text, err := json.Marshal(said)
					return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(text))), Header: http.Header{}}, err
				}
				p.answers["a"], p.answers["b"] = serve, serve
				m := &machine{books: &books{}, id: "n0", cpu: 4000, procs: map[agent.Instance]*process{}, stops: sec}
				a := &agent.Agent{Control: p.client("http://a", "http://b"), Runtime: guarded{m}, Every: sec, Stopping: stopping,
					Node: orbit.Node{ID: "n0", Capacity: orbit.Resources{orbit.CPU: 4000}}, OnError: func(error) {}}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- a.Run(ctx) }()
				time.Sleep(10 * sec)
				p.mu.Lock()
				p.answers["a"], p.answers["b"], p.calls = answers, answers, nil
				p.mu.Unlock()
				time.Sleep(10 * sec)
				calls := p.took()
				cancel()
				require.NoError(t, <-done)
				toA, toB := strings.Count(calls, "a"), strings.Count(calls, "b")
				require.LessOrEqual(t, toA+toB, 3*10*5+3, "three calls at a time, each five times a second")
				require.Greater(t, min(toA, toB), 20)
			})
		})
	}
}

// sick is a ledger that can be read, and that can commit nothing.
type sick struct{ *orbit.MemoryLedger }

func (sick) Health() error { return errors.New("no quorum") }

// A process whose ledger commits nothing says so instead of that nothing has changed, so that its agents go to another one.
// What is there it tells all the same.
func TestWatchOfSickLedger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := &orbit.MemoryLedger{}
		_, err := memory.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "n"}}}})
		require.NoError(t, err)
		for _, ledger := range []orbit.Ledger{memory, sick{memory}} {
			ctx, cancel := context.WithTimeout(t.Context(), sec)
			keeper := &lease.Keeper{Ledger: ledger}
			local := &agent.Local{Ledger: ledger, Members: &lease.Members{Leases: keeper}, Board: &telemetry.Board{Leases: keeper}, Index: &watch.Index{Ledger: ledger}}
			done := make(chan error, 1)
			go func() { done <- local.Index.Run(ctx) }()
			work, err := local.Watch(ctx, "n", 0)
			require.NoError(t, err)
			require.False(t, work.Absent)
			_, err = local.Watch(ctx, "n", work.Revision)
			if ledger == orbit.Ledger(memory) {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				require.ErrorIs(t, err, orbit.ErrUnavailable)
				require.ErrorContains(t, err, "no quorum")
			}
			cancel()
			require.NoError(t, <-done)
		}
	})
}

// What is no answer of a Handler is not taken for one, and the next call goes to another process: a page of a proxy is no accepted report.
func TestClientRefusesGarbage(t *testing.T) {
	redirect := func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return answer(http.StatusOK, "<html>log in</html>")(r)
		}
		return &http.Response{StatusCode: http.StatusFound, Body: http.NoBody, Header: http.Header{"Location": {"http://a/login"}}}, nil
	}
	for name, first := range map[string]func(*http.Request) (*http.Response, error){
		"page": answer(http.StatusOK, "<html>welcome</html>"), "nothing": answer(http.StatusOK, ""), "list": answer(http.StatusOK, "[]"), "redirect": redirect,
		"fault of another kind": answer(http.StatusUnprocessableEntity, `{"message": "no such field"}`), "no fault": answer(http.StatusUnprocessableEntity, "null"),
	} {
		t.Run(name, func(t *testing.T) {
			for call, do := range map[string]func(*agent.Client, orbit.NodeID) error{
				"report": func(c *agent.Client, node orbit.NodeID) error { return c.Report(t.Context(), orbit.Report{Node: node}) },
				"leave":  func(c *agent.Client, node orbit.NodeID) error { return c.Leave(t.Context(), node, 1) },
			} {
				p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){"a": first, "b": answer(http.StatusOK, `{}`)}}
				c, node := p.client("http://a/agent", "http://b/agent"), nodeOf(t, "a")
				require.ErrorIs(t, do(c, node), orbit.ErrUnknown, call)
				require.NoError(t, do(c, node), call)
			}
		})
	}
}

// A URL that cannot be read is said, and the other processes serve.
func TestClientLeavesWrongURL(t *testing.T) {
	p := &processes{answers: map[string]func(*http.Request) (*http.Response, error){"b": answer(http.StatusOK, `{}`)}}
	for _, wrong := range []string{"http://[::1", "http://a b", "a b:7070"} {
		c, node := p.client(wrong, "http://b"), nodeOf(t, "a")
		require.Error(t, c.Report(t.Context(), orbit.Report{Node: node}), wrong)
		require.NoError(t, c.Report(t.Context(), orbit.Report{Node: node}), wrong)
	}
}
