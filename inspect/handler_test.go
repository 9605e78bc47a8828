package inspect

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

func commit(t testing.TB, l orbit.Ledger, do ...orbit.Commitment) {
	t.Helper()
	_, err := l.Propose(context.Background(), orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
	require.NoError(t, err)
}

func nodeIn(id, zone, rack string, cpu int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: cpu, orbit.Memory: 64 << 30}, Labels: map[string]string{"zone": zone, "rack": rack}}}
}

func asking(cpu int64) *orbit.Spec {
	return &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
}

// scene is two zones of three nodes, one capsule that has a place, and one that fits nowhere.
func scene(t testing.TB) (*orbit.MemoryLedger, *Handler, *orbit.Engine) {
	l := &orbit.MemoryLedger{}
	h := &Handler{Ledger: l, Every: time.Millisecond}
	for i := range 6 {
		commit(t, l, nodeIn(fmt.Sprintf("n%d", i), fmt.Sprintf("z%d", i/3), fmt.Sprintf("r%d", i), 4000))
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"small"}, Spec: asking(1000)}, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: asking(9000)})
	return l, h, &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{}, OnRound: h.Round}
}

// pass runs a pass as Run would.
func pass(e *orbit.Engine) { e.OnRound(e.Pass(context.Background())) }

func get(t testing.TB, h http.Handler, path string) (status int, body map[string]any, head http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/orbit/"+path, nil))
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body.String())
	}
	return w.Code, body, w.Header()
}

// TestAPI reads all that the API says of a small scene.
func TestAPI(t *testing.T) {
	_, h, e := scene(t)
	pass(e)
	status, body, _ := get(t, h, "api/state")
	require.Equal(t, http.StatusOK, status)
	overview := body["overview"].(map[string]any)
	require.EqualValues(t, 1, overview["placed"])
	require.EqualValues(t, 1, overview["pending"])
	require.Len(t, overview["zones"], 2)
	zone := overview["zones"].([]any)[0].(map[string]any)
	require.Equal(t, "z0", zone["name"])
	require.Len(t, zone["cells"], 3)
	require.Len(t, zone["cells"].([]any)[0].(map[string]any)["members"], 1, "few nodes are shown one by one")
	waiting := body["waiting"].(map[string]any)["rows"].([]any)
	require.Len(t, waiting, 1)
	require.Equal(t, "large", waiting[0].(map[string]any)["capsule"])
	engines := body["engines"].([]any)
	require.EqualValues(t, 1, engines[0].(map[string]any)["placed"])
	require.Len(t, body["rounds"].(map[string]any)["rounds"], 1)

	var on string
	s, err := h.Ledger.Snapshot(t.Context())
	require.NoError(t, err)
	on = string(s.Capsule("small").Node)
	status, body, _ = get(t, h, "api/node?id="+on)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "small", body["capsules"].([]any)[0].(map[string]any)["id"])
	require.EqualValues(t, 1000, body["rows"].([]any)[0].(map[string]any)["used"])
	status, body, _ = get(t, h, "api/nodes?zone=z1&rack=r4")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, body["nodes"], 1)
	require.Equal(t, "n4", body["nodes"].([]any)[0].(map[string]any)["id"])
	status, body, _ = get(t, h, "api/nodes?rack=r1&to=r3&count=2")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, body["nodes"], 2)
	require.EqualValues(t, 1, body["more"])

	status, body, _ = get(t, h, "api/explain?capsule=large")
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, 6, body["nodes"])
	require.NotContains(t, body, "fits")
	require.EqualValues(t, 6, body["why"].([]any)[0].(map[string]any)["nodes"])
	require.NotEmpty(t, body["fixes"])
	require.Equal(t, []any{"no node is that large: the largest has 4 cores"}, body["says"])
	_, body, _ = get(t, h, "api/explain?capsule=small")
	require.Contains(t, body["text"], "is placed on node")
	status, _, _ = get(t, h, "api/explain?capsule=tiny")
	require.Equal(t, http.StatusNotFound, status)
	h.Find = func(_ *orbit.State, name string) orbit.CapsuleID {
		return map[string]orbit.CapsuleID{"tiny": "small", "small": "large", "lost": "gone"}[name]
	}
	_, body, _ = get(t, h, "api/explain?capsule=tiny")
	require.Equal(t, "small", body["capsule"], "by its other name")
	_, body, _ = get(t, h, "api/explain?capsule=small")
	require.Equal(t, "small", body["capsule"], "its ID comes first")
	for _, name := range []string{"lost", "unheard"} {
		status, _, _ = get(t, h, "api/explain?capsule="+name)
		require.Equal(t, http.StatusNotFound, status)
	}
}

