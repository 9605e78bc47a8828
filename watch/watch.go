// Package watch wakes those who wait for changes of one node or of one module, and nobody else. Without it every agent of a node
// wakes on every commit, to find that most do not concern it.
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

// Index follows a ledger, once for all who wait. Set the fields before first use, and run one Index in a process, beside those that
// call Node and Module. These may be called from any goroutine.
type Index struct {
	// Ledger is the ledger that the index follows. Required.
	Ledger orbit.Ledger
	// OnError, if set, is called by Run when the ledger cannot be read, at most once a second. Nil: such errors are written to
	// slog.Default().
	OnError func(error)

	// Guards what follows.
	mu sync.Mutex
	// The ledger has been followed up to here; 0: not yet. What changed at from or before is not known.
	seen, from orbit.Revision
	// When each node and module that has changed since changed last.
	last map[subject]orbit.Revision
	// Who waits.
	waiting map[subject]*waiter
}

// subject is a node or a module.
type subject struct {
	node   orbit.NodeID
	module string
}

// waiter is who waits for one subject. The channel is closed when that changes.
type waiter struct {
	wake  chan struct{}
	count int
}

// Node returns as soon as something that concerns a node has been committed after a revision: the node itself was put, joined, left,
// or is used otherwise; a capsule that is on it, or that has left it and still runs there, has another record; or a
// capsule on it may begin because something has stopped elsewhere. It returns the revision up to which that is known, to be given
// as after the next time; a snapshot that is taken then is not older. It may return though nothing has
// changed, and does so for an after of 0. What was changed and changed back before the index looked may be left out. The only error
// is that of the context. It waits for as long as Run is not at work.
func (x *Index) Node(ctx context.Context, id orbit.NodeID, after orbit.Revision) (orbit.Revision, error) {
	return x.wait(ctx, subject{node: id}, after)
}

// Module returns as soon as a capsule of a module was submitted, has another record, or has none any more, since a revision. All else is
// as with Node.
func (x *Index) Module(ctx context.Context, module string, after orbit.Revision) (orbit.Revision, error) {
	return x.wait(ctx, subject{module: module}, after)
}

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

// join returns the revision that has been seen if there is something new, and else a waiter.
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

// leave forgets one who waits no more.
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

func (x *Index) tell(err error) {
	if x.OnError != nil {
		x.OnError(err)
		return
	}
	slog.Default().Error("orbit: a watch cannot follow its ledger", "error", err)
}

// mostKept is how many nodes and modules are kept in mind beyond four for each node. After that all who have seen nothing newer are told
// that something may have changed.
const mostKept = 1 << 12

// advance files what differs between two states, and wakes who waits for that. A nil before means that everything may differ.
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

// file notes what differs. The lock is held.
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
			if c.Remains != nil {
				touch(subject{node: c.Remains.Node})
			}
		}
	}
}

// wake wakes all who wait for one subject. The lock is held.
func (x *Index) wake(of subject) {
	if w := x.waiting[of]; w != nil {
		close(w.wake)
		delete(x.waiting, of)
	}
}
