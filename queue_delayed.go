package orbit

import "time"

// Work that has failed several times in a row waits before it is planned again, so that a capsule whose starts fail
// everywhere costs little. The wait is the engine's: the ledger takes a placement at any time.

// delayedEntry is an entry that joins its class at a time.
type delayedEntry struct {
	at Instant
	entry
}

// Before orders delayed entries, soonest first.
func (a delayedEntry) Before(b delayedEntry) bool { return a.at < b.at }

// delay keeps a pending capsule out of its class for a while if its last starts have failed, and reports whether it
// does.
func (q *queue) delay(slot uint32, c *Capsule) bool {
	f := q.state.failuresOf(c.ID)
	if f == nil {
		return false
	}
	at := f.delayed(q.now)
	if at > q.now {
		q.delayed.Push(delayedEntry{at, entry{slot, c.Changed, c.Submitted}})
	}
	return at > q.now
}

// admitDelayed files the delayed capsules whose time has come. It reports whether that is new work. The class of a nominee
// may have been parked meanwhile by capsules that may not use the nominated room: it is unparked.
func (q *queue) admitDelayed() (woken bool) {
	for len(q.delayed) > 0 && q.delayed[0].at <= q.now {
		e := q.delayed.Pop()
		c := q.valid(e.entry)
		if c == nil {
			continue
		}
		woken = q.file(e.entry, c) || woken
		n := c.Nomination()
		if !n.Lives() { // perhaps its gang is nominated
			n = q.state.nominationOf(c.ID, c.Gang())
		}
		if n.Lives() {
			woken = q.bringBackNominees(n.Capsule, n.Gang) || woken
		}
	}
	q.roused = q.roused || woken
	return woken
}

// Delayed returns when the engine plans a pending capsule again whose last starts have failed; the zero time if it may be
// planned now. An engine does not hand such a capsule over. A navigator that finds work in the state itself, such as the
// other members of a gang, asks Delayed. If the time of the last failure is not known, the answer is the zero time.
func (v *View) Delayed(c *Capsule) time.Time {
	if v.state == nil {
		return time.Time{}
	}
	f, now := v.state.failuresOf(c.ID), instantOf(v.now)
	if f == nil || len(f.Nodes) == 0 || f.Nodes[0].At == 0 || f.Nodes[0].At > now {
		return time.Time{}
	}
	if at := f.delayed(now); at > now {
		return at.Time()
	}
	return time.Time{}
}
