package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent/process"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	copies "github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/examples/orchestrator/control"
	"github.com/orbitsched/orbit/examples/orchestrator/demo"
	"github.com/orbitsched/orbit/internal/pgserver"
	"github.com/orbitsched/orbit/telemetry"
)

// TestMain makes of the test's program the orchestrator, too, and a member of an etcd.
func TestMain(m *testing.M) {
	process.Init()
	if len(os.Args) > 1 && slices.Contains([]string{"control", "agent", "work"}, os.Args[1]) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := run(ctx, os.Args[1:])
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // or each process takes a second to end
	copies.Main(map[string]copies.Role{cluster.Role: cluster.Serve})
	os.Exit(m.Run())
}

// site is a cluster of real processes.
type site struct {
	*testing.T
	*demo.Cluster
	ctx context.Context
}

func start(t *testing.T, flags []string, nodes ...string) *site {
	return startAll(t, &demo.Cluster{Control: flags, TTL: 4 * time.Second}, nodes...)
}

// startAll starts a cluster in a temporary folder.
func startAll(t *testing.T, c *demo.Cluster, nodes ...string) *site {
	program, err := os.Executable()
	require.NoError(t, err)
	c.Dir, c.Program = t.TempDir(), program
	s := &site{t, c, t.Context()}
	t.Cleanup(s.Close)
	require.NoError(t, s.StartAll(s.ctx, nodes...))
	return s
}

// onEtcd starts an etcd, and returns the flags of a control process whose ledger is there.
func onEtcd(t *testing.T) []string {
	etcd, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), NoSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcd.Close()) })
	return []string{"-ledger", "etcd:" + strings.Join(etcd.Endpoints(), ",")}
}

// story returns what the processes of a member have written, as in "begin a1, stop a1".
func (s *site) story(member string) string {
	all, err := s.Books().Read()
	require.NoError(s, err)
	var out []string
	for _, e := range all {
		if e.Member == member {
			out = append(out, e.What+" "+e.Node)
		}
	}
	return strings.Join(out, ", ")
}

// undoubled requires that no process has found another one of its member at work.
func (s *site) undoubled() {
	s.Helper()
	all, err := s.Books().Read()
	require.NoError(s, err)
	for _, e := range all {
		require.NotEqual(s, "doubled", e.What, "%+v", e)
	}
}

func (s *site) on(member string) string {
	job, _, _ := strings.Cut(member, "-")
	status, err := s.Job(s.ctx, job)
	require.NoError(s, err)
	return string(status.On[orbit.CapsuleID(member)])
}

// A capsule that is drained, evicted or fenced begins elsewhere when it has stopped, and not before, as its processes have written themselves.
// That they take long to stop makes it likely to be seen if it is otherwise.
func TestNothingRunsTwice(t *testing.T) {
	for name, flags := range map[string][]string{"disk": nil, "etcd": onEtcd(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nothingRunsTwice(t, flags)
		})
	}
}

func nothingRunsTwice(t *testing.T, flags []string) {
	s := start(t, flags, "a", "b")
	db := control.Job{Name: "db", Kind: control.Service, Count: 1, CPU: 1000, Ready: true}
	require.NoError(t, s.Put(s.ctx, db, "-stops", "400ms"))
	require.NoError(t, s.AwaitJob(s.ctx, "db", "serves", demo.Serving))

	// Drained.
	first := s.on("db-0")
	other := map[string]string{"a": "b", "b": "a"}[first]
	require.NoError(t, s.Call(s.ctx, http.MethodPost, "/nodes/"+first+"/drain", nil, nil))
	require.NoError(t, s.AwaitNode(s.ctx, first, func(n control.Node) bool { return len(n.Capsules)+len(n.Stopping) == 0 }))
	require.NoError(t, s.AwaitJob(s.ctx, "db", "serves", demo.Serving))
	story := fmt.Sprintf("begin %s, stop %s, begin %s", first, first, other)
	require.Equal(t, story, s.story("db-0"))

	// Evicted, while the first node takes nothing; and back on it.
	require.NoError(t, s.Put(s.ctx, control.Job{Name: "low", Kind: control.Batch, Count: 1, CPU: 1000, Ready: true}, "-stops", "400ms"))
	require.NoError(t, s.AwaitJob(s.ctx, "low", "runs", func(s control.Status) bool { return s.Ready == 1 }))
	require.NoError(t, s.Put(s.ctx, control.Job{Name: "high", Kind: control.Service, Count: 1, CPU: 1000, Priority: 9, Ready: true}, "-stops", "400ms"))
	require.NoError(t, s.AwaitJob(s.ctx, "high", "serves", demo.Serving))
	require.Equal(t, fmt.Sprintf("begin %s, stop %s", other, other), s.story("low-0"), "it has made way before high begins")
	require.Equal(t, "begin "+other, s.story("high-0"))
	require.NoError(t, s.Call(s.ctx, http.MethodDelete, "/nodes/"+first+"/drain", nil, nil))
	require.NoError(t, s.AwaitJob(s.ctx, "low", "runs again", func(s control.Status) bool { return s.Ready == 1 }))
	require.Equal(t, fmt.Sprintf("begin %s, stop %s, begin %s", other, other, first), s.story("low-0"))

	// Fenced: the agent is suspended, so that only the supervisor can do anything.
	require.NoError(t, s.Call(s.ctx, http.MethodDelete, "/jobs/high", nil, nil))
	require.NoError(t, s.Signal(other, syscall.SIGSTOP))
	require.NoError(t, s.AwaitJob(s.ctx, "db", "serves elsewhere", func(s control.Status) bool {
		return string(s.On["db-0"]) == first && demo.Serving(s)
	}))
	require.Equal(t, fmt.Sprintf("%s, stop %s, begin %s", story, other, first), s.story("db-0"))
	require.NoError(t, s.Signal(other, syscall.SIGCONT))
	require.NoError(t, s.AwaitNode(s.ctx, other, func(n control.Node) bool { return n.State == orbit.Ready }))
	s.undoubled()
}

