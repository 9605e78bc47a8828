// Package recent remembers the newest of many ids, each with a number.
package recent

import (
	"hash/maphash"
	"iter"

	"github.com/orbitsched/orbit/internal/cow"
)

// IDs remembers the newest ids and the number that each was added with. It is a ring with an index from id to position, in
// memory that copies share until one of them is written (package cow). The zero id is never remembered. The zero value is
// empty and ready.
type IDs[K ~[16]byte, N ~uint64] struct {
	ring  cow.Array[[chunk]entry[K, N]]
	index cow.Index
	// next is the position of the next id, size the number of positions in use.
	next, size uint32
}

type entry[K ~[16]byte, N ~uint64] struct {
	id K
	at N
}

const chunk = 16

// seed is another one in every process, so that a caller who chooses ids cannot choose collisions.
var seed = maphash.MakeSeed()

func hash[K ~[16]byte](id K) uint32 {
	h := maphash.Bytes(seed, id[:])
	return uint32(h ^ h>>32)
}

func (r *IDs[K, N]) cell(slot uint32) *entry[K, N] { return &r.ring.At(slot / chunk)[slot%chunk] }

// Find returns the number with which an id was added; 0: it is not remembered.
func (r *IDs[K, N]) Find(id K) N {
	if id == *new(K) {
		return 0
	}
	probe := r.index.Probe(hash(id))
	for {
		slot, ok := probe.Next()
		if !ok {
			return 0
		}
		if c := r.cell(slot); c.id == id {
			return c.at
		}
	}
}

// Add remembers an id. If limit ids are remembered, it replaces the oldest one. The limit must always be the same.
func (r *IDs[K, N]) Add(id K, at N, limit int, o cow.Owner) {
	if id == *new(K) {
		return
	}
	slot := r.next
	cell := &r.ring.Own(slot/chunk, o)[slot%chunk]
	if old := cell.id; old != *new(K) {
		r.index.Delete(hash(old), slot, o)
	}
	*cell = entry[K, N]{id, at}
	r.size = max(r.size, slot+1)
	r.index.Insert(hash(id), slot, o)
	r.next = (slot + 1) % uint32(limit)
}

// Len returns how many ids the index has.
func (r *IDs[K, N]) Len() int { return r.index.Len() }

// All yields the remembered ids and their numbers, oldest first.
func (r *IDs[K, N]) All() iter.Seq2[K, N] {
	return func(yield func(K, N) bool) {
		for i := range r.size {
			if c := r.cell((r.next + i) % r.size); !yield(c.id, c.at) {
				return
			}
		}
	}
}
