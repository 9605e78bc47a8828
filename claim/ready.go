package claim

// ready is the queue of idle slots that may be claimed, oldest first. Each name is in it at most once: a slot
// that comes under a known name with another uid is another slot, and goes to the end.
//
// Slots that leave from the middle leave their position behind, which pop skips; positions are cleared away
// when most of them are void. The zero value is empty.
type ready struct {
	slots map[string]waiting
	// Positions in order; one is void unless the slot of that name has its number.
	order []position
	// Positions before this one have been popped.
	head int
	// Numbers positions, and full listings.
	serial, sweep uint64
}

type waiting struct {
	slot Slot
	seq  uint64
	// The last full listing that showed it.
	seen uint64
}

type position struct {
	name string
	seq  uint64
}

// len returns how many slots are ready.
func (r *ready) len() int { return len(r.slots) }

// admit adds a slot to the end, and reports whether it was new. One that is there already keeps its place; what
// the source says of it is renewed.
func (r *ready) admit(s Slot) bool {
	known, ok := r.slots[s.Name]
	if ok && known.slot.UID == s.UID {
		r.slots[s.Name] = waiting{s, known.seq, r.sweep}
		return false
	}
	if r.slots == nil {
		r.slots = map[string]waiting{}
	}
	r.serial++
	r.slots[s.Name] = waiting{s, r.serial, r.sweep}
	r.order = append(r.order, position{s.Name, r.serial})
	r.tidy()
	return true
}

// drop removes the slot of a name, if there is one.
func (r *ready) drop(name string) {
	delete(r.slots, name)
	r.tidy()
}

// tidy clears void positions away when they are most of all.
func (r *ready) tidy() {
	if len(r.order)-r.head > 2*len(r.slots)+64 {
		r.compact()
	}
}

// begin starts a full listing: what is not admitted again until end is gone.
func (r *ready) begin() { r.sweep++ }

// end removes the slots that the full listing did not show.
func (r *ready) end() {
	for name := range r.slots {
		if r.slots[name].seen != r.sweep {
			delete(r.slots, name)
		}
	}
	r.compact()
}

// pop takes out the slot that has been ready longest. It requires one.
func (r *ready) pop() Slot {
	for {
		at := r.order[r.head]
		r.head++
		if w, ok := r.slots[at.name]; ok && w.seq == at.seq {
			delete(r.slots, at.name)
			r.trim()
			return w.slot
		}
	}
}

// trim gives back what has been popped, now and then.
func (r *ready) trim() {
	if r.head > 64 && r.head > len(r.order)/2 {
		r.compact()
	}
}

// compact clears void positions away.
func (r *ready) compact() {
	kept := r.order[:0]
	for _, at := range r.order[r.head:] {
		if w, ok := r.slots[at.name]; ok && w.seq == at.seq {
			kept = append(kept, at)
		}
	}
	clear(r.order[len(kept):])
	r.order, r.head = kept, 0
}
