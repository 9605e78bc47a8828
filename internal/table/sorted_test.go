package table

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The zero value reads like an empty table, and so do its clones.
func TestSortedZeroValueIsEmpty(t *testing.T) {
	var zero Sorted[int]
	for name, s := range map[string]Sorted[int]{"zero": zero, "clone": zero.Clone(), "empty": NewSorted(2, func(a, b int) bool { return a < b })} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, name == "empty", s.Made())
			require.Zero(t, s.Len())
			for _, read := range []func() (int, bool){s.Min, s.Max, func() (int, bool) { return s.Get(1) }} {
				_, ok := read()
				require.False(t, ok)
			}
			none := func(int) bool { panic("a record in an empty table") }
			s.Ascend(none)
			s.AscendGreaterOrEqual(0, none)
			s.DescendGreaterThan(0, none)
		})
	}
}

// A clone keeps the records that it was made with.
func TestSortedCloneKeeps(t *testing.T) {
	s := NewSorted(2, func(a, b int) bool { return a < b })
	for i := range 10 {
		s.ReplaceOrInsert(9 - i)
	}
	kept := s.Clone()
	s.Delete(0)
	s.ReplaceOrInsert(10)
	var up, down []int
	kept.AscendGreaterOrEqual(7, func(i int) bool { up = append(up, i); return true })
	s.DescendGreaterThan(7, func(i int) bool { down = append(down, i); return true })
	require.Equal(t, []int{7, 8, 9}, up)
	require.Equal(t, []int{10, 9, 8}, down)
	least, _ := s.Min()
	most, _ := kept.Max()
	require.Equal(t, [3]int{1, 9, 10}, [3]int{least, most, kept.Len()})
}