// TestBrokenRules: the API lists the domains that have too many by a rule Even, worst first and once each, until a move repairs it, and explains what waits for
// a domain with how to add one.
func TestBrokenRules(t *testing.T) {
	l := &orbit.MemoryLedger{}
	h := &Handler{Ledger: l, Every: time.Nanosecond}
	even := func(group string, cpu int64) *orbit.Spec {
		s := asking(cpu)
		s.Group, s.Movable, s.Even = group, true, []orbit.Even{{Group: group, Level: "zone", MaxSkew: 1}}
		return s
	}
	broken := func() any {
		h.init()
		h.frames.due = time.Time{}
		_, body, _ := get(t, h, "api/state")
		return body["rules"].(map[string]any)["skewed"]
	}
	commit(t, l, nodeIn("a", "za", "r", 4000), orbit.Submit{IDs: []orbit.CapsuleID{"1", "2"}, Spec: even("web", 100)}, orbit.Submit{IDs: []orbit.CapsuleID{"3"}, Spec: even("web", 200)},
		orbit.Submit{IDs: []orbit.CapsuleID{"4", "5"}, Spec: even("db", 100)})
	commit(t, l, orbit.Place{Capsule: "1", Node: "a"}, orbit.Place{Capsule: "2", Node: "a"}, orbit.Place{Capsule: "3", Node: "a"}, orbit.Place{Capsule: "4", Node: "a"}, orbit.Place{Capsule: "5", Node: "a"})
	require.Equal(t, []any{}, broken(), "one zone is even")
	commit(t, l, nodeIn("b", "zb", "r", 300))
	row := func(group string, members int) map[string]any {
		return map[string]any{"group": group, "level": "zone", "domain": "za", "members": float64(members), "fewest": 0.0, "maxSkew": 1.0}
	}
	require.Equal(t, []any{row("web", 3), row("db", 2)}, broken())
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	commit(t, l, orbit.Evict{Capsule: "3", From: "a", Since: s.Capsule("3").PlacedAt}, orbit.Place{Capsule: "3", Node: "b"})
	require.Equal(t, []any{row("db", 2)}, broken())
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"6"}, Spec: even("db", 400)})
	_, body, _ := get(t, h, "api/explain?capsule=6")
	require.Contains(t, body["text"], "add a node in zone zb: one like a")
	require.Contains(t, fmt.Sprint(body["fixes"]), "add a node in zone zb: one like a")
}

// TestWhatWaitsToBegin: the API lists placed capsules that may not begin, first the one that was placed first, with what each waits for, until that
// has stopped; and an explanation says it, and where starts have failed.
func TestWhatWaitsToBegin(t *testing.T) {
	l := &orbit.MemoryLedger{}
	h := &Handler{Ledger: l, Every: time.Nanosecond}
	blocked := func() any {
		h.init()
		h.frames.due = time.Time{}
		_, body, _ := get(t, h, "api/state")
		return body["waiting"].(map[string]any)["blocked"]
	}
	for _, id := range []string{"a", "b"} {
		n := nodeIn(id, "z", "r", 4000)
		n.Node.Confirms = true
		commit(t, l, n)
	}
	since := func(id orbit.CapsuleID) orbit.Revision {
		s, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		return s.Capsule(id).PlacedAt
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"old", "moves", "next"}, Spec: asking(4000)}, orbit.Place{Capsule: "old", Node: "a"}, orbit.Place{Capsule: "moves", Node: "b"})
	left := since("moves")
	commit(t, l, orbit.Confirm{Capsule: "old", Since: left, Begun: true}, orbit.Confirm{Capsule: "moves", Since: left, Begun: true})
	require.Equal(t, []any{}, blocked())
	commit(t, l, orbit.Release{Capsule: "old", Final: true})
	commit(t, l, orbit.Place{Capsule: "next", Node: "a", At: 5e9})
	require.Equal(t, []any{map[string]any{"capsule": "next", "node": "a", "for": "old", "on": "a", "since": 5000.0}}, blocked())
	_, body, _ := get(t, h, "api/explain?capsule=next")
	require.Contains(t, body["text"], `it may not begin until capsule "old" has stopped on node "a", which it left at revision `)
	require.NotContains(t, body, "failures")
	commit(t, l, orbit.Confirm{Capsule: "old", Since: left, Stopped: true})
	require.Equal(t, []any{}, blocked())

	commit(t, l, orbit.Release{Capsule: "next", Stopped: true, At: 60e9})
	_, body, _ = get(t, h, "api/explain?capsule=next")
	require.Equal(t, `it has failed once; last it failed or could not begin on node "a" at 1970-01-01T00:01:00Z`, body["failures"])
	commit(t, l, orbit.Place{Capsule: "next", Node: "a", At: 70e9})
	commit(t, l, orbit.Release{Capsule: "next", Stopped: true, At: 80e9})
	_, body, _ = get(t, h, "api/explain?capsule=next")
	require.Contains(t, body["text"], `it has failed 2 times, 2 times in a row, so engines wait longer and longer before they place it again; last`)
}

