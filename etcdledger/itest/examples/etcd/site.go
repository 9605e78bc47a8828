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
	// Nil: the etcd belongs to another owner.
	own       *cluster.Cluster
	dir       string // to be removed
	endpoints []string
	prefix    string
	client    *clientv3.Client
	ledger    *etcdledger.Ledger
}

// openSite starts an etcd, if none was named, and opens a new ledger on it.
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

// submit lets nodes join and submits capsules: a quarter is assigned to each of the processes by name, the rest is
// for the first claimant. The nodes have room for a tenth more.
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

// close leaves the etcd as it was found.
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
