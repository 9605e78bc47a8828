package itest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// The ledger on etcd passes the suite for ledgers, over two handles with a client each, as two processes have. It runs
// on one member and on three, or on the etcd that ORBIT_ITEST_ENDPOINTS names, to test another version or other
// settings of the server.
func TestSuite(t *testing.T) {
	if named := os.Getenv("ORBIT_ITEST_ENDPOINTS"); named != "" {
		config := cluster.ClientConfig(strings.Split(named, ","))
		client, err := clientv3.New(config)
		require.NoError(t, err)
		defer client.Close()
		other, err := clientv3.New(config)
		require.NoError(t, err)
		defer other.Close()
		suite(t, client, other, 0.2)
		return
	}
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("members=%d", members), func(t *testing.T) {
			t.Parallel()
			c := start(t, cluster.Options{Members: members})
			suite(t, connect(t, c), connect(t, c), 0.3/float64(members))
		})
	}
}

// TestNeverOversubscribed: many goroutines propose at once through the ledgers of two clients, and the history of their commits, which
// ledgertest adds up by itself, never has more on a node than the node has.
func TestNeverOversubscribed(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	figures, err := ledgertest.Load{Operations: 500}.Run(t.Context(), open(t, connect(t, c), etcdledger.Options{}), open(t, connect(t, c), etcdledger.Options{}))
	require.NoError(t, err)
	require.Positive(t, figures.Infeasible+figures.Conflicts, "nothing was refused, so nothing was tried")
}

// A log in etcd keeps the rules for logs, with a client for each handle. With small requests, entries, posts and checkpoints
// are in parts.
func TestLog(t *testing.T) {
	t.Parallel()
	for _, o := range []etcdledger.LogOptions{{}, {MaxBytes: 1 << 16}} {
		t.Run(fmt.Sprintf("MaxBytes=%d", o.MaxBytes), func(t *testing.T) {
			c := start(t, cluster.Options{})
			prefixes, n := map[logledger.Log]string{}, 0
			openLog := func(t *testing.T, prefix string) logledger.Log {
				o := o
				o.Prefix = prefix
				log, err := etcdledger.OpenLog(t.Context(), connect(t, c), o)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, log.Close()) })
				prefixes[log] = prefix
				return log
			}
			logtest.Suite{
				Peer: func(t *testing.T, log logledger.Log) logledger.Log { return openLog(t, prefixes[log]) },
				Reopen: func(t *testing.T, log logledger.Log) logledger.Log {
					require.NoError(t, log.Close())
					return openLog(t, prefixes[log])
				},
			}.Run(t, func(t *testing.T) logledger.Log {
				n++
				return openLog(t, fmt.Sprint("log", n))
			})
		})
	}
}

// suite opens each ledger below a prefix of its own, which is deleted at the end.
func suite(t *testing.T, client, other *clientv3.Client, load float64) {
	root := fmt.Sprintf("orbit-suite-%x/", time.Now().UnixNano())
	defer func() {
		_, err := client.Delete(t.Context(), root, clientv3.WithPrefix())
		require.NoError(t, err)
	}()
	n := 0
	options := func() etcdledger.Options {
		return etcdledger.Options{Prefix: fmt.Sprintf("%s%d/", root, n), Bounds: orbit.Limits{History: 2000}}
	}
	fresh := func(t *testing.T) orbit.Ledger {
		n++
		return open(t, client, options())
	}
	peer := func(t *testing.T, _ orbit.Ledger) orbit.Ledger { return open(t, other, options()) }
	ledgertest.Suite{Peer: peer, Scale: load * float64(scale(t, 1))}.Run(t, fresh)
}
