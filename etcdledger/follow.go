package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/internal/send"
)

// follow keeps the mirror up to date until the ledger is closed. It watches from the mirror's revision, and reads all
// records again if the watch cannot continue from there.
func (l *Ledger) follow(ctx context.Context) {
	wait := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		err := l.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errBehind) {
			l.counters.reloads.Add(1)
			l.tell(err)
			err = l.reload(ctx)
		}
		if wait = backoff(wait, time.Since(began)); err != nil {
			l.mirror.lose(err)
			l.tell(err)
			send.Pause(ctx, wait)
		}
	}
}

// backoff returns how long to wait after a failed watch that lasted for took; last is the previous wait. It starts over if
// the watch has worked for a while.
func backoff(last, took time.Duration) time.Duration {
	const least, most = 20 * time.Millisecond, 2 * time.Second
	if took > most {
		return least
	}
	return min(max(2*last, least), most)
}

// errBehind means that the watch cannot continue from the mirror's revision.
var errBehind = errors.New("etcdledger: all records are read again")

// watch follows etcd until the watch ends, and returns why. After errBehind the records must be read again.
func (l *Ledger) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	l.mirror.watched(cancel)
	defer l.mirror.watched(nil)
	from := l.mirror.look().pos + 1
	watch := l.client.Watch(ctx, l.keys.prefix, clientv3.WithRange(l.keys.end()), clientv3.WithRev(from), clientv3.WithCreatedNotify())
	for resp := range watch {
		switch err := resp.Err(); {
		case resp.CompactRevision != 0:
			return fmt.Errorf("%w: revision %d was compacted, the mirror is at %d", errBehind, resp.CompactRevision, from-1)
		case err != nil:
			return fmt.Errorf("etcdledger: watch: %w", err)
		}
		if err := l.mirror.follow(resp.Events); err != nil {
			return fmt.Errorf("%w: %w", errBehind, err)
		}
	}
	return errors.New("etcdledger: the watch has ended")
}

// reload reads all records again.
func (l *Ledger) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*l.options.Patience)
	defer cancel()
	again, err := load(ctx, l.client, l.keys, l.meta, l.options.Patience)
	if err != nil {
		return err
	}
	l.mirror.replace(again)
	return nil
}
