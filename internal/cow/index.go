package cow

// Index is a persistent hash table from a 32-bit hash to small numbers, for finding a record's slot by its
// id: the caller compares the ids. Open addressing with linear probing, at most half full; growing it
// rebuilds the whole table, about 20 ns an entry, each time the number of entries doubles. The zero value
// is empty.
type Index struct {
	cells Array[[8]uint64] // hash<<32 | slot+1; 0 is free
	used  int
}

func (x *Index) mask() uint32 { return uint32(x.cells.Len()*8 - 1) }

func (x *Index) cell(i uint32) uint64 { return x.cells.At(int(i >> 3))[i&7] }

// Len returns how many entries there are.
func (x *Index) Len() int { return x.used }

// Find returns the slot filed under the hash that the caller recognises.
func (x *Index) Find(hash uint32, is func(slot uint32) bool) (slot uint32, ok bool) {
	_, slot, ok = x.find(hash, is)
	return slot, ok
}

func (x *Index) find(hash uint32, is func(uint32) bool) (at, slot uint32, ok bool) {
	if x.used == 0 {
		return 0, 0, false
	}
	for at = hash & x.mask(); ; at = (at + 1) & x.mask() {
		c := x.cell(at)
		if c == 0 {
			return at, 0, false
		}
		if slot = uint32(c) - 1; uint32(c>>32) == hash && is(slot) {
			return at, slot, true
		}
	}
}

// Insert files the slot under the hash. It does not look for an entry that is there already.
func (x *Index) Insert(hash, slot uint32, o Owner) {
	if 2*(x.used+1) > x.cells.Len()*8 {
		x.grow(o)
	}
	x.put(uint64(hash)<<32|uint64(slot+1), o)
	x.used++
}

func (x *Index) put(c uint64, o Owner) {
	at := uint32(c>>32) & x.mask()
	for x.cell(at) != 0 {
		at = (at + 1) & x.mask()
	}
	x.cells.Own(int(at>>3), o)[at&7] = c
}

func (x *Index) grow(o Owner) {
	old := x.cells
	x.cells = Array[[8]uint64]{}
	x.cells.Grow(max(1, old.Len()*2), o)
	for i := range old.Len() {
		for _, c := range old.At(i) {
			if c != 0 {
				x.put(c, o)
			}
		}
	}
}

// Delete removes the entry that the caller recognises and closes the gap, so that no probe is cut short.
// It reports whether there was one.
func (x *Index) Delete(hash uint32, is func(slot uint32) bool, o Owner) bool {
	gap, _, ok := x.find(hash, is)
	if !ok {
		return false
	}
	for at := (gap + 1) & x.mask(); x.cell(at) != 0; at = (at + 1) & x.mask() {
		c := x.cell(at)
		home := uint32(c>>32) & x.mask()
		if (at-home)&x.mask() >= (at-gap)&x.mask() { // its probe passes the gap
			x.cells.Own(int(gap>>3), o)[gap&7] = c
			gap = at
		}
	}
	x.cells.Own(int(gap>>3), o)[gap&7] = 0
	x.used--
	return true
}
