package claim

import "time"

// reservations holds the slots that have been handed to a claim. A listing that shows a reserved slot as idle does not
// make it ready, because the listing may not include the claim.
//
// A reservation begins when its slot is popped. It lasts until the claim has an outcome and for a fixed term after
// that, because a listing can lag behind the claim by as long as that. It ends early when a listing that includes the
// outcome shows the slot: then the slot is idle again. Every reservation ends, because every claim ends at the latest
// with the pool.
type reservations struct {
	// term is how long a reservation lasts after the outcome; negative: slots are never reserved.
	term time.Duration
	held map[key]*reservation
	// ending are the reservations with an outcome, in order of their end, which is the order of the outcomes.
	ending []*reservation
}

// reservation is the reservation of one slot.
type reservation struct {
	key key
	// until is the end; zero: the claim is in flight.
	until time.Time
	// version is the version of the store that includes the outcome; 0: unknown.
	version uint64
	// shown says that a listing has shown the slot as idle while it was reserved, seen is the newest version of such
	// listings.
	seen  uint64
	shown bool
	ended bool
}

// reserve begins a reservation.
func (r *reservations) reserve(k key) *reservation {
	v := &reservation{key: k, ended: r.term < 0}
	if v.ended {
		return v
	}
	r.held[k] = v
	return v
}

// blocks reports whether a slot that a listing shows is reserved. It ends the reservation if the listing includes the
// outcome, and otherwise remembers that the slot was shown.
func (r *reservations) blocks(k key, version uint64) bool {
	v := r.held[k]
	if v == nil {
		return false
	}
	if !v.until.IsZero() && v.version != 0 && version >= v.version {
		r.release(v)
		return false
	}
	v.shown, v.seen = true, max(v.seen, version)
	return true
}

// hide forgets which slots were shown, because a full listing has come that replaces all earlier ones.
func (r *reservations) hide() {
	for _, v := range r.held {
		v.shown = false
	}
}

// finish sets the end of a reservation whose claim has an outcome. If a listing that includes the outcome has shown the
// slot already, it ends the reservation at once and reports true.
func (r *reservations) finish(v *reservation, version uint64, now time.Time) bool {
	if v.ended {
		return false
	}
	if version != 0 && v.shown && v.seen >= version {
		r.release(v)
		return true
	}
	v.version, v.until = version, now.Add(r.term)
	r.ending = append(r.ending, v)
	return false
}

// release ends a reservation now.
func (r *reservations) release(v *reservation) {
	if !v.ended {
		v.ended = true
		delete(r.held, v.key)
	}
}

// expire ends the reservations whose time is over. It reports whether a listing has shown one of their slots.
func (r *reservations) expire(now time.Time) (shown bool) {
	for len(r.ending) > 0 && (r.ending[0].ended || !now.Before(r.ending[0].until)) {
		v := r.ending[0]
		r.ending[0] = nil
		r.ending = r.ending[1:]
		shown = shown || v.shown && !v.ended
		r.release(v)
	}
	return shown
}

// next returns when the next reservation ends, zero if none has an end yet. expire must have run before.
func (r *reservations) next() time.Time {
	if len(r.ending) == 0 {
		return time.Time{}
	}
	return r.ending[0].until
}
