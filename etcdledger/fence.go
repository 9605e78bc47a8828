package etcdledger

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// fence asks etcd what the newest commit is: a mirror that has reached it shows all that was committed before the question.
// Callers that ask while a read is on its way share the next one, for theirs must begin after they have asked.
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
	// The read that begins when the running one ends; nil: none is asked for.
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

// run reads as long as a read is asked for.
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

// begin takes the read that is asked for; callers that join from now on wait for another.
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