// Agents and the control process are killed in the midst of everything. What runs goes on; what is done is done once.
func TestKilled(t *testing.T) {
	s := start(t, nil, "a", "b")
	require.NoError(t, s.Put(s.ctx, control.Job{Name: "web", Kind: control.Service, Count: 3, CPU: 300, Ready: true}))
	require.NoError(t, s.Put(s.ctx, control.Job{Name: "sum", Kind: control.Batch, Count: 16, CPU: 250}, "-for", "300ms"))
	for i := range 6 {
		time.Sleep(time.Duration(50+60*i) * time.Millisecond)
		if i%2 == 0 {
			require.NoError(t, s.KillControl(0))
			require.NoError(t, s.Start(s.ctx))
			continue
		}
		node := []string{"a", "b"}[i/2%2]
		require.NoError(t, s.Signal(node, syscall.SIGKILL))
		require.NoError(t, s.Agent(node, node))
	}
	require.NoError(t, s.AwaitJob(s.ctx, "sum", "is done", demo.Done))
	require.NoError(t, s.AwaitJob(s.ctx, "web", "serves", demo.Serving))
	s.undoubled()
	for i := range 16 {
		require.Contains(t, s.story(fmt.Sprint("sum-", i)), "done")
	}
}

// onPostgres starts a Postgres, and returns the flags of a control process whose ledger is there. Without Postgres on this machine the
// test is skipped.
func onPostgres(t *testing.T) []string {
	return []string{"-ledger", pgserver.ForTest(t).URL("postgres")}
}

// stores are where several control processes can have their ledger.
var stores = map[string]func(*testing.T) []string{"etcd": onEtcd, "postgres": onPostgres}

// With the ledger in etcd the demonstration loses and doubles nothing either.
func TestEtcd(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, demo.Play(t.Context(), &out, onEtcd(t)...))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, "orchestrator: jobs 5, restarts 2, lost 0, doubled 0", lines[len(lines)-1], out.String())
}

// One of two control processes is killed, and then the other one is suspended: nothing is lost, doubled, or begun again.
func TestPair(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.NoError(t, demo.PlayPair(t.Context(), &out, store(t)...), "%s", &out)
			require.Contains(t, out.String(), "orchestrator: control processes 2, jobs 5, members 28, begun again 0, lost 0, doubled 0\n")
		})
	}
}

// A control process to which no agent reports any more, because it has been away, ends no lease of nodes that report to the other one,
// places work on them, and takes orders.
func TestTwoControlProcesses(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			twoControlProcesses(t, store(t))
		})
	}
}

func twoControlProcesses(t *testing.T, flags []string) {
	s := startAll(t, &demo.Cluster{Control: flags, Controls: 2, TTL: 4 * time.Second}, "a", "b")
	require.NoError(t, s.Put(s.ctx, control.Job{Name: "web", Kind: control.Service, Count: 2, CPU: 500, Ready: true}))
	require.NoError(t, s.AwaitJob(s.ctx, "web", "serves", demo.Serving))
	require.NoError(t, s.KillControl(1))
	require.NoError(t, s.Start(s.ctx))
	s.knows(1, "a", "b")
	for began := time.Now(); time.Since(began) < 3*s.TTL; time.Sleep(100 * time.Millisecond) {
		var nodes []control.Node
		require.NoError(t, s.CallControl(s.ctx, 1, http.MethodGet, "/nodes", nil, &nodes))
		require.Len(t, nodes, 2)
		for _, n := range nodes {
			require.Equal(t, orbit.Ready, n.State, n.ID)
		}
	}
	require.NoError(t, s.CallControl(s.ctx, 1, http.MethodPost, "/jobs/web/scale?count=3", nil, nil))
	require.NoError(t, s.AwaitJob(s.ctx, "web", "is scaled", func(s control.Status) bool { return s.Ready == 3 }))
	for i := range 2 {
		member := fmt.Sprint("web-", i)
		require.Equal(t, "begin "+s.on(member), s.story(member))
	}
	s.undoubled()
}

// knows waits until the board of a control process has reports of nodes.
func (s *site) knows(n int, nodes ...orbit.NodeID) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(n)+"/board", nil)
	require.NoError(s, err)
	got, err := http.DefaultClient.Do(r)
	require.NoError(s, err)
	var board telemetry.Board
	done := make(chan error, 1)
	go func() { done <- board.Follow(ctx, got.Body) }()
	for _, node := range nodes {
		for has := false; !has; _, has = board.Latest(node) {
			_, version, err := board.Reports(ctx, 0)
			require.NoError(s, err)
			if _, has = board.Latest(node); !has {
				require.NoError(s, board.Wait(ctx, version), "control process %d knows nothing of %s", n, node)
			}
		}
	}
	cancel()
	require.NoError(s, <-done)
}

// A ledger in a folder has one control process, and a second one is refused; peers do not help.
func TestPeersNeedASharedLedger(t *testing.T) {
	_, err := control.Open(t.Context(), control.Config{Ledger: "file:" + t.TempDir(), Peers: []string{"http://127.0.0.1:1"}})
	require.ErrorContains(t, err, "no peers")
}
