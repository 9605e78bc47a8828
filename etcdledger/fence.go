package etcdledger

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// fence reads from etcd the revision of the newest commit. A mirror that has reached it shows everything that was committed
// before the read began. Callers that arrive during a read share the next one, because a read that began before the call
// would not see all commits.
type fence struct {
	ctx     context.Context // the ledger's
	client  *clientv3.Client
	key     string
	timeout time.Duration
	stats   *counters

	mu      sync.Mutex // guards running and next
	running bool
	// next is the read that begins when the running one ends; nil: no caller waits for one.
	next *fenceRead
}

// fenceRead is one read, which several callers may share.
type fenceRead struct {
	done chan struct{}
	at   int64
	err  error
}

// read returns etcd's revision of the newest commit, 0 if there is none. It includes every commit that was complete when
// read was called.
func (f *fence) read(ctx context.Context) (int64, error) {
	r := f.join()
	select {
	case <-r.done:
		return r.at, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-f.ctx.Done():
		return 0, ErrClosed
	}
}

// join returns a read that has not begun yet.
func (f *fence) join() *fenceRead {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = &fenceRead{done: make(chan struct{})}
	}
	f.stats.reads.Add(1)
	r := f.next
	if !f.running {
		f.running = true
		go f.run()
	}
	return r
}

// run does one read after another as long as callers wait for one.
func (f *fence) run() {
	for {
		r := f.begin()
		if r == nil {
			return
		}
		r.at, r.err = f.ask()
		close(r.done)
	}
}

// begin returns the read that callers wait for; callers that join from now on wait for the one after it.
func (f *fence) begin() *fenceRead {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.next
	f.next = nil
	f.running = r != nil
	return r
}

// ask does one linearizable read. It has a time limit of its own, because several callers share it.
func (f *fence) ask() (int64, error) {
	ctx, cancel := context.WithTimeout(f.ctx, f.timeout)
	defer cancel()
	resp, err := f.client.Get(ctx, f.key, clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	if len(resp.Kvs) == 0 {
		return 0, nil
	}
	return resp.Kvs[0].ModRevision, nil
}
