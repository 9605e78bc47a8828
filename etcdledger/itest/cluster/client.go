package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// ClientConfig returns settings for a client on loopback, with which it soon notices that a member has gone and soon
// connects again.
func ClientConfig(endpoints []string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		BackoffWaitBetween:   20 * time.Millisecond,
		Logger:               zap.NewNop(),
		// By default gRPC waits for a second or more before it dials again.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 300 * time.Millisecond}, MinConnectTimeout: time.Second,
		})},
	}
}

// Client returns a client of these members, or of all if none is named. The caller closes it.
func (c *Cluster) Client(members ...int) (*clientv3.Client, error) {
	return newClient(ClientConfig(c.Endpoints(members...)))
}

// ClientOver returns a client of all members whose connections go over a link.
func (c *Cluster) ClientOver(link *Link) (*clientv3.Client, error) {
	config := ClientConfig(c.Endpoints())
	config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(link.dial),
		grpc.WithChainUnaryInterceptor(link.call), grpc.WithChainStreamInterceptor(link.stream))
	return newClient(config)
}

func newClient(config clientv3.Config) (*clientv3.Client, error) {
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("cluster: client: %w", err)
	}
	return client, nil
}

// Leader returns the member that leads, as the members say that answer.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	client, err := c.Client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
	for ctx.Err() == nil {
		for _, endpoint := range c.Endpoints() {
			if i := c.leaderBy(ctx, client, endpoint); i >= 0 {
				return i, nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 0, errors.New("cluster: no member names a leader")
}

// leaderBy asks one member which one leads; -1: the member does not know or does not answer.
func (c *Cluster) leaderBy(ctx context.Context, client *clientv3.Client, endpoint string) int {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return -1
	}
	for i, m := range c.members {
		if m.running() != nil && uint64(m.name()) == status.Leader {
			return i
		}
	}
	return -1
}
