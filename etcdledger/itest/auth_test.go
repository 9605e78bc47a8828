package itest

import (
	"context"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// login returns a client that logs in as a user, and the number of its logins.
func login(t *testing.T, c *cluster.Cluster, name string) (*clientv3.Client, *atomic.Int64) {
	logins := &atomic.Int64{}
	config := cluster.ClientConfig(c.Endpoints())
	config.Username, config.Password = name, name
	config.DialTimeout = 20 * time.Second // a login counts toward it
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if path.Base(method) == "Authenticate" {
				logins.Add(1)
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		}))
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client, logins
}

// A role that may read and write the keys below the prefix is enough for a ledger. The ledger goes on when its login
// expires. With this role no ledger can be opened outside the prefix, and with a role that may only read none can be
// opened at all.
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

	client, logins := login(t, c, "writer")
	writer := open(t, client, etcdledger.Options{})
	put(t, writer, "before")
	other, _ := login(t, c, "writer")
	_, err = etcdledger.Open(within(t, time.Minute), other, etcdledger.Options{Prefix: "orbit2/"})
	require.ErrorContains(t, err, "permission denied")

	// A login expires when it has not been used for its TTL. The next call notices and logs in again.
	var rev orbit.Revision
	before := logins.Load()
	for silence := 4 * time.Second; logins.Load() == before; silence *= 2 {
		require.Less(t, silence, time.Minute, "the login does not end")
		time.Sleep(silence)
		rev = put(t, writer, "after")
	}
	require.GreaterOrEqual(t, snapshot(t, writer).Revision(), rev)
	require.NoError(t, snapshot(t, writer).Verify())
	_, err = writer.Propose(within(t, time.Minute), orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveNode{Node: "before"}}})
	require.NoError(t, err)

	// Open makes the log if there is none, in the transaction that looks for it, so it needs permission to write.
	reader, _ := login(t, c, "reader")
	_, err = etcdledger.Open(within(t, time.Minute), reader, etcdledger.Options{})
	require.ErrorContains(t, err, "permission denied")
}
