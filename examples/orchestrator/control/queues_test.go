package control

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/nav"
)

// office is a control process on a ledger in memory, whose loops a test plays.
type office struct {
	*testing.T
	*Control
}

func newOffice(t *testing.T) *office {
	ledger := &orbit.MemoryLedger{}
	c := &Control{ledger: ledger, local: &agent.Local{Ledger: ledger}, metrics: prometheus.NewRegistry()}
	_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 100_000, orbit.Memory: 1 << 40}}}}})
	require.NoError(t, err)
	return &office{t, c}
}

// call calls the API, and returns the answer.
func (o *office) call(status int, method, path, body string) (answer map[string]any) {
	o.Helper()
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, httptest.NewRequestWithContext(o.Context(), method, path, strings.NewReader(body)))
	require.Equal(o, status, w.Code, w.Body.String())
	require.NoError(o, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer
}

// work does what the loop of the jobs and the engine of batches do.
func (o *office) work() {
	state, err := o.ledger.Snapshot(o.Context())
	require.NoError(o, err)
	require.NoError(o, o.align(o.Context(), state))
	(&orbit.Engine{Name: "batch", Ledger: o.ledger, Navigator: &nav.Batch{}}).Pass(o.Context())
}

// Members wait for the quota of their queue, explain says so, and they begin when the quota rises. A queue lends to its sibling.
func TestQueues(t *testing.T) {
	o := newOffice(t)
	o.call(409, http.MethodPut, "/jobs/sum", `{"kind": "batch", "count": 4, "cpu": 100, "queue": "red", "run": ["x"]}`)
	o.call(404, http.MethodGet, "/queues/red", "")
	o.call(404, http.MethodDelete, "/queues/red", "")
	o.call(400, http.MethodPut, "/queues/Red", `{"nominal": {"cpu": 200}}`)
	o.call(400, http.MethodPut, "/queues/red", `{"nominal": {"cpus": 200}}`)
	o.call(400, http.MethodPut, "/queues/red", `{"quota": 200}`)
	o.call(200, http.MethodPut, "/queues/red", `{"nominal": {"cpu": 200}}`)
	o.call(200, http.MethodPut, "/jobs/sum", `{"kind": "batch", "count": 4, "cpu": 100, "queue": "red", "run": ["x"]}`)
	o.work()
	require.Equal(t, 2.0, o.call(200, http.MethodGet, "/jobs/sum", "")["placed"])
	why := o.call(200, http.MethodGet, "/jobs/sum/explain", "")
	require.Equal(t, 2.0, why["waiting"])
	require.Equal(t, `1 of 1 nodes fit; queue "red" lacks 0.1 cores; it would be enough to raise the quota of queue "red": cpu from 200 to 300`, why["why"].([]any)[0])
	q := o.call(200, http.MethodGet, "/queues/red", "")
	require.Equal(t, []any{"red", map[string]any{"cpu": 200.0}, map[string]any{"cpu": 0.0}, 2.0}, []any{q["id"], q["used"], q["available"], q["waiting"]})
	o.call(409, http.MethodDelete, "/queues/red", "")

	o.call(200, http.MethodPut, "/queues/lab", `{}`)
	o.call(200, http.MethodPut, "/queues/red", `{"parent": "lab", "nominal": {"cpu": 200}}`)
	o.call(200, http.MethodPut, "/queues/blue", `{"parent": "lab", "nominal": {"cpu": 100}}`)
	o.work()
	require.Equal(t, 3.0, o.call(200, http.MethodGet, "/jobs/sum", "")["placed"], "one member runs on what blue lends")
	require.Equal(t, map[string]any{"cpu": 100.0}, o.call(200, http.MethodGet, "/queues/red", "")["borrowed"])
	require.Equal(t, "1/3", o.call(200, http.MethodGet, "/queues/red", "")["share"])

	o.call(200, http.MethodDelete, "/jobs/sum", "")
	o.work()
	o.call(200, http.MethodDelete, "/queues/red", "")
	o.call(404, http.MethodDelete, "/queues/red", "")
}

// A job whose queue was removed although it names it, by another program, submits nothing and says why.
func TestQueueThatIsGone(t *testing.T) {
	o := newOffice(t)
	o.call(200, http.MethodPut, "/queues/red", `{"nominal": {"cpu": 200}}`)
	o.call(200, http.MethodPut, "/jobs/sum", `{"kind": "batch", "count": 1, "cpu": 100, "queue": "red", "run": ["x"]}`)
	_, err := o.ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveQueue{Queue: "red"}}})
	require.NoError(t, err)
	o.work()
	why := o.call(200, http.MethodGet, "/jobs/sum/explain", "")
	require.Equal(t, 1.0, why["waiting"])
	require.Contains(t, why["why"].([]any)[0], `queue "red" does not exist`)
	o.call(200, http.MethodPut, "/queues/red", `{"nominal": {"cpu": 200}}`)
	o.work()
	require.Equal(t, 1.0, o.call(200, http.MethodGet, "/jobs/sum", "")["placed"])
}
