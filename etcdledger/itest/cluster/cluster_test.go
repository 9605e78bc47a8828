package cluster_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

func TestMain(m *testing.M) {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve})
	os.Exit(m.Run())
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A killed member has lost nothing when it runs again, alone and in a cluster of three.
func TestKillAndRestart(t *testing.T) {
	for _, members := range []int{1, 3} {
		start := time.Now()
		c, err := cluster.Start(within(t, time.Minute), cluster.Options{Members: members, Dir: t.TempDir(), Heartbeat: 50 * time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		t.Log("start", members, time.Since(start))
		client, err := c.Client()
		require.NoError(t, err)
		defer client.Close()
		_, err = client.Put(within(t, time.Minute), "k", "v")
		require.NoError(t, err)
		for range 2 {
			leader, err := c.Leader(within(t, time.Minute))
			require.NoError(t, err)
			start = time.Now()
			require.NoError(t, c.Kill(leader))
			if members > 1 {
				// A request to the leader that was killed is lost, and the server answers it only after its own
				// timeout.
				require.Eventually(t, func() bool {
					_, err := client.Put(within(t, 500*time.Millisecond), "other", "v")
					return err == nil
				}, time.Minute, time.Millisecond)
				t.Log("others lead", time.Since(start))
			}
			start = time.Now()
			require.NoError(t, c.Restart(within(t, time.Minute), leader))
			t.Log("restart", time.Since(start))
			got, err := client.Get(within(t, time.Minute), "k")
			require.NoError(t, err)
			require.Equal(t, "v", string(got.Kvs[0].Value))
			t.Log("answers", time.Since(start))
		}
	}
}

// A member that is cut off answers no linearizable read, and answers again after Mend.
func TestCut(t *testing.T) {
	c, err := cluster.Start(within(t, time.Minute), cluster.Options{Members: 3, Dir: t.TempDir(), Heartbeat: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	leader, err := c.Leader(within(t, time.Minute))
	require.NoError(t, err)
	alone, err := c.Client(leader)
	require.NoError(t, err)
	defer alone.Close()
	_, err = alone.Get(within(t, time.Minute), "k")
	require.NoError(t, err)
	require.NoError(t, c.Cut(within(t, time.Minute), leader))
	_, err = alone.Get(within(t, time.Second), "k")
	require.Error(t, err)
	_, err = alone.Get(within(t, time.Minute), "k", clientv3.WithSerializable())
	require.NoError(t, err)
	require.NoError(t, c.Mend(within(t, time.Minute), leader))
	_, err = alone.Get(within(t, time.Minute), "k")
	require.NoError(t, err)
}
