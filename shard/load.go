package shard

import "github.com/orbitsched/orbit"

// owned is what one owner has to place.
type owned struct {
	name string
	// Pending capsules.
	count int
	// Them, in order of assignment, and some that are not any more; each capsule is looked at before it is believed.
	ids []orbit.CapsuleID
	// Position in the roster, and place on the ladder; nil: the owner does not live.
	at         int
	rung       *rung
	prev, next *owned
}

// file adds a capsule. Void entries are dropped when they are most.
func (o *owned) file(id orbit.CapsuleID, state *orbit.State) {
	if len(o.ids) > 2*o.count+64 {
		kept := o.ids[:0]
		seen := make(map[orbit.CapsuleID]bool, o.count)
		for _, id := range o.ids {
			if c := state.Capsule(id); c != nil && c.Pending() && c.Owner == o.name && !seen[id] {
				seen[id] = true
				kept = append(kept, id)
			}
		}
		clear(o.ids[len(kept):])
		o.ids = kept
	}
	o.ids = append(o.ids, id)
}

// ladder keeps living schedulers by load, so that the least loaded is found, and one whose load changes by one is
// moved, at a cost that does not depend on how many there are. Who has had a load for longest comes first among equals.
type ladder struct {
	// Below all others; holds nobody.
	ground rung
}

// rung is the schedulers of one load, which are linked from the first to the last.
type rung struct {
	load         int
	below, above *rung
	first, last  *owned
}

// reset puts schedulers on an empty ladder.
func (l *ladder) reset(all []*owned) {
	l.ground = rung{load: -1}
	for _, o := range all {
		o.rung, o.prev, o.next = nil, nil, nil
		l.put(o, &l.ground)
	}
}

// put links a scheduler that is on no rung to the one of its load, which is looked for from near on.
func (l *ladder) put(o *owned, near *rung) {
	load := max(o.count, 0)
	r := near
	for r.load > load {
		r = r.below
	}
	for r.above != nil && r.above.load <= load {
		r = r.above
	}
	if r.load != load {
		n := &rung{load: load, below: r, above: r.above}
		if n.above != nil {
			n.above.below = n
		}
		r.above, r = n, n
	}
	o.rung, o.prev = r, r.last
	if r.last == nil {
		r.first = o
	} else {
		r.last.next = o
	}
	r.last = o
}

// moved follows a change of a scheduler's load.
func (l *ladder) moved(o *owned) {
	r := o.rung
	if r == nil || r.load == max(o.count, 0) {
		return
	}
	if o.prev == nil {
		r.first = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		r.last = o.prev
	} else {
		o.next.prev = o.prev
	}
	o.rung, o.prev, o.next = nil, nil, nil
	near := r
	if r.first == nil {
		near = r.below
		near.above = r.above
		if r.above != nil {
			r.above.below = near
		}
	}
	l.put(o, near)
}

// least returns the position of the least loaded scheduler that is not among those left out, -1 if all are.
func (l *ladder) least(leftOut func(at int) bool) int {
	for r := l.ground.above; r != nil; r = r.above {
		for o := r.first; o != nil; o = o.next {
			if !leftOut(o.at) {
				return o.at
			}
		}
	}
	return -1
}
