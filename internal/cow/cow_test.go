package cow

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// arrayFork is an array beside the map that it must equal. A frozen one is never written again.
type arrayFork struct {
	table Array[[2]int]
	owner Owner
	want  map[uint32]*arrayElement
	// Dropped last.
	dropped uint32
}

type arrayElement struct {
	value int
	full  bool
}

func (f *arrayFork) copy(o Owner) *arrayFork {
	c := &arrayFork{table: f.table, owner: o, want: map[uint32]*arrayElement{}}
	for i, e := range f.want {
		own := *e
		c.want[i] = &own
	}
	return c
}

func (f *arrayFork) check(t *rapid.T) {
	var found []uint32
	f.table.All(func(i uint32, e *[2]int) bool {
		found = append(found, i)
		if want := f.want[i]; want == nil || want.value != e[1] || f.table.At(i) != e {
			t.Fatalf("element %d is %v, want %+v", i, *e, want)
		}
		return true
	})
	if !slices.IsSorted(found) || len(found) != len(f.want) {
		t.Fatalf("yields %v of %d elements", found, len(f.want))
	}
	if len(found) == 0 && (f.table.root != nil || f.table.height != 0) {
		t.Fatalf("an empty array keeps a tree of height %d", f.table.height)
	}
	for _, i := range []uint32{0, 5, 63, 64, 4095, 4096, 262143, 262144, math.MaxUint32, f.dropped} {
		if f.want[i] == nil && f.table.At(i) != nil {
			t.Fatalf("there is an element %d", i)
		}
		want := i
		for f.want[want] != nil && f.want[want].full {
			want++
		}
		if got := f.table.NotFull(i); got != want {
			t.Fatalf("the first from %d on that is not full is %d, want %d", i, got, want)
		}
	}
}

// checkDiff compares with what was another fork: all that has another value is named, with both values, and what the two
// share is not.
func (f *arrayFork) checkDiff(t *rapid.T, was *arrayFork) {
	next, named := uint32(0), map[uint32]bool{}
	f.table.Diff(&was.table, func(i uint32, before, after *[2]int) bool {
		if i < next || before == after || before != was.table.At(i) || after != f.table.At(i) {
			t.Fatalf("element %d, after %d, is named as %v and %v", i, next, before, after)
		}
		next, named[i] = i+1, true
		return true
	})
	for _, some := range []*arrayFork{f, was} {
		for i := range some.want {
			if !named[i] && f.table.At(i) != was.table.At(i) {
				t.Fatalf("element %d is not named", i)
			}
		}
	}
	f.table.Diff(&was.table, func(i uint32, _, _ *[2]int) bool {
		if !named[i] {
			t.Fatalf("element %d is named now", i)
		}
		return false
	})
}

// someIndex draws indices of low and of high trees, often those that are there.
func (f *arrayFork) someIndex(t *rapid.T) uint32 {
	return rapid.OneOf(rapid.Uint32Range(0, 140), rapid.Uint32Range(4090, 4100), rapid.Uint32Range(262_140, 262_150),
		rapid.Just(uint32(1<<30))).Draw(t, "i")
}

// TestArrayAgainstMap: an array is a map from indices to elements, in order; it keeps nothing of what was dropped, and
// finds what is not full. A copy that was frozen, and every fork that goes on from it, never sees what others write.
func TestArrayAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forks := []*arrayFork{{owner: NewOwner(), want: map[uint32]*arrayElement{}}}
		var frozen []*arrayFork
		one := func(t *rapid.T) *arrayFork { return rapid.SampledFrom(forks).Draw(t, "fork") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				all := slices.Concat(forks, frozen)
				for i, f := range all {
					f.check(t)
					f.checkDiff(t, all[(i+1)%len(all)])
				}
			},
			"write": func(t *rapid.T) { one(t).write(t, 1) },
			"fill":  func(t *rapid.T) { one(t).write(t, 64) },
			"full":  func(t *rapid.T) { one(t).mark(t) },
			"drop": func(t *rapid.T) {
				f := one(t)
				i := f.someIndex(t)
				f.table.Drop(i, f.owner)
				delete(f.want, i)
				f.dropped = i
			},
			"page": func(t *rapid.T) { // a node that is full, and then perhaps a level above it
				f := one(t)
				for i := range uint32(fan) {
					f.table.Own(i, f.owner)
					f.table.MarkFull(i, true, f.owner)
					f.want[i] = &arrayElement{value: f.table.At(i)[1], full: true}
				}
			},
			"empty": func(t *rapid.T) {
				f := one(t)
				for i := range f.want {
					f.table.Drop(i, f.owner)
				}
				clear(f.want)
			},
			"freeze": func(t *rapid.T) {
				f := one(t)
				frozen = append(frozen, f.copy(0))
				f.owner = NewOwner()
			},
			"fork": func(t *rapid.T) { // two writers go on from one table
				f := one(t)
				if len(forks) < 4 {
					forks = append(forks, f.copy(NewOwner()))
				}
				f.owner = NewOwner()
			},
		})
	})
}

