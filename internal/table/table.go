// Package table keeps records in numbered slots, persistently: copies of a table share structure, and a writer copies
// only the chunks that it does not own ([cow.Owner]). A slot belongs to one record until the record is dropped, and is
// then given to another record. The lowest vacant slot comes first: so slots stay dense, other tables can be indexed by
// them, and empty chunks give their memory back. Records are found by the hash of their id; the caller compares the
// ids.
package table

import (
	"cmp"
	"math/bits"

	"github.com/orbitsched/orbit/internal/cow"
)

// Chunk is the unit of copying: a write copies the whole chunk of the record if an older copy of the table still refers
// to it. Use few records per chunk if they are large.
type Chunk[R any] interface{ [2]R | [4]R }

// Table holds records of type R in chunks of type C. The zero value is empty.
type Table[R any, C Chunk[R]] struct {
	chunks cow.Array[chunk[R, C]]
	index  cow.Index
	bound  uint32
}

type chunk[R any, C Chunk[R]] struct {
	// One bit for each record that is in use.
	used    uint32
	records C
}

// Bound returns an upper bound, exclusive, of all slots that were ever in use. It never falls, so that tables that are
// indexed by slots need not shrink.
func (t *Table[R, C]) Bound() uint32 { return t.bound }

// Len returns the number of records that are filed under a hash.
func (t *Table[R, C]) Len() int { return t.index.Len() }

// Vacant returns the lowest slot, from a given one on, that is not in use. A writer that reserves several slots before
// it takes them asks again from the next slot on, and takes all of them in the end.
func (t *Table[R, C]) Vacant(from uint32) uint32 {
	var records C
	size := uint32(len(records))
	for {
		i := t.chunks.NotFull(from / size)
		from = max(from, i*size)
		c := t.chunks.At(i)
		if c == nil {
			return from
		}
		if slot := i*size + uint32(bits.TrailingZeros32(^c.used>>(from%size)<<(from%size))); slot < (i+1)*size {
			return slot
		}
		from = (i + 1) * size
	}
}

// Take puts a vacant slot in use and returns its record, which is zero, for writing by o.
func (t *Table[R, C]) Take(slot uint32, o cow.Owner) *R {
	var records C
	size := uint32(len(records))
	c := t.chunks.Own(slot/size, o)
	if c.used |= 1 << (slot % size); c.used == 1<<size-1 {
		t.chunks.MarkFull(slot/size, true, o)
	}
	t.bound = max(t.bound, slot+1)
	return &c.records[slot%size]
}

// Drop clears the record in a slot that is in use, and makes the slot vacant.
func (t *Table[R, C]) Drop(slot uint32, o cow.Owner) {
	var none R
	var records C
	size := uint32(len(records))
	c := t.chunks.Own(slot/size, o)
	if c.used == 1<<size-1 {
		t.chunks.MarkFull(slot/size, false, o)
	}
	if c.used &^= 1 << (slot % size); c.used == 0 {
		t.chunks.Drop(slot/size, o)
	} else {
		c.records[slot%size] = none
	}
}

// At returns the record in a slot for reading; a zero record if the slot is not in use.
func (t *Table[R, C]) At(slot uint32) *R {
	var records C
	size := uint32(len(records))
	if c := t.chunks.At(slot / size); c != nil {
		return &c.records[slot%size]
	}
	return new(R)
}

// Own returns the record in a slot that is in use, for writing by o. The pointer is valid until the table is copied.
func (t *Table[R, C]) Own(slot uint32, o cow.Owner) *R {
	var records C
	size := uint32(len(records))
	return &t.chunks.Own(slot/size, o).records[slot%size]
}

// All yields the records in use, in the order of their slots.
func (t *Table[R, C]) All(yield func(uint32, *R) bool) {
	var records C
	size := uint32(len(records))
	t.chunks.All(func(i uint32, c *chunk[R, C]) bool {
		for used := c.used; used != 0; used &= used - 1 {
			at := uint32(bits.TrailingZeros32(used))
			if !yield(i*size+at, &c.records[at]) {
				return false
			}
		}
		return true
	})
}

// Diff yields the slots whose records may differ from those in an older table, in the order of slots, with both
// records; a record is zero where the slot was or is not in use. It costs about as much as was written since one table
// was copied from the other.
func (t *Table[R, C]) Diff(older *Table[R, C], yield func(slot uint32, was, now *R) bool) {
	none := new(chunk[R, C])
	t.chunks.Diff(&older.chunks, func(i uint32, was, now *chunk[R, C]) bool {
		was, now = cmp.Or(was, none), cmp.Or(now, none)
		for k := range len(now.records) {
			if (was.used|now.used)>>k&1 == 1 && !yield(i*uint32(len(now.records))+uint32(k), &was.records[k], &now.records[k]) {
				return false
			}
		}
		return true
	})
}

// Probe starts a search for a record under the hash of its id.
func (t *Table[R, C]) Probe(hash uint32) cow.Probe { return t.index.Probe(hash) }

// First returns the slot that Probe finds first; the highest uint32, which is no slot, if there is none.
func (t *Table[R, C]) First(hash uint32) uint32 { return t.index.First(hash) }

// File files the record in a slot under a hash, so that Probe finds it.
func (t *Table[R, C]) File(hash, slot uint32, o cow.Owner) { t.index.Insert(hash, slot, o) }

// Unfile undoes File.
func (t *Table[R, C]) Unfile(hash, slot uint32, o cow.Owner) { t.index.Delete(hash, slot, o) }

// Adopt replaces all records, and the set of slots in use, by those of another table. It leaves unchanged which records
// Probe finds. The bound becomes the higher of the two.
func (t *Table[R, C]) Adopt(other *Table[R, C]) {
	t.chunks, t.bound = other.chunks, max(t.bound, other.bound)
}
