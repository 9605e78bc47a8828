// Package aging lets work that waits rise by one priority for so much time, within a band of priorities.
//
// A band is Band priorities from a multiple of Band on, so no work rises above the highest of its own. Within a band the one
// comes first that is ahead by age: the waits of two grow alike, so which of them that is never changes, and a queue need not
// look at what it has when time passes. Whoever came Every × (the difference of their priorities) earlier is ahead.
package aging

import "math"

// Book is the rule of one engine, and what it knows of when its work began to wait.
type Book struct {
	// Every is how long a wait is for each priority that it rises by, in ns; more than 0.
	Every int64
	// Band is how many priorities a band has; at least 1, and Every × Band is at most 1<<61.
	Band int64

	// When work was first seen that does not say since when it waits, by its id.
	seen map[string]first
	// How many there were after the last cleaning.
	kept int
}

// first is when the bearer of an id with this order of submission was first seen.
type first struct {
	order uint64
	at    int64
}

// See notes that work which does not say since when it waits does so now, unless it was seen before. It is one with this id that has
// this order among all work. Waits reports whether such work waits still: what does not is forgotten now and then.
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

// Since returns since when work waits, in ns since 1970: since it was submitted, or if that is 0 since it was first seen, which
// may be now. It only reads.
func (b *Book) Since(id string, order uint64, submitted, now int64) int64 {
	if submitted > 0 {
		return submitted
	}
	if f, ok := b.seen[id]; ok && f.order == order {
		return f.at
	}
	return now
}

// Aged returns the priority to which work has risen by now.
func (b *Book) Aged(priority int32, since, now int64) int32 {
	band, above := b.band(priority)
	top := (band+1)*b.Band - 1
	risen := max(0, now-since)/b.Every + band*b.Band + above
	return int32(min(risen, top, math.MaxInt32))
}

// Turn returns the band of a priority, of which the highest comes first, and the turn within the band of what waits since then:
// the lowest comes first.
func (b *Book) Turn(priority int32, since int64) (band int32, turn uint64) {
	k, above := b.band(priority)
	since = min(max(since, 0), math.MaxInt64-above*b.Every)
	return int32(k), uint64(since-above*b.Every) ^ 1<<63 // as a number without a sign it keeps its order
}

// band returns the band of a priority, and how far it is above the lowest of the band.
func (b *Book) band(priority int32) (band, above int64) {
	p := int64(priority)
	above = (p%b.Band + b.Band) % b.Band
	return (p - above) / b.Band, above
}