// TestNodesOnWhichStartsFail: the API and an explanation list them, and an explanation says of what has ended whether its attempts are used up.
func TestNodesOnWhichStartsFail(t *testing.T) {
	l := &orbit.MemoryLedger{}
	h := &Handler{Ledger: l, Every: time.Nanosecond}
	now, spec := orbit.Instant(time.Now().UnixNano()), asking(100)
	spec.Attempts = 1
	commit(t, l, nodeIn("bad", "z", "r", 4000), nodeIn("good", "z", "r", 4000), orbit.Submit{IDs: []orbit.CapsuleID{"runs", "a", "b"}, Spec: asking(100)}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec})
	for _, id := range []orbit.CapsuleID{"a", "b", "c"} {
		commit(t, l, orbit.Place{Capsule: id, Node: "bad"})
		commit(t, l, orbit.Release{Capsule: id, Stopped: true, At: now})
	}
	commit(t, l, orbit.Place{Capsule: "runs", Node: "bad"})
	_, body, _ := get(t, h, "api/state")
	require.Equal(t, []any{map[string]any{"node": "bad", "failed": 3.0, "of": 4.0}}, body["waiting"].(map[string]any)["failing"])
	_, body, _ = get(t, h, "api/explain?capsule=a")
	require.Equal(t, []any{`node "bad": 3 of 4 starts failed`}, body["failing"])
	require.Contains(t, body["text"], "2 of 2 nodes fit\nused only if nothing else fits\n  * node \"bad\": 3 of 4 starts failed")
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: asking(100), Members: []orbit.CapsuleID{"g0"}}}}})
	_, body, _ = get(t, h, "api/explain?gang=g")
	require.Equal(t, []any{`node "bad": 3 of 4 starts failed`}, body["failing"])
	_, body, _ = get(t, h, "api/explain?capsule=c")
	require.Contains(t, body["text"], `capsule "c" has ended: all of its 1 attempts have failed`)
}

// TestExplainsGangs explains a gang of which some members fit.
func TestExplainsGangs(t *testing.T) {
	l, h, _ := scene(t)
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: asking(3000), Members: []orbit.CapsuleID{"g0", "g1", "g2", "g3", "g4", "g5", "g6"}}}}})
	status, body, _ := get(t, h, "api/explain?gang=g")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body["text"], "it would fit if you\n  * ")
	require.NotEmpty(t, body["fixes"])
	require.Contains(t, body["text"], body["fixes"].([]any)[0].(map[string]any)["text"])
	_, body, _ = get(t, h, "api/state")
	rows := body["waiting"].(map[string]any)["rows"].([]any)
	require.Len(t, rows, 3, "a gang is one row")
}

