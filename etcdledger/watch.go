package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/internal/rate"
)

// watcher is what a log needs to be told of changes.
type watcher struct {
	// stop ends the goroutine of the watch, done waits for it.
	stop context.CancelFunc
	done sync.WaitGroup
	// answered says that the last read without a watch was answered. Only that goroutine uses it.
	answered bool
	// outage is what OnError has been told of a lost watch. Only that goroutine uses it.
	outage rate.Outage
}

const (
	// silence is how long the log waits for a sign of the watch before it asks for one, and then waits once more.
	silence = time.Second
	// pause is how long it waits before it begins a new watch.
	pause = 100 * time.Millisecond
)

var (
	errEnded = errors.New("the watch has ended")
	errDeaf  = errors.New("the watch does not answer")
)

// start begins to watch.
func (h *Log) start() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.done.Go(func() {
		for ctx.Err() == nil {
			h.unwatched(ctx, h.watch(ctx))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
}

// unwatched makes the ledger read, because there is no watch: it tells if etcd does not answer. If etcd answers before and after a
// watch has failed, only the watch is at fault, and OnError is told.
func (h *Log) unwatched(ctx context.Context, failed error) {
	h.signal()
	before := h.answered
	_, err := h.newest(ctx)
	if h.answered = err == nil; err == nil && before && ctx.Err() == nil {
		h.outage.Lost(fmt.Errorf("etcdledger: the watch is lost, and begun again every %v: %w", pause, failed), h.options.OnError)
	}
}

// watch tells of changes until the watch ends, or does not answer. The client goes on with a watch by itself when it has lost
// the connection, but a connection may also be dead for long without being lost. Etcd is asked for a sign on the stream of the
// watch itself: a read would not say whether that is alive, and would go to another member.
func (h *Log) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := h.client.Watch(ctx, h.keys.head(), clientv3.WithRange(clientv3.GetPrefixRangeEnd(h.keys.posts())),
		clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	timer, asked := time.NewTimer(silence), false
	defer timer.Stop()
	for {
		select {
		case r, ok := <-events:
			if err := r.Err(); !ok || err != nil {
				return errors.Join(errEnded, err)
			}
			if r.Created {
				h.outage.Back(h.options.OnError)
				h.answered = false
			}
			if r.Created || h.foreign(r.Events) { // nobody tells of what came before the watch
				h.signal()
			}
			asked = false
		case <-timer.C:
			if asked {
				return errDeaf
			}
			if asked = true; h.ask(ctx) != nil {
				return errDeaf
			}
		}
		timer.Reset(silence)
	}
}

// ask asks for a sign of the watch.
func (h *Log) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return h.client.RequestProgress(ctx)
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

// signal puts a token into the channel of changes.
func (h *Log) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}
