package cow

import (
	"math"
	"slices"
)

// Index is a persistent hash table from a 32-bit hash to small numbers, for finding a record's slot by its
// id: the caller compares the ids. Open addressing with linear probing, at most three quarters full; growing it
// rebuilds the whole table, about 20 ns an entry, each time the number of entries doubles. The zero value
// is empty.
type Index struct {
	blocks []*block
	owner  Owner // of the blocks slice
	mask   uint32
	used   int
}

// block is what is copied when an entry changes that a frozen copy still sees.
type block struct {
	owner Owner
	cells [blockCells]uint64 // hash<<32 | slot+1; 0 is free
}

const (
	blockBits  = 6
	blockCells = 1 << blockBits
)

func (x *Index) cell(i uint32) uint64 { return x.blocks[i>>blockBits].cells[i&(blockCells-1)] }

// own returns a cell for writing.
func (x *Index) own(i uint32, o Owner) *uint64 {
	if x.owner != o {
		x.blocks, x.owner = slices.Clone(x.blocks), o
	}
	b := x.blocks[i>>blockBits]
	if b.owner != o {
		b = &block{owner: o, cells: b.cells}
		x.blocks[i>>blockBits] = b
	}
	return &b.cells[i&(blockCells-1)]
}

// Len returns how many entries there are.
func (x *Index) Len() int { return x.used }

// Probe is a search under one hash.
type Probe struct {
	index    *Index
	hash, at uint32
}

// Probe starts a search. It requires that the index stands still meanwhile.
func (x *Index) Probe(hash uint32) Probe { return Probe{x, hash, hash - 1} }

// Next returns the next slot filed under the hash, false when there are no more.
func (p *Probe) Next() (slot uint32, ok bool) {
	x := p.index
	if x.used == 0 {
		return 0, false
	}
	for at := p.at + 1; ; at++ {
		c := x.blocks[at&x.mask>>blockBits].cells[at&(blockCells-1)]
		if uint32(c>>32) == p.hash && c != 0 {
			p.at = at
			return uint32(c) - 1, true
		}
		if c == 0 {
			return 0, false
		}
	}
}

// First returns the slot that is filed in the first cell for the hash, or the highest
// number: a guess at what Next finds.
func (x *Index) First(hash uint32) uint32 {
	if x.used == 0 {
		return math.MaxUint32
	}
	return uint32(x.cell(hash&x.mask)) - 1
}

// Insert files the slot under the hash. It does not look for an entry that is there already.
func (x *Index) Insert(hash, slot uint32, o Owner) {
	if 4*(x.used+1) > 3*len(x.blocks)*blockCells {
		x.grow(o)
	}
	x.put(uint64(hash)<<32|uint64(slot+1), o)
	x.used++
}

func (x *Index) put(c uint64, o Owner) {
	at := uint32(c>>32) & x.mask
	for x.cell(at) != 0 {
		at = (at + 1) & x.mask
	}
	*x.own(at, o) = c
}

func (x *Index) grow(o Owner) {
	old := x.blocks
	x.blocks, x.owner = make([]*block, max(1, 2*len(old))), o
	for i := range x.blocks {
		x.blocks[i] = &block{owner: o}
	}
	x.mask = uint32(len(x.blocks)*blockCells - 1)
	for _, b := range old {
		for _, c := range b.cells {
			if c != 0 {
				x.put(c, o)
			}
		}
	}
}

// Delete removes the slot filed under the hash and closes the gap, so that no probe is cut short. It
// reports whether there was one.
func (x *Index) Delete(hash, slot uint32, o Owner) bool {
	p := x.Probe(hash)
	for {
		found, ok := p.Next()
		if !ok {
			return false
		}
		if found == slot {
			x.close(p.at&x.mask, o)
			x.used--
			return true
		}
	}
}

// close empties a cell and moves up the entries behind it whose probes pass it.
func (x *Index) close(gap uint32, o Owner) {
	for at := (gap + 1) & x.mask; x.cell(at) != 0; at = (at + 1) & x.mask {
		c := x.cell(at)
		home := uint32(c>>32) & x.mask
		if (at-home)&x.mask >= (at-gap)&x.mask {
			*x.own(gap, o) = c
			gap = at
		}
	}
	*x.own(gap, o) = 0
}