// TestRefuses: what is asked wrongly gets an error that says what to do, and so do pages of other origins.
func TestRefuses(t *testing.T) {
	_, h, _ := scene(t)
	for path, status := range map[string]int{
		"api/node?id=none": 404, "api/node": 404, "api/explain": 404, "api/explain?capsule=none": 404, "api/explain?gang=none": 404, "api/none": 404, "none.js": 404,
		"": 200, "page.js": 200, "page.css": 200, "icon.svg": 200, "api/state": 200, "../handler.go": 404, "assets": 404,
	} {
		got, body, head := get(t, h, path)
		require.Equal(t, status, got, path)
		require.Equal(t, "nosniff", head.Get("X-Content-Type-Options"))
		if got != 200 {
			require.NotEmpty(t, body["error"], path)
		}
	}
	ask := func(change func(*http.Request)) int {
		r := httptest.NewRequest(http.MethodGet, "http://here:80/debug/orbit/api/state", nil)
		change(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, 200, ask(func(*http.Request) {}))
	require.Equal(t, 200, ask(func(r *http.Request) { r.Header.Set("Origin", "http://here:80") }))
	require.Equal(t, 403, ask(func(r *http.Request) { r.Header.Set("Origin", "http://elsewhere") }))
	require.Equal(t, 403, ask(func(r *http.Request) { r.Header.Set("Origin", "null") }))
	require.Equal(t, 403, ask(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }))
	require.Equal(t, 403, ask(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }))
	require.Equal(t, 405, ask(func(r *http.Request) { r.Method = http.MethodPost }))
	h.Hosts = []string{"here"}
	require.Equal(t, 200, ask(func(*http.Request) {}))
	require.Equal(t, 403, ask(func(r *http.Request) { r.Host = "stranger:80" }), "a name of a stranger's that leads here")
	require.Equal(t, 500, func() int {
		w := httptest.NewRecorder()
		(&Handler{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}())
}

// TestAssetsAreCachedByContent: a browser that has the page asks whether it is still that.
func TestAssetsAreCachedByContent(t *testing.T) {
	_, h, _ := scene(t)
	_, _, head := get(t, h, "page.js")
	require.Contains(t, head.Get("Content-Type"), "javascript")
	require.Contains(t, head.Get("Content-Security-Policy"), "script-src 'self'")
	r := httptest.NewRequest(http.MethodGet, "/debug/orbit/page.js", nil)
	r.Header.Set("If-None-Match", head.Get("Etag"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusNotModified, w.Code)
}

// client follows the events of a server.
type client struct {
	t      testing.TB
	body   io.Closer
	lines  *bufio.Scanner
	lastID string
}

func follow(t testing.TB, url, last string) *client {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/orbit/api/events", nil)
	require.NoError(t, err)
	r.Header.Set("Last-Event-ID", last)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	c := &client{t: t, body: answer.Body, lines: bufio.NewScanner(answer.Body)}
	c.lines.Buffer(nil, 1<<24)
	t.Cleanup(func() { _ = c.body.Close() })
	return c
}

// until returns the first event with a name, or any, for which is holds.
func (c *client) until(name string, is func(map[string]any) bool) map[string]any {
	c.t.Helper()
	event := ""
	for c.lines.Scan() {
		kind, value, _ := strings.Cut(c.lines.Text(), ": ")
		switch kind {
		case "event":
			event = value
		case "id":
			c.lastID = value
		case "data":
			body := map[string]any{}
			if strings.HasPrefix(value, "{") {
				require.NoError(c.t, json.Unmarshal([]byte(value), &body))
			}
			if (name == "" || event == name) && is(body) {
				return body
			}
		}
	}
	require.Fail(c.t, "the stream has ended", "%v", c.lines.Err())
	return nil
}

func serve(t testing.TB, h *Handler) string {
	mux := http.NewServeMux()
	mux.Handle("/orbit/", h)
	server := httptest.NewServer(mux)
	t.Cleanup(func() { _ = h.Close(); server.Close() })
	return server.URL
}

// TestEventsFollowTheLedger: a client sees the first state, then what changes, and one that comes back misses no round and sees none
// twice.
func TestEventsFollowTheLedger(t *testing.T) {
	l, h, e := scene(t)
	url := serve(t, h)
	c := follow(t, url, "")
	first := c.until("overview", func(map[string]any) bool { return true })
	require.EqualValues(t, 0, first["placed"])
	pass(e)
	seen, told := false, false
	c.until("", func(body map[string]any) bool { // the two come in any order
		seen = seen || body["placed"] == 1.0
		list, ok := body["rounds"].([]any)
		told = told || ok && len(list) == 1
		return seen && told
	})
	require.NoError(t, c.body.Close())
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"more"}, Spec: asking(1000)})
	pass(e)
	again := follow(t, url, c.lastID)
	got := again.until("rounds", func(map[string]any) bool { return true })
	require.Len(t, got["rounds"], 1)
	require.EqualValues(t, 2, got["rounds"].([]any)[0].(map[string]any)["seq"])
	elsewhere := follow(t, url, "another:1")
	require.Len(t, elsewhere.until("rounds", func(map[string]any) bool { return true })["rounds"], 2, "another process's rounds say nothing of this one's")
}

// TestMovesAreNoEvictions: a round, and the sums of its engine, count whom it has evicted and whom it has moved apart.
func TestMovesAreNoEvictions(t *testing.T) {
	h := &Handler{Ledger: &orbit.MemoryLedger{}}
	for range 2 {
		h.Round(orbit.Round{Engine: "e", Pending: 1, Evicted: 2, Moved: 3})
	}
	rounds, _, _ := h.log.after(0, 10)
	require.Equal(t, [2]int{2, 3}, [2]int{rounds[0].Evicted, rounds[0].Moved})
	e := h.log.of("e")
	require.Equal(t, [2]int{4, 6}, [2]int{e.Evicted, e.Moved})
}

