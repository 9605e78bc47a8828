package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
)

// raw measures plain transactions of etcd that are as large as that of a sole placement: each compares one key and writes two.
func (w *world) raw(ctx context.Context, inFlight int) (sample, error) {
	value := string(make([]byte, 200))
	return measure(w.batch, inFlight, func(i int) error {
		got, err := w.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("raw/head"), "<", 1<<60)).
			Then(clientv3.OpPut(fmt.Sprintf("raw/entry/%d-%d", inFlight, i), value), clientv3.OpPut("raw/head", value[:60])).Commit()
		if err == nil && !got.Succeeded {
			err = errors.New("a compare failed")
		}
		return err
	})
}

// single measures calls that place one capsule each, inFlight of them at a time.
func (w *world) single(ctx context.Context, inFlight int) (sample, error) {
	l, err := w.open(ctx, w.nodes, w.batch)
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = l.Close() }()
	s, err := measure(w.batch, inFlight, func(i int) error {
		_, err := l.Propose(ctx, l.place(i, i))
		return err
	})
	return s, errors.Join(err, l.verify(ctx))
}

// batched measures one call that places all capsules.
func (w *world) batched(ctx context.Context) (sample, error) {
	l, err := w.open(ctx, w.nodes, w.batch)
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = l.Close() }()
	var batch []orbit.Proposal
	for i := range w.batch {
		batch = append(batch, l.place(i, i))
	}
	s, err := measure(1, 1, func(int) (err error) {
		for _, out := range l.ProposeBatch(ctx, batch) {
			err = errors.Join(err, out.Err)
		}
		return err
	})
	s.n = w.batch
	return s, errors.Join(err, l.verify(ctx))
}

// contest is a measurement in which two processes may place on the same nodes.
type contest struct {
	sample
	// conflicts and retries are averages for each placement.
	conflicts, retries float64
}

// hot measures two ledgers, each with a client of its own and 16 calls at a time, that place on the same nodes. A coarse bet
// says that nothing on the node has changed, a fine one that the node has enough free capacity. After a conflict the capsule
// is planned again on a new snapshot.
func (w *world) hot(ctx context.Context, nodes int, coarse bool) (c contest, err error) {
	n := max(w.batch/4, 10)
	l, err := w.open(ctx, nodes, n)
	if err != nil {
		return c, err
	}
	defer func() { _ = l.Close() }()
	client, err := w.etcd.Client()
	if err != nil {
		return c, err
	}
	defer func() { _ = client.Close() }()
	other, err := etcdledger.Open(ctx, client, etcdledger.Options{Prefix: l.prefix})
	if err != nil {
		return c, err
	}
	defer func() { _ = other.Close() }()
	var conflicts atomic.Int64
	c.sample, err = measure(n, 32, func(i int) error {
		on := []*etcdledger.Ledger{l.Ledger, other}[i%2]
		for {
			p, err := l.bet(ctx, on, i, coarse)
			if err != nil {
				return err
			}
			if _, err = on.Propose(ctx, p); !errors.Is(err, orbit.ErrConflict) {
				return err
			}
			conflicts.Add(1)
		}
	})
	c.conflicts = float64(conflicts.Load()) / float64(n)
	c.retries = float64(l.Stats().Lost+other.Stats().Lost) / float64(n)
	return c, errors.Join(err, l.verify(ctx))
}

// bet returns the proposal that places the i-th capsule.
func (l *ledger) bet(ctx context.Context, on orbit.Ledger, i int, coarse bool) (orbit.Proposal, error) {
	node := i / 2 // i%2 says which ledger, so both ledgers use all nodes
	p := l.place(i, node)
	if !coarse {
		return p, nil
	}
	state, err := on.Snapshot(ctx)
	if err != nil {
		return p, err
	}
	p.View = state.Revision()
	p.If = []orbit.Precondition{orbit.NodeAt{Node: nodeID(node % l.nodes), Usage: state.Node(nodeID(node % l.nodes)).Usage}}
	return p, nil
}

// lag measures how long it takes until another process sees a commit, from the answer of Propose and from the call.
func (w *world) lag(ctx context.Context) (answered, called sample, err error) {
	n := min(w.batch, 300)
	l, err := w.open(ctx, w.nodes, n)
	if err != nil {
		return answered, called, err
	}
	defer func() { _ = l.Close() }()
	state, err := l.Snapshot(ctx)
	if err != nil {
		return answered, called, err
	}
	other, err := w.startWatcher(l, state.Revision())
	if err != nil {
		return answered, called, err
	}
	defer func() { _ = other.Kill() }()
	for i := range n {
		begin := time.Now().UnixNano()
		rev, err := l.Propose(ctx, l.place(i, i))
		end := time.Now().UnixNano()
		if err != nil {
			return answered, called, err
		}
		at, err := other.when(rev)
		if err != nil {
			return answered, called, err
		}
		called.times = append(called.times, time.Duration(at-begin))
		answered.times = append(answered.times, time.Duration(at-end))
	}
	return answered, called, nil
}
