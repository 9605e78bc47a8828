package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/kubeorbit"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
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

// lists is a client in memory, which sends no list as a watch.
type lists struct{ kubernetes.Interface }

func (lists) IsWatchListSemanticsUnSupported() bool { return true }

// Of two replicas one schedules, also if they have one host name and one process id, as on the network of a host. When it
// ends, the other takes over.
func TestOneReplicaLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lists{fake.NewClientset()}
		var runs []int
		var mu sync.Mutex
		began := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(runs)
		}
		var cancels [2]context.CancelFunc
		ended := make(chan error, 2)
		for i := range cancels {
			s := &kubeorbit.Scheduler{Client: client, Events: &events.FakeRecorder{}, OnStart: func(*orbit.MemoryLedger, *orbit.Population) {
				mu.Lock()
				defer mu.Unlock()
				runs = append(runs, i)
			}}
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			go func() { ended <- elected(ctx, &options{lease: "l", namespace: "n"}, s) }()
		}
		time.Sleep(time.Minute)
		require.Len(t, began(), 1)
		first := began()[0]
		cancels[first]()
		require.ErrorIs(t, <-ended, context.Canceled)
		time.Sleep(time.Minute)
		require.Equal(t, []int{first, 1 - first}, began())
		cancels[1-first]()
		<-ended
	})
}

// TestErrorsOfTheStart: an error of the start says which flag or which server it is about, and what is wrong.
func TestErrorsOfTheStart(t *testing.T) {
	status := http.StatusUnauthorized
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	kubeconfig := func(host string) string {
		name := filepath.Join(t.TempDir(), "some.kubeconfig")
		text := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k}}], clusters: [{name: k, cluster: {server: '" + host + "'}}]}"
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	says := func(o options, parts ...string) {
		t.Helper()
		o.qps = 1000
		err := run(t.Context(), &o)
		for _, part := range parts {
			require.ErrorContains(t, err, part)
		}
	}
	says(options{kubeconfig: kubeconfig(server.URL)}, server.URL, "some.kubeconfig", "credentials", "401")
	status = http.StatusForbidden
	says(options{kubeconfig: kubeconfig(server.URL)}, server.URL, "some.kubeconfig", "403")
	says(options{kubeconfig: kubeconfig("http://127.0.0.1:1")}, "the API server http://127.0.0.1:1 of", "some.kubeconfig", "cannot be reached", "connection refused")
	says(options{configuration: "nope"}, "-config: open nope")
	require.Regexp(t, `^kubeorbit .+, go1\.`, version())
}
