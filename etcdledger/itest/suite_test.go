package itest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/ledgertest"
)

// The ledger on etcd keeps what every ledger promises, checked over two handles with a client each, as two processes
// have: on one member and on three.
func TestSuite(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("members=%d", members), func(t *testing.T) {
			t.Parallel()
			suite(t, start(t, cluster.Options{Members: members}))
		})
	}
}

func suite(t *testing.T, c *cluster.Cluster) {
	client, other := connect(t, c), connect(t, c)
	var n atomic.Int64
	prefix := func() string { return fmt.Sprintf("suite-%d/", n.Load()) }
	openFresh := func(t *testing.T) orbit.Ledger {
		n.Add(1)
		return open(t, client, etcdledger.Options{Prefix: prefix(), Bounds: orbit.Limits{History: 2000}})
	}
	peer := func(t *testing.T, _ orbit.Ledger) orbit.Ledger {
		return open(t, other, etcdledger.Options{Prefix: prefix(), Bounds: orbit.Limits{History: 2000}})
	}
	ledgertest.Run(t, openFresh, ledgertest.Options{Peer: peer, Scale: 0.2 * float64(scale(t, 1))})
}
