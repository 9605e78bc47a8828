package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// mirror is the ledger as this process knows it: what all commits up to a revision have made of it.
//
// Invariant: state is what the records below the prefix say at etcd's revision pos, and history is how it came to
// that since floor.
type mirror struct {
	keys keys
	// The name of this process in the log, by which it knows its own commits.
	self string

	// Guards what follows. Writers are the loader and the watch, which are one goroutine.
	mu    sync.Mutex
	state *orbit.State
	pos   int64
	// Why it is not in touch with etcd, or which records there are damaged; nil: it is in touch.
	down    error
	history history
	// Closed when pos or down changes.
	wake chan struct{}
	// Our transactions under way, by number, and where they were seen; 0: not yet.
	own map[uint64]int64
	// How often a part of the history was missed.
	gaps int
	// Ends the watch; nil: there is none.
	unwatch func()
	// When the watch began, or last brought anything.
	heard time.Time
}

// glance is the mirror at one moment.
type glance struct {
	state *orbit.State
	pos   int64
	down  error
	gaps  int
	// Closed when it has changed.
	changed <-chan struct{}
}

// look returns what there is.
func (m *mirror) look() glance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return glance{m.state, m.pos, m.down, m.gaps, m.wake}
}

// turn changes the mirror and wakes those that wait for that.
func (m *mirror) turn(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.wake)
	m.wake = make(chan struct{})
}

// replace starts anew from records that have been read. The state's slots are others than before, and it may be at
// the very revision of the one that it replaces: a reader that has that one must not go on from it. No commit is between
// the state's revision and pos.
func (m *mirror) replace(l *loaded) {
	m.turn(func() {
		m.history = history{limit: l.state.Limits().History, floor: l.state.Revision()}
		if m.state != nil {
			m.gaps++
			m.history.floor = orbit.Revision(l.pos)
		}
		m.state, m.pos, m.down = l.state, l.pos, nil
	})
}

// watched says how the watch that has begun is ended; nil: it has ended.
func (m *mirror) watched(end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unwatch, m.heard = end, time.Now()
}

// rewatch ends a watch that has brought nothing for so long, although something is known to be there. Another one
// begins, perhaps with another server.
func (m *mirror) rewatch(silence time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unwatch != nil && time.Since(m.heard) >= silence {
		m.unwatch()
		m.unwatch = nil
	}
}

// lose says that etcd is out of touch.
func (m *mirror) lose(why error) { m.turn(func() { m.down = why }) }

// reach waits until the mirror has seen everything up to a revision of etcd. While records are damaged it fails at once.
func (m *mirror) reach(ctx context.Context, pos int64) (glance, error) {
	for {
		g := m.look()
		if errors.Is(g.down, ErrCorrupt) {
			return g, g.down
		}
		if g.pos >= pos && g.state != nil {
			return g, nil
		}
		select {
		case <-g.changed:
		case <-ctx.Done():
			return g, errors.Join(ctx.Err(), g.down)
		}
	}
}

// errForeign: a record was written by a program that is no ledger.
var errForeign = errors.New("a write that is no commit")

// step is what the events of one or more revisions say.
type step struct {
	changes []orbit.Change
	own     map[uint64]int64
	pos     int64
}

// read adds the events of one revision.
func (s *step) read(k keys, self string, events []*clientv3.Event) error {
	rev := events[0].Kv.ModRevision
	var log, gc, other *clientv3.Event
	for _, e := range events {
		switch key := string(e.Kv.Key); {
		case key == k.log():
			log = e
		case key == k.gc():
			gc = e
		case k.owns(key):
			other = e
		}
	}
	switch {
	case log != nil:
		return s.commit(self, rev, log)
	case gc == nil && other != nil:
		return fmt.Errorf("%w: key %q at revision %d", errForeign, other.Kv.Key, rev)
	}
	s.pos = rev
	return nil
}

// commit adds what the log says.
func (s *step) commit(self string, rev int64, log *clientv3.Event) error {
	if log.Type != mvccpb.Event_PUT {
		return fmt.Errorf("%w: the log was deleted at revision %d", errForeign, rev)
	}
	e, err := decodeEntry(log.Kv.Value, orbit.Revision(rev))
	if err != nil {
		return fmt.Errorf("%w: the log at revision %d: %w", errForeign, rev, err)
	}
	s.changes = append(s.changes, e.changes()...)
	if e.By == self {
		s.own[e.Number] = rev
	}
	s.pos = rev
	return nil
}

// follow takes what the watch has brought: events in order of revision, none of a revision left out. An error
// means that the records have to be read again.
func (m *mirror) follow(events []*clientv3.Event) error {
	g := m.look()
	s := step{own: map[uint64]int64{}}
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
			n++
		}
		if err := s.read(m.keys, m.self, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	next := g.state
	if len(s.changes) > 0 {
		var err error
		if next, err = g.state.Apply(s.changes); err != nil {
			return fmt.Errorf("the log does not follow from the records: %w", err)
		}
	}
	m.turn(func() {
		m.state, m.pos, m.down, m.heard = next, max(m.pos, s.pos), nil, time.Now()
		m.history.append(s.changes)
		for number, rev := range s.own {
			if _, expected := m.own[number]; expected {
				m.own[number] = rev
			}
		}
	})
	return nil
}

// expect makes the mirror look out for our own transaction.
func (m *mirror) expect(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.own[number] = 0
}

// seen returns the revision at which our own transaction was seen, 0 if it was not.
func (m *mirror) seen(number uint64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own[number]
}

// forget ends what expect has begun.
func (m *mirror) forget(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.own, number)
}

// attribute adds to a receipt which proposal took what was wanted, if that is still known.
func (m *mirror) attribute(err error) error {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) && errors.Is(r.Kind, orbit.ErrConflict) {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.TakenBy = m.history.taker(r)
	}
	return err
}
