package etcdledger

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// fence asks etcd what the newest commit is, so that whoever then waits for the mirror to reach it sees all that
// was committed before he asked. All who ask while a read is on its way share the next one.
type fence struct {
	// The ledger's.
	ctx     context.Context
	client  *clientv3.Client
	key     string
	timeout time.Duration
	stats   *counters

	// Guards what follows.
	mu      sync.Mutex
	running bool
	// The read that begins when the running one ends; nil: nobody waits for it.
	next *fenceRead
}

type fenceRead struct {
	done chan struct{}
	at   int64
	err  error
}

// read returns etcd's revision of the newest commit that was complete when read was called, 0 if there is none.
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

// run reads as long as somebody waits.
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

// begin takes the read that is waited for; whoever joins from now on waits for another.
func (f *fence) begin() *fenceRead {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.next
	f.next = nil
	f.running = r != nil
	return r
}

// ask is one linearizable read. It has a time limit of its own: its callers come and go.
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
