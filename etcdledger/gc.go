package etcdledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// gcEvery collects garbage at an interval, if something has been committed since the last time.
func (l *Ledger) gcEvery(ctx context.Context) {
	tick := time.NewTicker(l.options.GCInterval)
	defer tick.Stop()
	var last orbit.Revision
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := l.mirror.look().state.Revision()
		if now == last {
			continue
		}
		if _, err := l.GC(ctx); err == nil {
			last = now
		} else if ctx.Err() == nil {
			l.tell(err)
		}
	}
}

// GC deletes records that are not needed any more: those of nodes that have left, holds that have ended, marks without a
// value, and capsules and proposal ids beyond the windows of [orbit.Limits]. It returns the number of deleted records. It
// reads the keys of all records, not their values. A Ledger calls it by itself at Options.GCInterval; several processes may
// do so at once. A transaction that is under way at that time fails once and is tried again.
func (l *Ledger) GC(ctx context.Context) (int, error) {
	g, err := l.reach(ctx, l.acknowledged())
	if err != nil {
		return 0, err
	}
	garbage, err := l.garbage(ctx, &g)
	if err != nil {
		return 0, fmt.Errorf("etcdledger: gc: %w", err)
	}
	total := 0
	for batch := range slices.Chunk(garbage, l.options.MaxOps-1) {
		n, at, err := l.delete(ctx, batch, g.pos)
		if err != nil {
			return total, fmt.Errorf("etcdledger: gc: %w", err)
		}
		if at == 0 { // one of the records has been written meanwhile; the next GC deletes the others
			return total, nil
		}
		total += n
		l.counters.collected.Add(uint64(n))
		if _, err := l.reach(ctx, at); err != nil {
			return total, err
		}
	}
	return total, nil
}

// garbage returns the records that the mirror's state does not need and that have not changed after the mirror's revision.
// They are in the order of their keys, so a gang's record comes after those of its members.
func (l *Ledger) garbage(ctx context.Context, g *glance) ([]ref, error) {
	var out []ref
	page := []clientv3.OpOption{clientv3.WithRange(l.keys.end()), clientv3.WithLimit(pageSize), clientv3.WithKeysOnly(), clientv3.WithSerializable()}
	for from := l.keys.prefix; ; {
		ctx, cancel := context.WithTimeout(ctx, l.options.Patience)
		resp, err := l.client.Get(ctx, from, page...)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, kv := range resp.Kvs {
			if r, ok := l.keys.parse(string(kv.Key)); ok && kv.ModRevision <= g.pos && isGarbage(g.state, r) {
				out = append(out, r)
			}
		}
		if !resp.More {
			return out, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// delete deletes records in one transaction, which also overwrites the key gc so that every transaction under way fails.
// It returns the number of records that existed and the revision; the revision is 0, and nothing was deleted, if one of the
// records has changed after pos.
func (l *Ledger) delete(ctx context.Context, garbage []ref, pos int64) (n int, at int64, err error) {
	compares := []clientv3.Cmp{}
	then := []clientv3.Op{clientv3.OpPut(l.keys.gc(), "")}
	for _, r := range garbage {
		key := l.keys.of(r)
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "<", pos+1))
		then = append(then, clientv3.OpDelete(key))
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	resp, err := l.client.Txn(ctx).If(compares...).Then(then...).Commit()
	if err != nil || !resp.Succeeded {
		return 0, 0, err
	}
	for _, r := range resp.Responses {
		n += int(r.GetResponseDeleteRange().GetDeleted())
	}
	return n, resp.Header.Revision, nil
}

// isGarbage reports whether the state does not have what a record describes.
func isGarbage(s *orbit.State, r ref) bool {
	switch r.kind {
	case kindNode, kindUse:
		return s.Node(orbit.NodeID(r.id)) == nil
	case kindCapsule:
		return s.Capsule(orbit.CapsuleID(r.id)) == nil
	case kindGang:
		return s.Gang(orbit.GangID(r.id)) == nil
	case kindHold:
		_, lives := s.Hold(orbit.HoldID(r.id))
		return !lives
	case kindBudget:
		_, lives := s.Budget(orbit.BudgetID(r.id))
		return !lives
	case kindFence:
		return !s.Fenced(r.id)
	case kindMark:
		_, at := s.Mark(r.id)
		return at == 0
	case kindProposal:
		var id orbit.ProposalID
		return id.UnmarshalText([]byte(r.id)) == nil && s.Committed(orbit.Proposal{ID: id}) == 0
	}
	return false
}
