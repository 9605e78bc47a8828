package itest

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/etcdledger/itest/rooms"
)

func TestMain(m *testing.M) {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve, crew.Role: crew.Serve, rooms.Role: rooms.Serve, clientRole: serveClient, racerRole: serveRacer})
	os.Exit(m.Run())
}

// scale is a factor for the length of the tests: ORBIT_ITEST_SCALE=10 makes them ten times as long.
func scale(t testing.TB, n int) int {
	text := os.Getenv("ORBIT_ITEST_SCALE")
	if text == "" {
		return n
	}
	by, err := strconv.Atoi(text)
	require.NoError(t, err, "ORBIT_ITEST_SCALE")
	return n * by
}

// within returns a context with a time limit.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// start starts an etcd that is stopped at the end of the test.
func start(t testing.TB, o cluster.Options) *cluster.Cluster {
	o.Dir = t.TempDir()
	c, err := cluster.Start(within(t, time.Minute), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// fast returns settings with which etcd elects a new leader soon.
var fast = cluster.Options{Members: 3, Heartbeat: 50 * time.Millisecond}

// connect returns a client that is closed at the end of the test.
func connect(t testing.TB, c *cluster.Cluster, members ...int) *clientv3.Client {
	client, err := c.Client(members...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// open opens a ledger that is closed at the end of the test.
func open(t testing.TB, client *clientv3.Client, o etcdledger.Options) *etcdledger.Ledger {
	l, err := etcdledger.Open(within(t, time.Minute), client, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}
