package audit

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// entry is a version of the log as it is in etcd: the commits of one transaction.
type entry struct {
	Commits []struct {
		ID orbit.ProposalID `json:"id"`
		Do []struct {
			Do struct { // the field of its kind is set
				PutNode    *orbit.PutNode    `json:"putNode"`
				RemoveNode *orbit.RemoveNode `json:"removeNode"`
				Submit     *orbit.Submit     `json:"submit"`
				Place      *orbit.Place      `json:"place"`
				Release    *orbit.Release    `json:"release"`
				Hold       *orbit.Hold       `json:"hold"`
				Evict      *orbit.Evict      `json:"evict"`
				PutBudget  *orbit.PutBudget  `json:"putBudget"`
				// What else there is takes no room and moves nobody.
				RemoveBudget *orbit.RemoveBudget `json:"removeBudget"`
			} `json:"do"`
			Node orbit.NodeID `json:"node"`
		} `json:"do"`
	} `json:"commits"`
}

// Read reads the whole history of the ledger with a prefix from etcd: every version of its log from the first on. It
// fails if etcd has compacted some of them.
func (b *Book) Read(ctx context.Context, client *clientv3.Client, prefix string) error {
	b.init()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	key := prefix + "log"
	got, err := client.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if len(got.Kvs) == 0 {
		return nil
	}
	end := got.Kvs[0].ModRevision
	for answer := range client.Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithRev(got.Kvs[0].CreateRevision)) {
		if err := answer.Err(); err != nil {
			return fmt.Errorf("audit: read the log: %w", err)
		}
		for _, event := range answer.Events {
			if err := b.read(event); err != nil {
				return err
			}
			if event.Kv.ModRevision >= end {
				return nil
			}
		}
	}
	return fmt.Errorf("audit: the log ends before revision %d: %w", end, ctx.Err())
}

// read adds one version of the log.
func (b *Book) read(event *clientv3.Event) error {
	at := orbit.Revision(event.Kv.ModRevision)
	var e entry
	if err := json.Unmarshal(event.Kv.Value, &e); err != nil {
		return fmt.Errorf("audit: the log at revision %d: %w", at, err)
	}
	seq := 0
	for _, c := range e.Commits {
		for _, d := range c.Do {
			change := orbit.Change{Revision: at, Seq: seq, ID: c.ID, Node: d.Node}
			switch {
			case d.Do.PutNode != nil:
				change.Do = *d.Do.PutNode
			case d.Do.RemoveNode != nil:
				change.Do = *d.Do.RemoveNode
			case d.Do.Submit != nil:
				change.Do = *d.Do.Submit
			case d.Do.Place != nil:
				change.Do = *d.Do.Place
			case d.Do.Release != nil:
				change.Do = *d.Do.Release
			case d.Do.Hold != nil:
				change.Do = *d.Do.Hold
			case d.Do.Evict != nil:
				change.Do = *d.Do.Evict
			case d.Do.PutBudget != nil:
				change.Do = *d.Do.PutBudget
			case d.Do.RemoveBudget != nil:
				change.Do = *d.Do.RemoveBudget
			}
			b.Add(change)
			seq++
		}
	}
	return nil
}
