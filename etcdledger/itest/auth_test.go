package itest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// login returns a client of somebody.
func login(t *testing.T, c *cluster.Cluster, name string) *clientv3.Client {
	config := cluster.ClientConfig(c.Endpoints())
	config.Username, config.Password = name, name
	config.DialTimeout = 20 * time.Second // a password is slow to check, on purpose
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A role that may read and write the keys below the prefix is all that a ledger needs. It goes on when a login is
// over, and opens nothing beyond the prefix; one that may only read opens nothing at all.
func TestRoleOfAPrefix(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{Login: 2 * time.Second})
	admin, ctx := connect(t, c), within(t, time.Minute)
	end := clientv3.GetPrefixRangeEnd("orbit/")
	for user, may := range map[string]clientv3.PermissionType{"root": clientv3.PermissionType(clientv3.PermReadWrite), "writer": clientv3.PermissionType(clientv3.PermReadWrite), "reader": clientv3.PermissionType(clientv3.PermRead)} {
		_, err := admin.UserAdd(ctx, user, user)
		require.NoError(t, err)
		_, err = admin.RoleAdd(ctx, user)
		require.NoError(t, err)
		_, err = admin.RoleGrantPermission(ctx, user, "orbit/", end, may)
		require.NoError(t, err)
		_, err = admin.UserGrantRole(ctx, user, user)
		require.NoError(t, err)
	}
	_, err := admin.AuthEnable(ctx)
	require.NoError(t, err)

	writer := open(t, login(t, c, "writer"), etcdledger.Options{})
	put(t, writer, "before")
	_, err = etcdledger.Open(within(t, 5*time.Second), login(t, c, "writer"), etcdledger.Options{Prefix: "orbit2/"})
	require.ErrorContains(t, err, "permission denied")
	time.Sleep(5 * time.Second) // nobody calls, and the login is over
	rev := put(t, writer, "after")
	require.GreaterOrEqual(t, snapshot(t, writer).Revision(), rev)
	require.NoError(t, snapshot(t, writer).Verify())
	_, err = writer.Propose(within(t, 10*time.Second), orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveNode{Node: "before"}}})
	require.NoError(t, err)

	// Opening looks whether there is a ledger, and would make it: that takes leave to write.
	_, err = etcdledger.Open(within(t, 5*time.Second), login(t, c, "reader"), etcdledger.Options{})
	require.ErrorContains(t, err, "permission denied")
}
