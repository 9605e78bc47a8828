package cow

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// arrayFork is a table beside the slice that it must equal. A frozen one is never written again.
type arrayFork struct {
	table Array[[2]int]
	owner Owner
	want  [][2]int
}

func (f *arrayFork) check(t *rapid.T) {
	if f.table.Len() != len(f.want) {
		t.Fatalf("length %d, want %d", f.table.Len(), len(f.want))
	}
	for i, want := range f.want {
		if got := *f.table.At(i); got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

// TestArrayAgainstSlice: an array is a slice; a copy that was frozen, and every fork that goes on from it,
// never sees what others write, shared pages or not. SCENARIOS 8, 23 (I8), 16 (I6).
func TestArrayAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forks := []*arrayFork{{owner: NewOwner()}}
		var frozen []*arrayFork
		one := func(t *rapid.T) *arrayFork { return rapid.SampledFrom(forks).Draw(t, "fork") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, f := range slices.Concat(forks, frozen) {
					f.check(t)
				}
			},
			"grow": func(t *rapid.T) {
				f := one(t)
				n := len(f.want) + rapid.IntRange(0, 70).Draw(t, "by") // pages have 64 elements
				f.table.Grow(n, f.owner)
				f.want = append(f.want, make([][2]int, n-len(f.want))...)
			},
			"write": func(t *rapid.T) {
				f := one(t)
				if len(f.want) == 0 {
					t.Skip("empty")
				}
				i, v := rapid.IntRange(0, len(f.want)-1).Draw(t, "i"), rapid.Int().Draw(t, "v")
				f.table.Own(i, f.owner)[1] = v
				f.want[i][1] = v
			},
			"freeze": func(t *rapid.T) {
				f := one(t)
				frozen = append(frozen, &arrayFork{table: f.table, want: slices.Clone(f.want)})
				f.owner = NewOwner()
			},
			"fork": func(t *rapid.T) { // two writers go on from one table
				f := one(t)
				if len(forks) < 4 {
					forks = append(forks, &arrayFork{table: f.table, owner: NewOwner(), want: slices.Clone(f.want)})
				}
				f.owner = NewOwner()
			},
		})
	})
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

// someHash draws from few homes, so that probes collide, run into each other and wrap around the end.
func someHash(t *rapid.T) uint32 {
	return rapid.SampledFrom([]uint32{0, 1, 2, 3, 61, 62, 63, 64, 127, 0xffffffff, 0xfffffffe, 0x10000, 0x20001}).Draw(t, "hash")
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
