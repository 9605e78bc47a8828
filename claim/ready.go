package claim

import (
	"cmp"
	"maps"
	"slices"
)

// ready holds the idle slots that may be claimed, in order of arrival, each name at most once. A slot under a known
// name with another uid is a new slot and goes to the end. A slot whose labels have changed goes to the end as well,
// because a line that did not match it before, and whose from is behind it, may match it now.
//
// When a slot leaves, mostly from the front, its position becomes void. Void positions are removed when they are the
// majority.
type ready struct {
	slots map[string]idle
	// order has the positions, in the order of seq. A position is void unless the slot with its name has the same seq.
	order []position
	// serial is the number of the newest position, listing the number of the newest full listing.
	serial, listing uint64
}

func newReady() ready { return ready{slots: map[string]idle{}} }

// idle is a slot that may be claimed, with the seq of its position.
type idle struct {
	slot Slot
	seq  uint64
	// seen is the number of the last full listing that showed the slot.
	seen uint64
}

// position is the place of a slot in the order of arrival.
type position struct {
	name string
	seq  uint64
}

// len returns how many slots are ready.
func (r *ready) len() int { return len(r.slots) }

// admit adds a slot to the end, and reports whether it was new. A known slot keeps its place, and its Object and
// Devices are replaced by the newer ones.
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

// drop removes the slot with a name, if there is one.
func (r *ready) drop(name string) {
	delete(r.slots, name)
	r.tidy()
}

// begin starts a full listing. The caller then admits each slot of the listing and calls end, which removes all others.
func (r *ready) begin() { r.listing++ }

// end removes the slots that the full listing did not show.
func (r *ready) end() {
	maps.DeleteFunc(r.slots, func(_ string, w idle) bool { return w.seen != r.listing })
	r.tidy()
}

// matches reports whether a ready slot matches a line. It sets the line's from to the position of the first slot that
// matches, or behind the last position if none does.
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

// at returns the index of the first position that is not before the line's from.
func (r *ready) at(l *line) int {
	i, _ := slices.BinarySearchFunc(r.order, l.from, func(p position, seq uint64) int { return cmp.Compare(p.seq, seq) })
	return i
}

// pop removes and returns the first slot that matches a line. The last call of matches for the line must have found
// one.
func (r *ready) pop(l *line) Slot {
	slot := r.slots[r.order[r.at(l)].name].slot
	r.drop(slot.Name)
	return slot
}

// tidy removes the void positions when they are the majority.
func (r *ready) tidy() {
	if len(r.order) > 2*len(r.slots)+64 {
		r.order = slices.DeleteFunc(r.order, func(p position) bool { return r.slots[p.name].seq != p.seq })
	}
}
