package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// site is the etcd that the program works on.
type site struct {
	// own is the etcd that the program has started; nil: it uses an existing one.
	own       *cluster.Cluster
	dir       string // to be removed
	endpoints []string
	prefix    string
	client    *clientv3.Client
	ledger    *etcdledger.Ledger
}

// openSite opens a new ledger on the named etcd, or on one that it starts.
func openSite(ctx context.Context, o options) (s *site, err error) {
	s = &site{endpoints: o.endpoints(), prefix: fmt.Sprintf("orbit-example-%x/", time.Now().UnixNano())}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.endpoints == nil {
		if err := s.start(ctx, o); err != nil {
			return s, err
		}
	}
	if s.client, err = clientv3.New(cluster.ClientConfig(s.endpoints)); err != nil {
		return s, fmt.Errorf("client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s.ledger, err = etcdledger.Open(ctx, s.client, etcdledger.Options{Prefix: s.prefix})
	return s, err
}

// start starts an etcd.
func (s *site) start(ctx context.Context, o options) (err error) {
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "orbit-etcd-"); err != nil {
			return err
		}
		s.dir = dir
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s.own, err = cluster.Start(ctx, cluster.Options{Members: o.members, Dir: dir}); err != nil {
		return err
	}
	s.endpoints = s.own.Endpoints()
	return nil
}

// submit adds the nodes and submits the capsules. A quarter of them is assigned to each process by name, and the process that
// is first places the others. The nodes have free capacity for a tenth more than all capsules.
func (s *site) submit(ctx context.Context, o options) error {
	each := int64(o.capsules*11/10/o.nodes + 1)
	var nodes []orbit.Proposal
	for i := range o.nodes {
		nodes = append(nodes, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{
			ID: orbit.NodeID(fmt.Sprintf("node-%04d", i)), Capacity: orbit.Resources{orbit.CPU: each * 500, orbit.Memory: each << 30},
		}}}})
	}
	var work []orbit.Proposal
	most := s.ledger.Limits().Capsules
	for from := 0; from < o.capsules; from += most / 4 {
		to, part := min(from+most/4, o.capsules), from/(most/4)
		submit := orbit.Submit{Owner: []string{"", teams[0], "", teams[1]}[part%4], Spec: &orbit.Spec{
			Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500, orbit.Memory: 1 << 30}},
		}}
		for i := from; i < to; i++ {
			submit.IDs = append(submit.IDs, orbit.CapsuleID(fmt.Sprintf("web-%06d", i)))
		}
		work = append(work, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{submit}})
	}
	for _, out := range append(s.ledger.ProposeBatch(ctx, nodes), s.ledger.ProposeBatch(ctx, work)...) {
		if out.Err != nil {
			return out.Err
		}
	}
	return nil
}

// close deletes the ledger from an existing etcd, and ends and removes an etcd of the program's own.
func (s *site) close() (err error) {
	if s.ledger != nil {
		err = s.ledger.Close()
	}
	if s.client != nil {
		if s.own == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, gone := s.client.Delete(ctx, s.prefix, clientv3.WithPrefix())
			err = errors.Join(err, gone)
		}
		err = errors.Join(err, s.client.Close())
	}
	if s.own != nil {
		err = errors.Join(err, s.own.Close())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
