package slab

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

type pair struct {
	id   string
	more []int
}

func (p pair) String() string { return fmt.Sprint(p.id, p.more) }

// Boxed values are what an ordinary conversion makes of them, each its own, and survive collections.
func TestBoxes(t *testing.T) {
	var b Boxes[fmt.Stringer, pair]
	var kept []fmt.Stringer
	for i := range 1000 {
		kept = append(kept, b.New(pair{fmt.Sprint(i), []int{i}}))
		if i%100 == 0 {
			runtime.GC()
		}
	}
	b = Boxes[fmt.Stringer, pair]{}
	runtime.GC()
	for i, k := range kept {
		want := pair{fmt.Sprint(i), []int{i}}
		require.Equal(t, want, k)
		require.Equal(t, want.String(), k.String())
		got, ok := k.(pair)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
}

// Slices of one slab do not run into each other.
func TestSlice(t *testing.T) {
	var s Of[int]
	var all [][]int
	for i := range 100 {
		one := s.Slice(i % 5)
		for j := range one {
			one[j] = i
		}
		all = append(all, append(one, -1)[:len(one)])
	}
	for i, one := range all {
		require.Len(t, one, i%5)
		for _, v := range one {
			require.Equal(t, i, v)
		}
	}
	require.Len(t, s.Slice(1000), 1000)
}

// Many values share an allocation.
func TestAllocations(t *testing.T) {
	var b Boxes[fmt.Stringer, pair]
	require.Less(t, testing.AllocsPerRun(1000, func() { b.New(pair{}) }), 1.0)
}
