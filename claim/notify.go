package claim

import "time"

// NotifyIdle says that a slot has become idle. The source is looked at NotifyDelay later, when a listing that
// lags behind shows the slot. It never waits, and may be called as often as you like: of a storm of calls, each
// is followed by a look no earlier than it asks for, and later by less than an eighth of the delay.
func (p *Pool) NotifyIdle() {
	p.init()
	p.mail.notify(time.Now(), p.set.notifyDelay)
}

// dueParts is how many looks there are at most in one delay.
const dueParts = 8

// notify hands in when to look. Looks that are due lie on a grid that begins with the first of a storm, so that
// there are few of them, and none moves back because of a later one.
func (m *mailbox) notify(now time.Time, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := now.Add(delay)
	if m.last.After(now) && delay >= dueParts {
		step := delay / dueParts
		behind := due.Sub(m.last)
		due = m.last.Add((max(behind, 0) + step - 1) / step * step)
	}
	if m.closed || due.Equal(m.last) && (len(m.dues) > 0 || due.After(now)) {
		return
	}
	m.last = due
	if len(m.dues) == 2*dueParts { // nobody takes them yet: the pool does not run
		m.dues = m.dues[:len(m.dues)-1]
	}
	m.dues = append(m.dues, due)
	m.ring()
}
