package orbit

import "slices"

// overlay holds the entries of a write-set by key: a short list at first, with a map once it is long.
type overlay[K comparable, E any] struct {
	keys    []K
	entries []E
	at      map[K]int // positions of the first len(at) keys, once there are many
}

// Beyond few entries a map is faster than comparing; beyond many the memory is not kept for the next use.
const (
	overlayFew  = 8
	overlayMany = 1 << 12
)

// find returns the entry, nil if there is none. The pointer holds until the next add.
func (o *overlay[K, E]) find(key K) *E {
	if len(o.keys) <= overlayFew {
		for i := range o.keys {
			if o.keys[i] == key {
				return &o.entries[i]
			}
		}
		return nil
	}
	if o.at == nil {
		o.at = make(map[K]int, 2*len(o.keys))
	}
	for i := len(o.at); i < len(o.keys); i++ {
		o.at[o.keys[i]] = i
	}
	if i, ok := o.at[key]; ok {
		return &o.entries[i]
	}
	return nil
}

// add appends a zero entry under a key that is not there yet. What lies beyond the end has been cleared.
func (o *overlay[K, E]) add(key K) *E {
	o.keys = append(o.keys, key)
	o.entries = slices.Grow(o.entries, 1)
	o.entries = o.entries[:len(o.entries)+1]
	return &o.entries[len(o.entries)-1]
}

// changed returns the keys of the entries of which that is said.
func (o *overlay[K, E]) changed(is func(*E) bool) (keys []K) {
	for i := range o.entries {
		if is(&o.entries[i]) {
			keys = append(keys, o.keys[i])
		}
	}
	return keys
}

// reset empties the overlay and lets go of what it referred to, and of its memory if it grew large.
func (o *overlay[K, E]) reset() {
	if len(o.keys) == 0 {
		return
	}
	if cap(o.keys) > overlayMany {
		*o = overlay[K, E]{}
		return
	}
	clear(o.entries)
	o.keys, o.entries, o.at = o.keys[:0], o.entries[:0], nil
}
