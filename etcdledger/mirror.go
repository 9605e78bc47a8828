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

// mirror is this process's copy of the ledger.
//
// Invariant: state is the state that the records below the prefix describe at etcd's revision pos. History has the
// changes from history.floor to that state.
type mirror struct {
	keys keys
	// self is the name of this process in the log, by which it recognizes its own commits.
	self string

	// mu guards the fields below. One goroutine writes them all: it loads the records and then follows the watch.
	mu    sync.Mutex
	state *orbit.State
	pos   int64
	// down says why the mirror has lost touch with etcd, or which records are damaged; nil: the mirror follows etcd.
	down    error
	history history
	// wake is closed, and replaced, when pos or down changes.
	wake chan struct{}
	// own has the transactions of this process that are under way, by number. The value is the transaction's revision
	// once the watch has delivered it; 0: not delivered yet.
	own map[uint64]int64
	// gaps is how often a part of the history was missed.
	gaps int
	// unwatch ends the watch; nil: there is none.
	unwatch func()
	// heard is when the watch began or last delivered anything.
	heard time.Time
}

// glance is a copy of the mirror at one moment.
type glance struct {
	state *orbit.State
	pos   int64
	down  error
	gaps  int
	// changed is closed when the mirror has changed.
	changed <-chan struct{}
}

// look returns the mirror at this moment.
func (m *mirror) look() glance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return glance{m.state, m.pos, m.down, m.gaps, m.wake}
}

// turn calls change with the lock held, and wakes the goroutines that wait for a change of the mirror.
func (m *mirror) turn(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.wake)
	m.wake = make(chan struct{})
}

// replace starts anew from records that have been read. The new state may have the same revision as the old one and yet
// other node indices, so readers must not apply later changes to the old state. Therefore the history's floor is set to
// pos, which makes Changes return ErrCompacted to such readers. No commit is lost by this: there is none between the
// state's revision and pos.
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

// watched notes that a watch has begun, with the function that ends it, or that it has ended (nil).
func (m *mirror) watched(end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unwatch, m.heard = end, time.Now()
}

// rewatch ends the watch if it has delivered nothing for the time silence. The caller knows that etcd has a newer
// revision. Ledger.follow then begins another watch, perhaps with another server.
func (m *mirror) rewatch(silence time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unwatch != nil && time.Since(m.heard) >= silence {
		m.unwatch()
		m.unwatch = nil
	}
}

// lose notes that the mirror has lost touch with etcd.
func (m *mirror) lose(why error) { m.turn(func() { m.down = why }) }

// reach waits until the mirror has reached a revision of etcd. While records are damaged it fails at once.
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

// errForeign means that another program than a ledger has written a record.
var errForeign = errors.New("a write that is no commit")

// step has the contents of the watch events of one or more revisions.
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

// commit adds the changes of a log entry.
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

// follow applies watch events to the mirror. They are in order of revision, and the events of a revision are complete. An
// error means that the records have to be read again.
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

// expect makes the mirror note the revision of a transaction of this process when the watch delivers it.
func (m *mirror) expect(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.own[number] = 0
}

// seen returns the revision of an expected transaction, 0 if the watch has not delivered it.
func (m *mirror) seen(number uint64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own[number]
}

// forget undoes expect.
func (m *mirror) forget(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.own, number)
}

// attribute adds to the receipt of a conflict the id of the proposal that caused it, if the history still has it.
func (m *mirror) attribute(err error) error {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) && errors.Is(r.Kind, orbit.ErrConflict) {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.TakenBy = m.history.taker(r)
	}
	return err
}