// write writes n elements in a row.
func (f *arrayFork) write(t *rapid.T, n uint32) {
	first, v := f.someIndex(t), rapid.Int().Draw(t, "v")
	for i := first; i < first+n; i++ {
		f.table.Own(i, f.owner)[1] = v
		if f.want[i] == nil {
			f.want[i] = &arrayElement{}
		}
		f.want[i].value = v
	}
}

// mark marks an element, and what follows it without a gap.
func (f *arrayFork) mark(t *rapid.T) {
	full := rapid.Bool().Draw(t, "full")
	for i := f.someIndex(t); f.want[i] != nil; i++ {
		f.table.MarkFull(i, full, f.owner)
		f.want[i].full = full
	}
}

// indexFork is an index beside a set of (hash, slot).
type indexFork struct {
	index Index
	owner Owner
	want  map[[2]uint32]bool
}

// check looks up everything that is there, hash by hash, and something that is not.
func (f *indexFork) check(t *rapid.T) {
	if f.index.Len() != len(f.want) {
		t.Fatalf("length %d, want %d", f.index.Len(), len(f.want))
	}
	if x := &f.index; x.used > bucketMost*x.n || x.used == 0 && x.buckets.root != nil {
		t.Fatalf("%d entries in %d buckets", x.used, x.n)
	}
	byHash := map[uint32]int{}
	for e := range f.want {
		byHash[e[0]]++
	}
	byHash[12345] += 0
	for hash, n := range byHash {
		probe, found := f.index.Probe(hash), map[uint32]bool{}
		for slot, ok := probe.Next(); ok; slot, ok = probe.Next() {
			if !f.want[[2]uint32{hash, slot}] || found[slot] {
				t.Fatalf("hash %x: slot %d does not belong there, or comes twice", hash, slot)
			}
			found[slot] = true
		}
		if len(found) != n {
			t.Fatalf("hash %x: found %d of %d slots", hash, len(found), n)
		}
	}
}

// someHash draws from few hashes, so that they collide and buckets run over, and sometimes from all.
func someHash(t *rapid.T) uint32 {
	return rapid.OneOf(
		rapid.SampledFrom([]uint32{0, 1, 2, 3, 61, 62, 63, 64, 127, 0xffffffff, 0xfffffffe, 0x10000, 0x20001}), rapid.Uint32(),
	).Draw(t, "hash")
}

// TestIndexAgainstMap: an index is a multimap; deleting closes gaps without hiding an entry; frozen copies and forks
// never see what others write.
func TestIndexAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forks := []*indexFork{{owner: NewOwner(), want: map[[2]uint32]bool{}}}
		var frozen []*indexFork
		one := func(t *rapid.T) *indexFork { return rapid.SampledFrom(forks).Draw(t, "fork") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, f := range slices.Concat(forks, frozen) {
					f.check(t)
				}
			},
			"insert": func(t *rapid.T) { one(t).insert(t, 1) },
			"many":   func(t *rapid.T) { one(t).insert(t, 24) },
			"delete": func(t *rapid.T) { one(t).remove(t) },
			"clear": func(t *rapid.T) {
				for f := one(t); len(f.want) > 3; {
					f.remove(t)
				}
			},
			"freeze": func(t *rapid.T) {
				f := one(t)
				frozen = append(frozen, f.copy(0))
				f.owner = NewOwner()
			},
			"fork": func(t *rapid.T) {
				f := one(t)
				if len(forks) < 3 {
					forks = append(forks, f.copy(NewOwner()))
				}
				f.owner = NewOwner()
			},
		})
	})
}

func (f *indexFork) copy(o Owner) *indexFork {
	c := &indexFork{index: f.index, owner: o, want: map[[2]uint32]bool{}}
	for e := range f.want {
		c.want[e] = true
	}
	return c
}

func (f *indexFork) insert(t *rapid.T, n int) {
	for range n {
		e := [2]uint32{someHash(t), rapid.Uint32Range(0, 1000).Draw(t, "slot")}
		if !f.want[e] {
			f.index.Insert(e[0], e[1], f.owner)
			f.want[e] = true
		}
	}
}

// remove deletes what is there, in an order that the seed decides, and tries what is not.
func (f *indexFork) remove(t *rapid.T) {
	if f.index.Delete(someHash(t), 5000, f.owner) {
		t.Fatal("deleted what was never there")
	}
	if len(f.want) == 0 {
		return
	}
	all := make([][2]uint32, 0, len(f.want))
	for e := range f.want {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b [2]uint32) int { return slices.Compare(a[:], b[:]) })
	e := rapid.SampledFrom(all).Draw(t, "entry")
	if !f.index.Delete(e[0], e[1], f.owner) || f.index.Delete(e[0], e[1], f.owner) {
		t.Fatalf("deleting %v must succeed once", e)
	}
	delete(f.want, e)
}

// TestOwnersAreUnique: two writers never share a number, else one would write what the other froze.
func TestOwnersAreUnique(t *testing.T) {
	const each = 1000
	got := make(chan []Owner)
	for range 4 {
		go func() {
			var mine []Owner
			for range each {
				mine = append(mine, NewOwner())
			}
			got <- mine
		}()
	}
	seen := map[Owner]bool{0: true}
	for range 4 {
		for _, o := range <-got {
			if seen[o] {
				t.Fatalf("owner %d was handed out twice", o)
			}
			seen[o] = true
		}
	}
}
