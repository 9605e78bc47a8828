package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

// watcherRole is the role of a process that reports when it sees each revision.
const watcherRole = "watcher"

type watcherConfig struct {
	Endpoints []string
	Prefix    string
}

// sight says when a revision was seen, in nanoseconds by the clock of the machine.
type sight struct {
	Revision orbit.Revision
	At       int64
}

// watch is the role of watcherRole. It reports every revision as soon as Wait returns it.
func watch(ctx context.Context, self *process.Self) error {
	var c watcherConfig
	if err := self.Config(&c); err != nil {
		return err
	}
	client, err := clientv3.New(cluster.ClientConfig(c.Endpoints))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	l, err := etcdledger.Open(ctx, client, etcdledger.Options{Prefix: c.Prefix})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	var rev orbit.Revision
	for {
		if rev, err = l.Wait(ctx, rev); err != nil {
			return nil // the program that started it has ended
		}
		if err := self.Say(sight{rev, time.Now().UnixNano()}); err != nil {
			return err
		}
	}
}

// watcher is a process that watches a ledger.
type watcher struct {
	*process.Process

	mu   sync.Mutex // guards seen
	seen []sight
}

// startWatcher starts a watcher and waits until it has seen a revision.
func (w *world) startWatcher(l *ledger, rev orbit.Revision) (*watcher, error) {
	one := &watcher{}
	var err error
	one.Process, err = process.Start(watcherRole, watcherConfig{w.etcd.Endpoints(), l.prefix}, func(line string) {
		var s sight
		if json.Unmarshal([]byte(line), &s) == nil {
			one.mu.Lock()
			defer one.mu.Unlock()
			one.seen = append(one.seen, s)
		}
	})
	if err != nil {
		return nil, err
	}
	if _, err := one.when(rev); err != nil {
		return nil, errors.Join(err, one.Kill())
	}
	return one, nil
}

// when waits until a revision has been seen and returns the time at which it was.
func (w *watcher) when(rev orbit.Revision) (at int64, err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.mu.Lock()
		for i := len(w.seen) - 1; i >= 0 && w.seen[i].Revision >= rev; i-- {
			at = w.seen[i].At
		}
		w.mu.Unlock()
		if at != 0 {
			return at, nil
		}
	}
	return 0, fmt.Errorf("the other process has not seen revision %d within 10s: %w", rev, w.Err())
}
