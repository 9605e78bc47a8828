package telemetry

import "github.com/orbitsched/orbit"

// newsLog is what boards read to learn whose lease has changed: a window on an endless list of names.
type newsLog struct {
	window []string
	base   uint64 // position of window[0], less one
}

// newsWindow is where the older half of the window is forgotten.
const newsWindow = 1 << 13

// add appends a name.
func (n *newsLog) add(name string) {
	if len(n.window) >= newsWindow {
		half := len(n.window) / 2
		n.base += uint64(half)
		n.window = append(n.window[:0], n.window[half:]...)
		clear(n.window[len(n.window):cap(n.window)])
	}
	n.window = append(n.window, name)
}

// since returns what was added after a cursor, and all if the window does not reach back that far. The names are
// good until the next add.
func (n *newsLog) since(cursor uint64) (names []string, next uint64, all bool) {
	next = n.base + uint64(len(n.window))
	if cursor < n.base || cursor > next {
		return nil, next, true
	}
	return n.window[cursor-n.base:], next, false
}

// news is that something about a lease has changed.
type news struct {
	name  string
	known bool // it has a row, or its holder has still to be told that it has none
}

// heard lets leases run out whose end has come, and returns those that have changed since a cursor; all: any may
// have.
func (l *Leases) heard(cursor uint64) (changed []news, next uint64, all bool) {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(l.clock())
	names, next, all := l.news.since(cursor)
	for _, name := range names {
		changed = append(changed, news{name, l.leases[name] != nil})
	}
	return changed, next, all
}

// newsOf returns what is new of one lease, if anything is.
func (l *Leases) newsOf(name string) news {
	l.mu.Lock()
	defer l.mu.Unlock()
	return news{name, l.leases[name] != nil}
}

// has reports whether a term is live now.
func (l *Leases) has(node orbit.NodeID, term orbit.Revision) bool {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.alive(string(node), l.clock())
	return le != nil && le.at == term
}

// underTerm says why a report is not under the current term of its node, nil if it is. If it is to be taken, it
// refreshes the term. It requires the board's lock.
func (b *Board) underTerm(r *orbit.Report, refresh bool) *Refusal {
	if b.Leases == nil {
		return nil
	}
	err := b.Leases.hold(Term{Name: string(r.Node), Epoch: r.Term}, refresh)
	if err == nil {
		return nil
	}
	return &Refusal{Kind: err.Kind, Node: r.Node, At: r.At, Reason: err.Reason, Term: r.Term, Current: err.Held.Epoch}
}