// TestConflictsAreToldWithTheirRival: two engines plan on one state; the receipt of the one that has lost names the other.
func TestConflictsAreToldWithTheirRival(t *testing.T) {
	l := &orbit.MemoryLedger{}
	h := &Handler{Ledger: l}
	commit(t, l, nodeIn("n", "z", "r", 1000), orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: asking(1000), Owner: "first"}, orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: asking(1000), Owner: "second"})
	first := &orbit.Engine{Name: "first", Ledger: l, Navigator: &nav.Services{}, OnRound: h.Round}
	second := &orbit.Engine{Name: "second", Ledger: l, OnRound: h.Round, Navigator: afterwards{&nav.Services{}, func() { pass(first) }}}
	pass(second)
	rounds, _, _ := h.log.after(0, 10)
	require.Len(t, rounds, 2)
	lost := rounds[1].Receipts[0]
	require.Equal(t, "conflict", lost.Outcome)
	require.Equal(t, "first", lost.Rival)
	require.Equal(t, orbit.NodeID("n"), lost.Node)
	require.NotEmpty(t, lost.Reason)
}

// TestConflictsWithOtherProcesses: a receipt names the winner if it is an engine whose passes the page knows, even if it hears of that
// pass later, and says so if it is none; if the ledger does not know who has won, it says nothing.
func TestConflictsWithOtherProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		known bool
		rival string
	}{"an engine here": {true, "rival"}, "an engine elsewhere": {false, "another process or client"}} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			h := &Handler{Ledger: l}
			commit(t, l, nodeIn("n", "z", "r", 1000), orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: asking(1000), Owner: "rival"}, orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: asking(1000), Owner: "e"})
			var won orbit.Round
			rival := &orbit.Engine{Name: "rival", Ledger: l, Navigator: &nav.Services{}, OnRound: func(orbit.Round) {}}
			e := &orbit.Engine{Name: "e", Ledger: l, OnRound: h.Round, Navigator: afterwards{&nav.Services{}, func() { won = rival.Pass(t.Context()) }}}
			pass(e)
			require.Equal(t, 1, won.Committed)
			if c.known {
				h.Round(won)
			}
			rounds, _, _ := h.log.after(0, 10)
			require.Equal(t, "conflict", rounds[0].Receipts[0].Outcome)
			require.Equal(t, c.rival, rounds[0].Receipts[0].Rival)
		})
	}
	l := &orbit.MemoryLedger{}
	h := &Handler{Ledger: l}
	h.Round(orbit.Round{Engine: "e", Settled: []orbit.Settled{{Outcome: orbit.Outcome{Err: &orbit.Rejection{Kind: orbit.ErrConflict}}}}})
	rounds, _, _ := h.log.after(0, 10)
	require.Equal(t, "conflict", rounds[0].Receipts[0].Outcome)
	require.Empty(t, rounds[0].Receipts[0].Rival)
}

// afterwards plans, and then lets something happen before the plan is proposed.
type afterwards struct {
	orbit.Navigator
	then func()
}

func (a afterwards) Plan(ctx context.Context, v *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := a.Navigator.Plan(ctx, v, pending)
	a.then()
	return plan, err
}

// TestClientsAreBounded: more clients than may follow are told so, and have a place when one goes.
func TestClientsAreBounded(t *testing.T) {
	_, h, _ := scene(t)
	h.Clients = 1
	url := serve(t, h)
	c := follow(t, url, "")
	c.until("overview", func(map[string]any) bool { return true })
	answer, err := http.Get(url + "/orbit/api/events")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.NotEmpty(t, answer.Header.Get("Retry-After"))
	require.NoError(t, c.body.Close())
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.clients == 0
	}, time.Minute, time.Millisecond)
	follow(t, url, "").until("overview", func(map[string]any) bool { return true })
}

// broken is a ledger that cannot be read for a while.
type broken struct {
	orbit.Ledger
	mu  sync.Mutex
	err error
}

func (b *broken) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *broken) Snapshot(ctx context.Context) (*orbit.State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, b.err
	}
	return b.Ledger.Snapshot(ctx)
}

