package claim

import (
	"sync"
	"time"
)

// mailbox is how everybody else speaks to the pool's one goroutine: nobody who puts something in ever waits
// for it, and nothing is lost that was put in before the goroutine looked. It is drained whole, so that a
// burst costs one look.
//
// Invariant: it holds no more tickets than count in QueueLen, for one that has been answered is taken out.
type mailbox struct {
	// Has a token whenever there is something that the goroutine has not taken.
	wake chan struct{}

	// Guards what follows.
	mu     sync.Mutex
	closed bool
	// Numbers arrivals.
	seq      uint64
	arrivals queue
	// The last look that NotifyIdle has asked for.
	last time.Time
	mail
}

// mail is what has come in since the last look.
type mail struct {
	// Tickets answered from outside after they had been taken.
	ended    []*ticket
	outcomes []outcome
	listings []heard
	// When to look at the source because of NotifyIdle, in order.
	dues []time.Time
	// How the scale-up hook has ended.
	signalled []signalled
}

// heard is a listing that has come in, or why there is none.
type heard struct {
	Listing
	err error
	// It is the answer to a question of the pool's: the next one may be asked.
	asked bool
	// The question has not been answered in time, and the call is left behind; or one that was has returned.
	overdue, late bool
	// If set: has room for a token that says that the loop has taken it.
	taken chan<- struct{}
}

// ring wakes the goroutine.
func (m *mailbox) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// post hands in something, under the lock.
func (m *mailbox) post(put func(*mail)) {
	m.mu.Lock()
	put(&m.mail)
	m.mu.Unlock()
	m.ring()
}

// arrive hands in a ticket, unless it has been answered meanwhile. It reports false when the mailbox is closed.
func (m *mailbox) arrive(t *ticket) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if !t.settled.Load() {
		m.seq++
		t.seq, t.posted = m.seq, true
		m.arrivals.pushBack(t)
		m.ring()
	}
	return true
}

// end hands in that a ticket has been answered.
func (m *mailbox) end(t *ticket) {
	m.mu.Lock()
	if t.posted {
		t.posted = false
		m.arrivals.remove(t)
		m.mu.Unlock()
		return
	}
	m.ended = append(m.ended, t)
	m.mu.Unlock()
	m.ring()
}

// close lets no more tickets arrive. It reports false if it was closed before.
func (m *mailbox) close() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.closed
	m.closed = true
	return !was
}

// take hands the tickets that have arrived to file, in order, and moves all other mail to into, whose slices
// are used again for what comes next.
func (m *mailbox) take(into *mail, file func(*ticket)) {
	into.clear()
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := m.arrivals.first(); t != nil; t = m.arrivals.first() {
		m.arrivals.remove(t)
		t.posted = false
		file(t)
	}
	m.mail, *into = *into, m.mail
}

// clear empties the slices and keeps their arrays.
func (m *mail) clear() {
	clear(m.ended)
	clear(m.outcomes)
	clear(m.listings)
	m.ended, m.outcomes, m.listings = m.ended[:0], m.outcomes[:0], m.listings[:0]
	m.dues, m.signalled = m.dues[:0], m.signalled[:0]
}
