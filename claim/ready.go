package claim

import (
	"cmp"
	"maps"
	"slices"
)

// ready are the idle slots that may be claimed, oldest first. Each name is there at most once: a slot that
// comes under a known name with another uid is another slot, and goes to the end. So does one whose labels have
// changed: lines that have passed it by look at it again.
//
// Slots that leave, mostly from the front, leave their position behind; positions are cleared away when most of
// them are void.
type ready struct {
	slots map[string]idle
	// Positions in order; one is void unless the slot of that name has its number.
	order []position
	// Numbers positions, and full listings.
	serial, listing uint64
}

func newReady() ready { return ready{slots: map[string]idle{}} }

type idle struct {
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
	if ok && known.slot.UID == s.UID && maps.Equal(known.slot.Labels, s.Labels) {
		r.slots[s.Name] = idle{s, known.seq, r.listing}
		return false
	}
	r.serial++
	r.slots[s.Name] = idle{s, r.serial, r.listing}
	r.order = append(r.order, position{s.Name, r.serial})
	r.tidy()
	return true
}

// drop removes the slot of a name, if there is one.
func (r *ready) drop(name string) {
	delete(r.slots, name)
	r.tidy()
}

// begin starts a full listing: what is not admitted again until end is gone.
func (r *ready) begin() { r.listing++ }

// end removes the slots that the full listing did not show.
func (r *ready) end() {
	maps.DeleteFunc(r.slots, func(_ string, w idle) bool { return w.seen != r.listing })
	r.tidy()
}

// matches reports whether there is a slot for a line, and moves the line on to the first one.
func (r *ready) matches(l *line) bool {
	for _, p := range r.order[r.at(l):] {
		l.from = p.seq
		if w, ok := r.slots[p.name]; ok && w.seq == p.seq && l.want.matches(w.slot.Labels) {
			return true
		}
	}
	l.from = r.serial + 1
	return false
}

// at returns the index of the first position that a line has not passed by.
func (r *ready) at(l *line) int {
	i, _ := slices.BinarySearchFunc(r.order, l.from, func(p position, seq uint64) int { return cmp.Compare(p.seq, seq) })
	return i
}

// pop takes out the slot that has been ready longest of those for a line. It requires that one
// matches.
func (r *ready) pop(l *line) Slot {
	slot := r.slots[r.order[r.at(l)].name].slot
	r.drop(slot.Name)
	return slot
}

// tidy clears void positions away when they are most of all.
func (r *ready) tidy() {
	if len(r.order) > 2*len(r.slots)+64 {
		r.order = slices.DeleteFunc(r.order, func(p position) bool { return r.slots[p.name].seq != p.seq })
	}
}