// TestLedgerThatCannotBeRead: clients are told, and go on when it can be read again.
func TestLedgerThatCannotBeRead(t *testing.T) {
	l, h, _ := scene(t)
	b := &broken{Ledger: l, err: errors.New("no connection")}
	h.Ledger = b
	status, body, _ := get(t, h, "api/state")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body["error"], "no connection")
	for _, path := range []string{"api/node?id=n0", "api/nodes", "api/explain?capsule=large"} {
		status, _, _ := get(t, h, path)
		require.Equal(t, http.StatusServiceUnavailable, status, path)
	}
	c := follow(t, serve(t, h), "")
	require.Contains(t, c.until("trouble", func(map[string]any) bool { return true })["error"], "no connection")
	b.set(nil)
	c.until("overview", func(o map[string]any) bool { return o["pending"] == 2.0 })
	b.set(errors.New("no connection, again"))
	old := c.until("trouble", func(o map[string]any) bool { return o["error"] != "" })
	require.Contains(t, old["error"], "no connection, again")
	require.Positive(t, old["since"])
	late := follow(t, serve(t, h), "")
	late.until("overview", func(o map[string]any) bool { return o["pending"] == 2.0 })
	late.until("trouble", func(o map[string]any) bool { return o["error"] != "" })
	b.set(nil)
	late.until("trouble", func(o map[string]any) bool { return o["error"] == "" })
}

// hangs is a ledger whose store does not answer: a read waits as long as its caller does.
type hangs struct {
	orbit.Ledger
	out atomic.Bool
}

func (h *hangs) Snapshot(ctx context.Context) (*orbit.State, error) {
	if h.out.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Ledger.Snapshot(ctx)
}

func (h *hangs) Health() error {
	if h.out.Load() {
		return errors.New("connection refused")
	}
	return nil
}

// TestOutage: while the store does not answer, everybody who asks is answered within 3 s, from the state that was read last, which is said
// to be old; without one, with an error.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h, _ := scene(t)
		out := &hangs{Ledger: l}
		h.Ledger = out
		paths := []string{"api/state", "api/nodes", "api/node?id=n0", "api/explain?capsule=large"}
		ask := func(path string) (int, map[string]any) {
			start := time.Now()
			status, body, _ := get(t, h, path)
			require.LessOrEqual(t, time.Since(start), 3*time.Second, path)
			return status, body
		}
		out.out.Store(true)
		for _, path := range paths {
			status, body := ask(path)
			require.Equal(t, http.StatusServiceUnavailable, status, path)
			require.Contains(t, body["error"], "connection refused", path)
		}
		out.out.Store(false)
		status, body := ask("api/state")
		require.Equal(t, http.StatusOK, status)
		require.NotContains(t, body, "trouble")
		read := time.Now()
		time.Sleep(time.Minute)
		out.out.Store(true)
		var group sync.WaitGroup
		for range 10 { // clients do not wait for each other
			for _, path := range paths[:3] {
				group.Go(func() { ask(path) })
			}
		}
		group.Wait()
		for _, path := range paths {
			status, body := ask(path)
			require.Equal(t, http.StatusOK, status, path)
			old, _ := body["trouble"].(map[string]any)
			require.Contains(t, old["error"], "connection refused", path)
			require.EqualValues(t, read.UnixMilli(), old["since"], path)
		}
		out.out.Store(false)
		time.Sleep(time.Second)
		for _, path := range paths {
			status, body := ask(path)
			require.Equal(t, http.StatusOK, status, path)
			require.NotContains(t, body, "trouble", path)
		}
	})
}

// unread is a ledger whose Snapshot does not return.
type unread struct{ orbit.Ledger }

