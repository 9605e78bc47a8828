// Package watch wakes callers that wait for changes of one node or of one module, and only those. Without it the agent
// of each node wakes on every commit, although most commits do not concern its node.
//
//	Ledger ── Wait, Snapshot ──► Index ── what differs (orbit.Diff) ──► by node   ──► Node(ctx, "n7", after)
//	                              one for all who wait              └─► by module ──► Module(ctx, "web", after)
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// Index follows a ledger, once for all callers that wait. Set the fields before first use. Use one Index per process,
// with Run in a goroutine of its own. Node and Module may be called from any goroutine.
type Index struct {
	// Ledger is the ledger that the index follows. Required.
	Ledger orbit.Ledger
	// OnError, if set, is called by Run when the ledger cannot be read, at most once a second. Nil: such errors are
	// written to slog.Default().
	OnError func(error)

	// Guards the fields below.
	mu sync.Mutex
	// The index has followed the ledger up to revision seen; 0: not yet. Of changes at from or before it knows nothing.
	seen, from orbit.Revision
	// The revision of the last change of each node and module that has changed after from.
	last map[subject]orbit.Revision
	// The callers that wait, by subject.
	waiting map[subject]*waiter
}

// subject is a node or a module.
type subject struct {
	node   orbit.NodeID
	module string
}

// waiter is shared by all callers that wait for one subject; count is their number. The channel is closed when the
// subject changes.
type waiter struct {
	wake  chan struct{}
	count int
}

// Node returns as soon as a change that concerns a node has been committed after a revision. Such a change is: the node
// itself was put, joined, left, or its use changed; the record changed of a capsule that is on the node, or that has
// left it and still runs there; or a capsule on the node may begin because another has stopped elsewhere. Node returns
// the revision up to which the index has followed the ledger: pass it as after to the next call. A snapshot that is
// taken afterwards is not older than that revision. Node may return although nothing has changed, and does so if after
// is 0. It may miss a change that was undone before the index read the ledger. The only error is that of the context.
// While Run is not running, Node waits.
func (x *Index) Node(ctx context.Context, id orbit.NodeID, after orbit.Revision) (orbit.Revision, error) {
	return x.wait(ctx, subject{node: id}, after)
}

// Module returns as soon as a change of a capsule of a module has been committed after a revision: the capsule was
// submitted, its record changed, or it was removed. All else is as with Node.
func (x *Index) Module(ctx context.Context, module string, after orbit.Revision) (orbit.Revision, error) {
	return x.wait(ctx, subject{module: module}, after)
}

// wait returns when the subject has changed after a revision, or when ctx ends. It checks again after each wake,
// because a waiter is woken without regard to its revision.
func (x *Index) wait(ctx context.Context, of subject, after orbit.Revision) (orbit.Revision, error) {
	for {
		seen, w := x.join(of, after)
		if w == nil {
			return seen, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			x.leave(of, w)
			return 0, fmt.Errorf("watch: wait for a change after revision %d: %w", after, ctx.Err())
		}
	}
}

// join returns the revision that has been seen if the subject may have changed after a revision, and else a waiter.
func (x *Index) join(of subject, after orbit.Revision) (orbit.Revision, *waiter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen > 0 && (after < x.from || x.last[of] > after) {
		return x.seen, nil
	}
	w := x.waiting[of]
	if w == nil {
		if x.waiting == nil {
			x.waiting = map[subject]*waiter{}
		}
		w = &waiter{wake: make(chan struct{})}
		x.waiting[of] = w
	}
	w.count++
	return 0, w
}

// leave removes a caller that waits no longer from a waiter.
func (x *Index) leave(of subject, w *waiter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w.count--; w.count == 0 && x.waiting[of] == w {
		delete(x.waiting, of)
	}
}

// Run follows the ledger until ctx ends, and then returns nil. Without a Ledger it returns an error that wraps
// [orbit.ErrInvalid].
func (x *Index) Run(ctx context.Context) error {
	if x.Ledger == nil {
		return fmt.Errorf("watch: %w: Index.Ledger is nil", orbit.ErrInvalid)
	}
	var state *orbit.State
	for ctx.Err() == nil {
		now, err := x.Ledger.Snapshot(ctx)
		if err == nil {
			x.advance(state, now)
			state = now
			_, err = x.Ledger.Wait(ctx, now.Revision())
		}
		if err != nil && ctx.Err() == nil {
			x.tell(fmt.Errorf("watch: %w", err))
			send.Pause(ctx, time.Second)
		}
	}
	return nil
}

// tell reports an error of the ledger.
func (x *Index) tell(err error) {
	if x.OnError != nil {
		x.OnError(err)
		return
	}
	slog.Default().Error("orbit: a watch cannot follow its ledger", "error", err)
}

// mostKept bounds the number of nodes and modules whose last change is kept, together with four for each node. Beyond
// it the index forgets all, and callers that pass an older revision are told that something may have changed.
const mostKept = 1 << 12

// advance files the differences between two states, and wakes the callers that wait for them. If before is nil,
// everything may differ.
func (x *Index) advance(before, now *orbit.State) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case before == nil:
		x.from, x.last = now.Revision(), map[subject]orbit.Revision{}
		for of := range x.waiting {
			x.wake(of)
		}
	case now.Revision() > x.seen:
		x.file(now.Diff(before), now.Revision())
	}
	x.seen = max(x.seen, now.Revision())
	if len(x.last) > mostKept+4*now.NodeCount() {
		x.from = x.seen
		clear(x.last)
	}
}

// file records the nodes and modules that a difference concerns, and wakes their waiters. The lock is held.
func (x *Index) file(d orbit.Diff, at orbit.Revision) {
	touch := func(of subject) {
		if of != (subject{}) {
			x.last[of] = at
			x.wake(of)
		}
	}
	for was, now := range d.Nodes() {
		for _, n := range []*orbit.NodeState{was, now} {
			if n != nil {
				touch(subject{node: n.Node.ID})
			}
		}
	}
	for was, now := range d.Capsules() {
		for _, c := range []*orbit.Capsule{was, now} {
			if c == nil {
				continue
			}
			touch(subject{node: c.Node})
			touch(subject{module: c.Spec.Module})
			for _, r := range [...]*orbit.Remains{c.Remains(), c.Surge()} {
				if r != nil {
					touch(subject{node: r.Node})
				}
			}
		}
	}
}

// wake wakes all callers that wait for one subject. The lock is held.
func (x *Index) wake(of subject) {
	if w := x.waiting[of]; w != nil {
		close(w.wake)
		delete(x.waiting, of)
	}
}
