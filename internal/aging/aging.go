// Package aging raises the priority of waiting work by one for each period that it waits, within a band of priorities.
//
// A band has Band priorities and begins at a multiple of Band. Work never rises above the highest priority of its band.
// Of two pieces of work in a band, the one with the lower priority comes first if it has waited longer than the other
// by more than Every × (the difference of their priorities). All waits grow at the same pace, so the order of two
// pieces of work never changes, and a queue need not be sorted again as time passes.
package aging

import "math"

// Book is the rule of one engine, and the times at which the engine first saw work that has no time of submission.
type Book struct {
	// Every is the wait after which work rises by one priority, in nanoseconds; more than 0.
	Every int64
	// Band is the number of priorities in a band; at least 1, and Every × Band is at most 1<<61.
	Band int64

	// When work without a time of submission was first seen, by its id.
	seen map[string]first
	// The size of seen after the last removal of entries whose work no longer waits.
	kept int
}

// first says when work with an id was first seen. An id may be used again for other work; the order of submission tells
// the two apart.
type first struct {
	// The order of submission.
	order uint64
	// In nanoseconds since 1970.
	at int64
}

// See notes that work without a time of submission waits since now, unless this id and order of submission were seen
// before. From time to time it forgets the work that no longer waits, as waits reports.
func (b *Book) See(id string, order uint64, now int64, waits func(id string, order uint64) bool) {
	if f, ok := b.seen[id]; ok && f.order == order {
		return
	}
	if len(b.seen) > 2*b.kept+1024 {
		for id, f := range b.seen {
			if !waits(id, f.order) {
				delete(b.seen, id)
			}
		}
		b.kept = len(b.seen)
	}
	if b.seen == nil {
		b.seen = map[string]first{}
	}
	b.seen[id] = first{order, now}
}

// Since returns since when work waits, in nanoseconds since 1970: the time of submission, or, if that is not positive,
// when it was first seen, or now if it was not seen yet. It only reads.
func (b *Book) Since(id string, order uint64, submitted, now int64) int64 {
	if submitted > 0 {
		return submitted
	}
	if f, ok := b.seen[id]; ok && f.order == order {
		return f.at
	}
	return now
}

// Aged returns the priority to which work has risen by now if it has waited since then. Both times are in nanoseconds
// since 1970.
func (b *Book) Aged(priority int32, since, now int64) int32 {
	band, above := b.band(priority)
	top := (band+1)*b.Band - 1
	risen := max(0, now-since)/b.Every + band*b.Band + above
	return int32(min(risen, top, math.MaxInt32))
}

// Turn returns the number of the band of a priority, and the turn within the band of work that has waited since then.
// The highest band comes first, and within a band the lowest turn.
func (b *Book) Turn(priority int32, since int64) (band int32, turn uint64) {
	k, above := b.band(priority)
	since = min(max(since, 0), math.MaxInt64-above*b.Every)
	return int32(k), uint64(since-above*b.Every) ^ 1<<63 // flipping the sign bit makes it unsigned and keeps the order
}

// band returns the number of the band of a priority, and how far the priority is above the lowest one of the band.
func (b *Book) band(priority int32) (band, above int64) {
	p := int64(priority)
	above = (p%b.Band + b.Band) % b.Band
	return (p - above) / b.Band, above
}
