package etcdledger

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch is one watch of a client. It delivers all events of a revision together, and several revisions together if they
// have come meanwhile.
type watch struct {
	*link
	ctx       context.Context
	from, end []byte
	next      int64
	out       chan clientv3.WatchResponse
}

// Watch implements clientv3.Watcher.
func (l *link) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...)
	w := &watch{link: l, ctx: ctx, from: op.KeyBytes(), end: op.RangeBytes(), next: op.Rev(), out: make(chan clientv3.WatchResponse)}
	end := l.store.begin()
	go func() {
		defer end()
		defer close(w.out)
		if w.send(clientv3.WatchResponse{Created: true, Header: &pb.ResponseHeader{Revision: w.next}}) {
			for w.step() {
			}
		}
	}()
	return w.out
}

// RequestProgress and Close implement clientv3.Watcher; the ledger does not use them.
func (l *link) RequestProgress(context.Context) error { return nil }
func (l *link) Close() error                          { return nil }

// send delivers a response, and reports whether the watch is still open.
func (w *watch) send(r clientv3.WatchResponse) bool {
	select {
	case w.out <- r:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// step waits for a revision and delivers it. It reports whether the watch goes on.
func (w *watch) step() bool {
	w.store.mu.Lock()
	missed, changed, waits := w.next < w.store.compacted, w.store.changed, w.next > w.store.rev
	compacted := w.store.compacted
	w.store.mu.Unlock()
	if missed {
		w.send(clientv3.WatchResponse{CompactRevision: compacted, Canceled: true, Header: &pb.ResponseHeader{}})
		return false
	}
	if waits {
		select {
		case <-changed:
			return true
		case <-w.ctx.Done():
			return false
		}
	}
	return w.bring()
}

// bring delivers the new revisions, with the delays and faults that the plan has for it.
func (w *watch) bring() bool {
	f := w.plan.next(&w.plan.events)
	w.plan.mu.Lock()
	held, lag, hook := w.plan.held, w.plan.lag, w.plan.onEvents
	w.plan.mu.Unlock()
	if hook != nil {
		hook()
	}
	if held != nil {
		select {
		case <-held:
		case <-w.ctx.Done():
			return false
		}
	}
	switch f.fate {
	case lostBefore: // the connection is lost, so the watch ends
		return false
	case lostAfter: // the server cancels the watch
		w.send(clientv3.WatchResponse{Canceled: true, CancelReason: "etcdserver: no leader", Header: &pb.ResponseHeader{}})
		return false
	case silent: // the watch is so late that the revisions it needs have been compacted
		_ = sleep(w.ctx, f.by)
		w.store.compact()
		return true
	case late, slow, slowAnswer:
		lag += f.by
	}
	w.store.mu.Lock()
	first := w.store.log[w.next-2] // revision 1 is before the first
	w.store.mu.Unlock()
	if wait := time.Until(first.when.Add(lag)); wait > 0 && sleep(w.ctx, wait) != nil {
		return false
	}
	return w.deliver(lag)
}

// deliver delivers all revisions that are old enough.
func (w *watch) deliver(lag time.Duration) bool {
	w.store.mu.Lock()
	if w.next < w.store.compacted {
		w.store.mu.Unlock()
		return true
	}
	r := clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: w.store.rev}}
	for _, h := range w.store.log[w.next-2:] {
		if time.Until(h.when.Add(lag)) > 0 {
			break
		}
		for _, e := range h.events {
			if inside(e.Kv.Key, w.from, w.end) {
				r.Events = append(r.Events, e)
			}
		}
		w.next = h.at + 1
	}
	w.store.mu.Unlock()
	return len(r.Events) == 0 || w.send(r)
}
