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

// world is the etcd that is measured.
type world struct {
	options
	etcd   *cluster.Cluster
	dir    string // to be removed
	client *clientv3.Client
	// ledgers is the number of ledgers that were opened, each with a prefix of its own.
	ledgers int
}

// begin starts an etcd.
func begin(ctx context.Context, o options) (w *world, err error) {
	w = &world{options: o, dir: o.dir}
	if w.dir == "" {
		if w.dir, err = os.MkdirTemp("", "orbit-etcdspeed-"); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if w.etcd, err = cluster.Start(ctx, cluster.Options{Members: o.members, Dir: w.dir}); err == nil {
		w.client, err = w.etcd.Client()
	}
	if err != nil {
		err = errors.Join(err, w.end())
	}
	return w, err
}

// end stops the etcd.
func (w *world) end() (err error) {
	if w.client != nil {
		err = w.client.Close()
	}
	if w.etcd != nil {
		err = errors.Join(err, w.etcd.Close())
	}
	if w.options.dir == "" {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

// ledger is a new ledger with nodes and pending capsules.
type ledger struct {
	*etcdledger.Ledger
	prefix string
	nodes  int
}

// open opens a new ledger, and adds nodes and pending capsules to it.
func (w *world) open(ctx context.Context, nodes, capsules int) (l *ledger, err error) {
	w.ledgers++
	l = &ledger{prefix: fmt.Sprintf("speed-%d/", w.ledgers), nodes: nodes}
	if l.Ledger, err = etcdledger.Open(ctx, w.client, etcdledger.Options{Prefix: l.prefix}); err != nil {
		return nil, err
	}
	var batch []orbit.Proposal
	for i := range nodes {
		batch = append(batch, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{
			ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: 1 << 40},
		}}}})
	}
	spec := &orbit.Spec{Module: "speed", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 100}}}
	for from := 0; from < capsules; from += l.Limits().Capsules {
		submit := orbit.Submit{Spec: spec}
		for i := from; i < min(from+l.Limits().Capsules, capsules); i++ {
			submit.IDs = append(submit.IDs, capsuleID(i))
		}
		batch = append(batch, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{submit}})
	}
	for _, out := range l.ProposeBatch(ctx, batch) {
		err = errors.Join(err, out.Err)
	}
	return l, err
}

func nodeID(i int) orbit.NodeID       { return orbit.NodeID(fmt.Sprintf("node-%04d", i)) }
func capsuleID(i int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprintf("capsule-%06d", i)) }

// place returns a proposal that places the i-th capsule on a node and bets that the node has enough free capacity.
func (l *ledger) place(i, on int) orbit.Proposal {
	node := nodeID(on % l.nodes)
	return orbit.Proposal{
		ID: orbit.NewProposalID(),
		Do: []orbit.Commitment{orbit.Place{Capsule: capsuleID(i), Node: node}},
		If: []orbit.Precondition{orbit.NodeFreeOf{Node: node, AtLeast: orbit.Resources{orbit.CPU: 100}}},
	}
}

// verify returns an error if a capsule is pending or the state is not sound.
func (l *ledger) verify(ctx context.Context) error {
	state, err := l.Snapshot(ctx)
	if err != nil {
		return err
	}
	if n := state.PendingCount(); n > 0 {
		return fmt.Errorf("%d capsules were not placed", n)
	}
	return state.Verify()
}
