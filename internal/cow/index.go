package cow

import (
	"math"
	"math/bits"
)

// Index is a persistent hash table from a 32-bit hash to small numbers. It finds the slot of a record by the hash of
// its id; the caller compares the ids. It grows and shrinks by linear hashing, one bucket at a time, so that an
// insertion or deletion rearranges at most one bucket. The zero value is empty.
//
// With n buckets, the lowest bits of the hash name the bucket of an entry: as many bits as n needs, or one fewer if
// there is no such bucket yet. The buckets are an [Array].
type Index struct {
	buckets Array[bucket]
	n, used int
}

// bucket has entries of the form hash<<32 | slot+1, without gaps; zeros follow. Entries that do not fit into cells are
// in more, which is immutable (a change copies it). Few buckets have it, because the mean is about half of a bucket.
type bucket struct {
	cells [bucketCells]uint64
	more  *bucket
}

const (
	// So a bucket has 128 bytes, including its owner and more.
	bucketCells = 14
	// The mean number of entries per bucket above which a bucket is added, and below which one is removed.
	bucketMost  = 8
	bucketFewst = 4
)

// Len returns how many entries there are.
func (x *Index) Len() int { return x.used }

// bucketOf returns the number of the bucket for a hash. There must be at least one bucket.
func (x *Index) bucketOf(hash uint32) uint32 {
	mask := uint32(1)<<bits.Len32(uint32(x.n-1)) - 1
	if b := hash & mask; b < uint32(x.n) {
		return b
	}
	return hash & (mask >> 1)
}

// Probe is a search for the slots filed under one hash.
type Probe struct {
	bucket *bucket
	hash   uint32
	at     int
}

// Probe starts a search. The index must not change before the search ends.
func (x *Index) Probe(hash uint32) Probe {
	if x.n == 0 {
		return Probe{}
	}
	return Probe{bucket: x.buckets.At(x.bucketOf(hash)), hash: hash}
}

// Next returns the next slot filed under the hash, false when there are no more.
func (p *Probe) Next() (slot uint32, ok bool) {
	for p.bucket != nil {
		for p.at < bucketCells {
			c := p.bucket.cells[p.at]
			p.at++
			if uint32(c>>32) == p.hash && c != 0 {
				return uint32(c) - 1, true
			}
			if c == 0 {
				break
			}
		}
		p.bucket, p.at = p.bucket.more, 0
	}
	return 0, false
}

// First returns the slot that Next returns first, or the highest number if there is none.
func (x *Index) First(hash uint32) uint32 {
	p := x.Probe(hash)
	if slot, ok := p.Next(); ok {
		return slot
	}
	return math.MaxUint32
}

// Insert files the slot under the hash. It does not check whether the entry exists already.
func (x *Index) Insert(hash, slot uint32, o Owner) {
	if x.used >= bucketMost*x.n {
		x.split(o)
	}
	x.buckets.Own(x.bucketOf(hash), o).put(uint64(hash)<<32 | uint64(slot+1))
	x.used++
}

// split adds a bucket. Its entries come from the bucket whose number is the same without the highest bit.
func (x *Index) split(o Owner) {
	added := uint32(x.n)
	x.n++
	if added == 0 {
		return
	}
	into := x.buckets.Own(added, o)
	from := x.buckets.Own(lower(added), o)
	all := *from
	*from = bucket{}
	for c := range all.all {
		if x.bucketOf(uint32(c>>32)) == added {
			into.put(c)
		} else {
			from.put(c)
		}
	}
}

// lower returns a number without its highest bit.
func lower(b uint32) uint32 { return b &^ (1 << (bits.Len32(b) - 1)) }

// Delete removes the slot filed under the hash. It reports whether there was one.
func (x *Index) Delete(hash, slot uint32, o Owner) bool {
	p := x.Probe(hash)
	for {
		found, ok := p.Next()
		if !ok {
			return false
		}
		if found == slot {
			break
		}
	}
	x.buckets.Own(x.bucketOf(hash), o).remove(uint64(hash)<<32 | uint64(slot+1))
	x.used--
	if x.used < bucketFewst*x.n && (x.n > 1 || x.used == 0) {
		x.merge(o)
	}
	return true
}

// merge removes the last bucket and moves its entries to the bucket from which split took them.
func (x *Index) merge(o Owner) {
	x.n--
	last := uint32(x.n)
	if last > 0 {
		into := x.buckets.Own(lower(last), o)
		for c := range x.buckets.At(last).all {
			into.put(c)
		}
	}
	x.buckets.Drop(last, o)
}

// all yields the entries.
func (b *bucket) all(yield func(uint64) bool) {
	for ; b != nil; b = b.more {
		for _, c := range b.cells {
			if c == 0 || !yield(c) {
				return
			}
		}
	}
}

// put adds an entry after the others.
func (b *bucket) put(entry uint64) {
	for i, c := range b.cells {
		if c == 0 {
			b.cells[i] = entry
			return
		}
	}
	b.ownMore().put(entry)
}

// ownMore replaces the overflow of a bucket by a copy that no other bucket refers to, or by an empty one if there is
// none.
func (b *bucket) ownMore() *bucket {
	more := &bucket{}
	if b.more != nil {
		*more = *b.more
	}
	b.more = more
	return more
}

// remove takes an entry out, which must be there. The last entry takes its place.
func (b *bucket) remove(entry uint64) {
	if last := b.pop(); last != entry {
		b.replace(entry, last)
	}
}

// pop removes the last entry and returns it. It requires one.
func (b *bucket) pop() (last uint64) {
	if b.more != nil {
		more := b.ownMore()
		if last = more.pop(); more.cells[0] == 0 {
			b.more = nil
		}
		return last
	}
	for i := bucketCells - 1; ; i-- {
		if last = b.cells[i]; last != 0 {
			b.cells[i] = 0
			return last
		}
	}
}

func (b *bucket) replace(old, entry uint64) {
	for i, c := range b.cells {
		if c == old {
			b.cells[i] = entry
			return
		}
	}
	b.ownMore().replace(old, entry)
}
