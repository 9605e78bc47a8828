// Package table keeps records by number, persistently: copies of a table share structure, and a writer copies only the
// chunks that it does not own ([cow.Owner]). A number is a slot. It belongs to one record until the record is dropped,
// and is then given to another, so that slots stay dense and other tables can be indexed by them. Records are found by
// the hash of their id; the caller compares the ids.
package table

import "github.com/orbitsched/orbit/internal/cow"

// Chunk is what is copied at once when a record changes that an older copy of the table still sees: few records if they
// are large.
type Chunk[R any] interface{ [2]R | [4]R }

// Table holds records of type R in chunks of type C. The zero value is empty.
type Table[R any, C Chunk[R]] struct {
	chunks cow.Array[C]
	index  cow.Index
	// What a writer takes slots from next.
	slots Slots
}

// Slots is a source of unused slots: those that were given back, the last one first, and then new ones. It is a value:
// a writer that has not decided yet takes slots from a copy of its own.
type Slots struct {
	free *freed
	// Slots handed out so far.
	bound uint32
}

// freed is a slot that was given back. It is immutable, so that copies of a table share the list.
type freed struct {
	slot uint32
	next *freed
}

// Next returns an unused slot, which is used from then on.
func (s *Slots) Next() (slot uint32) {
	if s.free == nil {
		s.bound++
		return s.bound - 1
	}
	slot, s.free = s.free.slot, s.free.next
	return slot
}

// Bound returns an upper bound, exclusive, of all slots handed out.
func (s *Slots) Bound() uint32 { return s.bound }

// Free returns the slots that were given back, in the order in which they are handed out again.
func (s *Slots) Free() (slots []uint32) {
	for f := s.free; f != nil; f = f.next {
		slots = append(slots, f.slot)
	}
	return slots
}

// Slots returns where slots come from, as a value to take some from. Grow puts it back.
func (t *Table[R, C]) Slots() Slots { return t.slots }

// Grow makes the table reach to all slots that s has handed out, and go on from there.
func (t *Table[R, C]) Grow(s Slots, o cow.Owner) {
	var chunk C
	size := uint32(len(chunk))
	t.slots = s
	t.chunks.Grow(int((s.bound+size-1)/size), o)
}

// Drop gives a slot back. The record in it is the caller's to clear.
func (t *Table[R, C]) Drop(slot uint32) { t.slots.free = &freed{slot, t.slots.free} }

// Bound returns an upper bound, exclusive, of all slots in use.
func (t *Table[R, C]) Bound() uint32 { return t.slots.bound }

// Len returns how many records are filed under a hash.
func (t *Table[R, C]) Len() int { return t.index.Len() }

// At returns the record in a slot for reading, the zero record if it is not in use. It requires slot < Bound.
func (t *Table[R, C]) At(slot uint32) *R {
	var chunk C
	size := uint32(len(chunk))
	c := t.chunks.At(int(slot / size))
	return &(*c)[slot%size]
}

// Own returns the record in a slot for writing by o. The pointer is good until the table is copied.
func (t *Table[R, C]) Own(slot uint32, o cow.Owner) *R {
	var chunk C
	size := uint32(len(chunk))
	c := t.chunks.Own(int(slot/size), o)
	return &(*c)[slot%size]
}

// Probe starts a search for a record under the hash of its id.
func (t *Table[R, C]) Probe(hash uint32) cow.Probe { return t.index.Probe(hash) }

// First returns a guess at the slot that Probe finds first, or a number that is no slot.
func (t *Table[R, C]) First(hash uint32) uint32 { return t.index.First(hash) }

// File makes the record in a slot found under a hash.
func (t *Table[R, C]) File(hash, slot uint32, o cow.Owner) { t.index.Insert(hash, slot, o) }

// Unfile undoes File.
func (t *Table[R, C]) Unfile(hash, slot uint32, o cow.Owner) { t.index.Delete(hash, slot, o) }

// Adopt replaces all records by those of another table, and keeps which of them are found and which slots are free. The
// records in slots that the other one does not reach are zero.
func (t *Table[R, C]) Adopt(other *Table[R, C], o cow.Owner) {
	t.chunks = other.chunks
	t.Grow(t.slots, o)
}
