package claim

import "time"

// reservations are the slots that have been handed to a claim. A listing that still shows one does not make it
// ready: the listing may not have seen the claim.
//
// A reservation begins when its slot is popped, lasts as long as the claim is in flight, and a term longer:
// listings lag behind the claim, not behind the pop. It ends early when a listing that has seen the outcome
// shows the slot: then it is idle again, honestly. Every reservation ends, for every claim has an end, or
// the pool does.
type reservations struct {
	// How long after the outcome; negative: nothing is ever reserved.
	term time.Duration
	held map[key]*reservation
	// Those with an end, in order of it: the term is the same for all.
	ending []*reservation
}

type reservation struct {
	key key
	// Zero: in flight.
	until time.Time
	// The version of the store that has the outcome; 0: not known.
	version uint64
	// The newest version that showed the slot idle while it was reserved, and whether any did.
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

// blocks reports whether a slot that a listing shows is to be kept out. It takes note of it.
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

// hide takes note that a full listing has begun: what it does not show is not idle.
func (r *reservations) hide() {
	for _, v := range r.held {
		v.shown = false
	}
}

// finish sets the end of a reservation whose claim has an outcome. It reports whether it has ended at once,
// because a listing that has seen the outcome shows the slot.
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

// expire ends what has reached its end. It reports whether a listing has shown one of those meanwhile.
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

// next returns when the next reservation ends, zero if none is going to. It requires that expire has run.
func (r *reservations) next() time.Time {
	if len(r.ending) == 0 {
		return time.Time{}
	}
	return r.ending[0].until
}