func (unread) Snapshot(ctx context.Context) (*orbit.State, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestIdleEnginesAreListed: engines that are given are listed from the start, and one that makes no passes and one that stands by are told
// from one that is idle.
func TestIdleEnginesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		l, h, _ := scene(t)
		idle := &orbit.Engine{Name: "idle", Ledger: l, Navigator: &nav.Batch{}}
		away := &orbit.Engine{Name: "away", Ledger: l, Navigator: &nav.Services{}}
		stuck := &orbit.Engine{Name: "stuck", Ledger: unread{l}, Navigator: &nav.Gang{}}
		h.Engines = []*orbit.Engine{idle, nil, away, stuck}
		done := make(chan error, 2)
		for _, e := range []*orbit.Engine{idle, stuck} {
			go func() { done <- e.Run(ctx) }()
		}
		listed := func(i int) []any {
			_, body, _ := get(t, h, "api/state")
			list := body["engines"].([]any)
			require.Len(t, list, 3)
			e := list[i].(map[string]any)
			return []any{e["name"], e["standby"], e["silent"], e["passed"]}
		}
		time.Sleep(time.Hour)
		require.Equal(t, []any{"idle", nil, nil, nil}, listed(0))
		require.Equal(t, []any{"away", true, nil, nil}, listed(1))
		require.Equal(t, []any{"stuck", nil, true, nil}, listed(2))
		why := func() string {
			time.Sleep(time.Second) // the next frame is due
			_, body, _ := get(t, h, "api/state")
			return fmt.Sprint(body["waiting"].(map[string]any)["rows"])
		}
		require.Equal(t, 2, strings.Count(why(), "its engine does not run in this process; if another process runs it, the page of that one says the reason"))
		_ = away.Pass(t.Context())
		require.NotContains(t, why(), "does not run")
		require.Contains(t, why(), "0 of 6 nodes fit: 6 lack cpu")
		stop()
		require.NoError(t, errors.Join(<-done, <-done))
		time.Sleep(time.Hour)
		require.Equal(t, []any{"idle", true, nil, nil}, listed(0), "it stands by at once, and however long")
		_ = idle.Pass(t.Context())
		passed := time.Now()
		time.Sleep(time.Second)
		require.Equal(t, []any{"idle", nil, nil, nil}, listed(0))
		time.Sleep(time.Minute)
		require.Equal(t, []any{"idle", nil, true, float64(passed.UnixMilli())}, listed(0), "nobody calls its Pass any more")
	})
}

// TestFramesAreSharedAndBounded: however many clients look, one frame is made for all, and only when something has changed.
func TestFramesAreSharedAndBounded(t *testing.T) {
	l, h, _ := scene(t)
	h.init()
	h.Every = time.Nanosecond
	first, trouble := h.frame(t.Context())
	require.Nil(t, trouble)
	for range 10 {
		h.frames.due = time.Time{}
		again, _ := h.frame(t.Context())
		require.Same(t, first, again)
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"more"}, Spec: asking(1)})
	h.frames.due = time.Time{}
	next, _ := h.frame(t.Context())
	require.NotSame(t, first, next)
	for i, part := range next.sections {
		changed := part.name == "overview" || part.name == "waiting"
		require.Equal(t, changed, part.version != first.sections[i].version, part.name)
	}
}

// TestWhatIsKeptIsBounded: a process that lives long, with many engines and long texts, keeps a bounded number of short things.
func TestWhatIsKeptIsBounded(t *testing.T) {
	h := &Handler{Ledger: &orbit.MemoryLedger{}}
	h.init()
	long := strings.Repeat("ü", 10_000)
	for i := range 2000 {
		r := orbit.Round{Engine: fmt.Sprintf("%s-%d", long, i), Proposed: 1, Errors: []error{errors.New(long)}}
		for k := range 100 {
			id := orbit.NewProposalID()
			r.Settled = append(r.Settled, orbit.Settled{Proposal: orbit.Proposal{ID: id, Do: []orbit.Commitment{orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprint(i, k))}}}})
		}
		h.Round(r)
	}
	require.LessOrEqual(t, len(h.log.rounds), mostRounds)
	require.LessOrEqual(t, len(h.log.names), mostEngines)
	require.LessOrEqual(t, len(h.log.makers), mostMakers)
	for _, r := range h.log.rounds {
		require.LessOrEqual(t, len(r.Engine), mostText+4)
		require.LessOrEqual(t, len(r.Receipts), mostReceipts)
		require.Equal(t, 100-mostReceipts, r.More)
	}
}

// panics is an error of an importer's with a fault of its own.
type panics struct{}

func (panics) Error() string { panic("no text") }

// silent is a navigator that leaves out all work, for a reason that cannot be read.
type silent struct{}

func (silent) Claims(string, orbit.AppClass) bool { return true }

func (silent) Plan(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
	for _, c := range pending {
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: panics{}})
	}
	return plan, nil
}

// TestErrorsOfImportersMayPanic: neither a round nor a frame does then.
func TestErrorsOfImportersMayPanic(t *testing.T) {
	l, h, _ := scene(t)
	h.init()
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: silent{}}
	round := e.Pass(t.Context())
	round.Errors = append(round.Errors, panics{})
	h.Round(round)
	_, body, _ := get(t, h, "api/state")
	require.Contains(t, fmt.Sprint(body["rounds"]), "cannot be read")
	require.Contains(t, fmt.Sprint(body["waiting"]), "cannot be read")
}

