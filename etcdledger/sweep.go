package etcdledger

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// sweepEvery sweeps now and then, where it is worth it.
func (l *Ledger) sweepEvery(ctx context.Context) {
	tick := time.NewTicker(l.options.SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := l.Sweep(ctx); err != nil && ctx.Err() == nil {
				l.tell(err)
			}
		}
	}
}

// Sweep deletes the records of what is gone: nodes that have left, holds that have ended, marks without a value,
// capsules and ids of proposals beyond the windows of [orbit.Limits]. It returns how many. A Ledger sweeps by
// itself, at Options.SweepEvery; several may do so at once. Transactions under way meanwhile are tried again.
func (l *Ledger) Sweep(ctx context.Context) (int, error) {
	total := 0
	for {
		gone, pos := l.mirror.gone(l.options.MaxOps - 1)
		if len(gone) == 0 {
			return total, nil
		}
		n, at, err := l.delete(ctx, gone, pos)
		if err != nil {
			return total, fmt.Errorf("etcdledger: sweep: %w", err)
		}
		if at == 0 { // somebody was first; next time
			return total, nil
		}
		total += n
		l.counters.swept.Add(uint64(n))
		if _, err := l.reach(ctx, at); err != nil {
			return total, err
		}
		l.mirror.forgetLitter(gone) // the watch tells only of those that were there
	}
}

// delete deletes records that have not changed after a revision, and tells all that it did. It returns how many
// were there, and the revision, 0 if one has changed.
func (l *Ledger) delete(ctx context.Context, gone []ref, pos int64) (n int, at int64, err error) {
	compares := []clientv3.Cmp{}
	then := []clientv3.Op{clientv3.OpPut(l.keys.gc(), "")}
	for _, r := range gone {
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

// forgetLitter takes candidates out that have been deleted.
func (m *mirror) forgetLitter(gone []ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.litter.swept(gone)
}

// gone returns records of what is not in the state, at most so many, and what the mirror is at.
func (m *mirror) gone(most int) ([]ref, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []ref
	for r := range m.litter.refs {
		if len(out) == most {
			break
		}
		if _, damaged := m.bad[r]; damaged {
			continue
		}
		if isLitter(m.state, r) {
			out = append(out, r)
		} else {
			delete(m.litter.refs, r)
		}
	}
	return out, m.pos
}
