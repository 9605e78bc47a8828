package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher is what a log needs to be told of changes.
type watcher struct {
	// stop ends the goroutine of the watch, done waits for it.
	stop context.CancelFunc
	done sync.WaitGroup
}

const (
	// pollEvery is how long the log waits for an event of the watch before it asks whether there is something new.
	pollEvery = time.Second
	// pause is how long it waits before it begins a new watch.
	pause = 100 * time.Millisecond
)

var (
	errEnded = errors.New("the watch has ended")
	errDeaf  = errors.New("the watch has not told of a change")
)

// start begins to watch.
func (h *Log) start() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.done.Go(func() {
		for ctx.Err() == nil {
			if err := h.watch(ctx); ctx.Err() == nil {
				h.options.OnError(fmt.Errorf("etcdledger: watch: %w", err))
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
}

// watch tells of changes until the watch ends, or has missed one. The client goes on with a watch by itself when it has lost
// the connection, but a connection may also be silent for long without being lost.
func (h *Log) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := h.client.Watch(clientv3.WithRequireLeader(ctx), h.keys.head(),
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(h.keys.posts())), clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	seen := int64(0)
	silence := time.NewTimer(pollEvery)
	defer silence.Stop()
	for {
		select {
		case r, ok := <-events:
			if err := r.Err(); !ok || err != nil {
				return errors.Join(errEnded, err)
			}
			if r.Created || h.foreign(r.Events) { // nobody tells of what came before the watch
				h.signal()
			}
			seen = max(seen, r.Header.Revision)
		case <-silence.C:
			if err := h.poll(ctx, seen); err != nil {
				return err
			}
		}
		silence.Reset(pollEvery)
	}
}

// foreign reports whether another handle has made one of some changes.
func (h *Log) foreign(events []*clientv3.Event) bool {
	for _, e := range events {
		if !h.tags.made(e.Kv.Value) {
			return true
		}
	}
	return false
}

// poll returns an error, and signals, if there is something newer than the revision that the watch has told of.
func (h *Log) poll(ctx context.Context, seen int64) error {
	got, err := h.read(ctx, clientv3.OpGet(h.keys.head(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(h.keys.posts())), clientv3.WithKeysOnly()))
	if err != nil {
		return err
	}
	for _, kv := range got[0].Kvs {
		if kv.ModRevision > seen {
			h.signal()
			return errDeaf
		}
	}
	return nil
}

// signal puts a token into the channel of changes.
func (h *Log) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}
