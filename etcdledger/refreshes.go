package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/lease"
)

// Refreshes returns a [lease.Refreshes] for [lease.Keeper.Refreshes], through which all processes on the ledger with these
// Options share the refreshes of their leases. Of Options it uses Prefix and Timeout. It uses one of etcd's own leases for each term; etcd keeps a lease alive without a
// write. Times to live are rounded up to whole seconds, and are at least etcd's own minimum, 2 s by default.
//
// Its errors wrap orbit.ErrUnavailable. Each call waits at most for Options.Timeout. It needs etcd 3.5.13 or newer, or
// 3.4.31. In older versions a member that has lost the leadership without knowing it yet revokes leases that should
// live, and confirms refreshes that are then lost.
func Refreshes(client *clientv3.Client, o Options) lease.Refreshes {
	log := o.log().withDefaults()
	return &refreshes{client: client, keys: keys{log.Prefix}, timeout: log.Timeout}
}

// refreshes implements [lease.Refreshes]. A token is the id of an etcd lease in hexadecimal digits. A key with the
// token in its name is attached to the lease, and etcd deletes the key with the lease.
//
// Invariant: a lease that has expired never lives again. A lease has expired when a linearizable read does not find its
// key. What a member says about the lease itself is not trusted, because it may be out of date if that member is cut
// off from the others.
type refreshes struct {
	client  *clientv3.Client
	keys    keys
	timeout time.Duration
}

// Begin implements [lease.Refreshes].
func (r *refreshes) Begin(ctx context.Context, ttl time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	granted, err := r.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return "", fmt.Errorf("etcdledger: %w", nothingDone(err))
	}
	token := strconv.FormatUint(uint64(granted.ID), 16)
	if _, err := r.client.Put(ctx, r.keys.term(token), "", clientv3.WithLease(granted.ID)); err != nil {
		return "", fmt.Errorf("etcdledger: %w", nothingDone(err))
	}
	return token, nil
}

// Keep implements [lease.Refreshes]. If a member answers that an etcd lease has expired, Keep checks the lease's key,
// because etcd may not have revoked the lease yet.
func (r *refreshes) Keep(ctx context.Context, tokens []string) ([]time.Duration, error) {
	return r.each(ctx, tokens, func(ctx context.Context, ids []int64, out []time.Duration) error {
		ctx, cancel := context.WithCancel(ctx) // ends the stream
		defer cancel()
		stream, err := pb.NewLeaseClient(r.client.ActiveConnection()).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		go func() {
			for _, id := range ids {
				if stream.Send(&pb.LeaseKeepAliveRequest{ID: id}) != nil {
					return // Recv says why
				}
			}
		}()
		for i, id := range ids {
			answer, err := stream.Recv()
			if err != nil {
				return err
			}
			if answer.ID != id {
				return fmt.Errorf("an answer for lease %x where one for %x is due", answer.ID, id)
			}
			out[i] = time.Duration(answer.TTL) * time.Second
		}
		return nil
	})
}

// Left implements [lease.Refreshes].
func (r *refreshes) Left(ctx context.Context, tokens []string) ([]time.Duration, error) {
	return r.each(ctx, tokens, func(ctx context.Context, ids []int64, out []time.Duration) error {
		for i, id := range ids {
			answer, err := r.client.TimeToLive(ctx, clientv3.LeaseID(id))
			if err != nil {
				return err
			}
			out[i] = time.Duration(answer.TTL) * time.Second
		}
		return nil
	})
}

// atOnce is into how many parts a call divides its tokens. The parts are asked for at the same time.
const atOnce = 16

// each divides the tokens into parts and calls ask with all parts at the same time. If the time left of a token is not
// positive, each checks the token's key. Without the key the token has ended, and its time is 0. With the key the
// token still lives; its time is 1 ns, which says that it lives and promises nothing.
func (r *refreshes) each(ctx context.Context, tokens []string, ask func(context.Context, []int64, []time.Duration) error) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	ids, out := make([]int64, len(tokens)), make([]time.Duration, len(tokens))
	for i, token := range tokens {
		id, _ := strconv.ParseUint(token, 16, 64) // an invalid token becomes 0, which is the id of no lease
		ids[i] = int64(id)
	}
	errs := make([]error, atOnce)
	var all sync.WaitGroup
	for part := range atOnce {
		from, to := len(ids)*part/atOnce, len(ids)*(part+1)/atOnce
		if from == to {
			continue
		}
		all.Go(func() {
			if errs[part] = ask(ctx, ids[from:to], out[from:to]); errs[part] == nil {
				errs[part] = r.confirm(ctx, tokens[from:to], out[from:to])
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("etcdledger: %w", nothingDone(err))
	}
	return out, nil
}

// confirm looks up the keys of the tokens whose time left is not positive.
func (r *refreshes) confirm(ctx context.Context, tokens []string, out []time.Duration) error {
	for i, token := range tokens {
		if out[i] > 0 {
			continue
		}
		found, err := r.client.Get(ctx, r.keys.term(token), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		out[i] = time.Duration(min(found.Count, 1)) // 1 ns if it lives
	}
	return nil
}