// TestOverviewAddsUp: however nodes are labelled, zones and cells count each node and capsule once, and the nodes of every cell are those
// that api/nodes answers with.
func TestOverviewAddsUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := &orbit.MemoryLedger{}
		h := &Handler{Ledger: l}
		n := rapid.SampledFrom([]int{1, 10, 300, 900}).Draw(r, "nodes")
		zones, racks := rapid.IntRange(1, 80).Draw(r, "zones"), rapid.SampledFrom([]int{1, 5, 200, 3000}).Draw(r, "racks")
		var do []orbit.Commitment
		for i := range n {
			do = append(do, nodeIn(fmt.Sprintf("n%d", i), fmt.Sprint("z", i%zones), fmt.Sprint("r", (i*7)%racks), 4000))
		}
		commit(t, l, do...)
		s, err := l.Snapshot(context.Background())
		require.NoError(r, err)
		o := h.makeOverview(s)
		require.Equal(r, n, o.Nodes.all())
		seen, cells := 0, 0
		for _, z := range o.Zones {
			in := 0
			for _, c := range z.Cells {
				cells++
				in += c.Nodes.all()
				if n <= mostShown {
					require.Len(r, c.Members, c.Nodes.all())
				}
			}
			require.Equal(r, z.Nodes.all(), in, z.Name)
			seen += in
		}
		require.Equal(r, n, seen)
		require.LessOrEqual(r, cells, 2*mostCells)
		z := o.Zones[rapid.IntRange(0, len(o.Zones)-1).Draw(r, "zone")]
		c := z.Cells[rapid.IntRange(0, len(z.Cells)-1).Draw(r, "cell")]
		path := fmt.Sprintf("api/nodes?rack=%s&to=%s&first=%s&count=%d", c.Rack, c.To, c.First, c.Nodes.all())
		if !z.All {
			path += "&zone=" + z.Name
		}
		_, body, _ := get(t, h, path)
		require.Len(r, body["nodes"], min(c.Nodes.all(), mostMembers), path)
		if n <= mostShown {
			for i, m := range c.Members {
				require.Equal(r, string(m.ID), body["nodes"].([]any)[i].(map[string]any)["id"])
			}
		}
	})
}

// TestNatural orders names as people do.
func TestNatural(t *testing.T) {
	for _, p := range [][2]string{{"r2", "r10"}, {"", "a"}, {"r02", "r2"}, {"a9z", "a10"}, {"9", "a"}} {
		require.Negative(t, natural(p[0], p[1]), p)
		require.Positive(t, natural(p[1], p[0]), p)
	}
	require.Zero(t, natural("r7", "r7"))
}

// BenchmarkFrame is what a frame of 50,000 nodes and so many capsules that wait costs.
func BenchmarkFrame(b *testing.B) {
	for _, nodes := range []int{1000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			l := &orbit.MemoryLedger{}
			h := &Handler{Ledger: l}
			h.init()
			for i := 0; i < nodes; i += 1000 {
				var do []orbit.Commitment
				for k := i; k < i+1000; k++ {
					do = append(do, nodeIn(fmt.Sprintf("n%05d", k), fmt.Sprint("z", k%3), fmt.Sprint("r", k/40), 4000))
				}
				do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint(i))}, Spec: asking(int64(9000 + i))})
				commit(b, l, do...)
			}
			s, err := l.Snapshot(b.Context())
			require.NoError(b, err)
			b.ResetTimer()
			size := 0
			for b.Loop() {
				h.frames.make(h, s)
				size = 0
				for _, part := range h.frames.last.sections {
					size += len(part.body)
				}
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

// failed is a ledger that can be read and commits nothing.
type failed struct {
	orbit.Ledger
	why error
}

func (f *failed) Health() error { return f.why }

// TestTroubleIsShown: a ledger that commits nothing says why on the page, also while nothing else changes, until it commits again.
func TestTroubleIsShown(t *testing.T) {
	l, h, _ := scene(t)
	sick := &failed{Ledger: l}
	h.Ledger = sick
	trouble := func() any {
		time.Sleep(h.Every) // the next frame is due
		_, body, _ := get(t, h, "api/state")
		return body["overview"].(map[string]any)["trouble"]
	}
	synctest.Test(t, func(t *testing.T) {
		require.Nil(t, trouble())
		sick.why = errors.New("no space left on device")
		require.Equal(t, "no space left on device", trouble())
		sick.why = nil
		require.Nil(t, trouble())
	})
}
