package claim

// queue is a list of tickets in order of arrival, linked through the tickets themselves: a ticket is in at most
// one, and leaves it from any position at the cost of two writes. The zero value is empty.
//
// Invariant: seq rises from the first to the last.
type queue struct {
	root ticket // root.next is the first, root.prev the last
	n    int
}

// first returns the ticket that waits longest, nil if none does.
func (q *queue) first() *ticket {
	if q.n == 0 {
		return nil
	}
	return q.root.next
}

// pushBack adds a ticket that has just arrived.
func (q *queue) pushBack(t *ticket) {
	q.init()
	q.insert(t, q.root.prev)
}

// putBack returns a ticket that met a conflict to the head. Others may have returned before it: among those it
// goes where it was. Tickets that never left have arrived later than any that did, so the search is short.
func (q *queue) putBack(t *ticket) {
	q.init()
	at := &q.root
	for at.next != &q.root && at.next.seq < t.seq {
		at = at.next
	}
	q.insert(t, at)
}

// remove takes a ticket out, if it is in.
func (q *queue) remove(t *ticket) {
	if t.next == nil {
		return
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.prev, t.next = nil, nil
	q.n--
}

func (q *queue) init() {
	if q.root.next == nil {
		q.root.prev, q.root.next = &q.root, &q.root
	}
}

func (q *queue) insert(t, at *ticket) {
	t.prev, t.next = at, at.next
	at.next.prev, at.next = t, t
	q.n++
}
