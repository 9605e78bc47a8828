package least

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A set finds what a list finds, after any sequence of additions and removals.
func TestAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set[int]
		var list []*Item[int]
		serial, dims := 0, rapid.IntRange(1, Dims).Draw(t, "dims")
		vector := func(most int64) (v Vector) {
			for d := range dims {
				v[d] = rapid.Int64Range(0, most).Draw(t, "v")
			}
			return v
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					list = append(list, s.Add(serial, vector(9)))
					serial++
				}
			},
			"remove": func(t *rapid.T) {
				left := rapid.IntRange(0, len(list)).Draw(t, "left")
				for len(list) > left {
					i := serial % len(list)
					s.Remove(list[i])
					list = slices.Delete(list, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				offer := vector(9)
				var want, got []int
				for _, item := range list {
					if item.least.within(&offer) {
						want = append(want, item.Value)
					}
				}
				served, _ := s.Served(nil, &offer)
				for _, item := range served {
					got = append(got, item.Value)
				}
				slices.Sort(want)
				slices.Sort(got)
				require.Equal(t, want, got)
				require.Equal(t, len(list), s.Len())
				require.LessOrEqual(t, s.gone, s.live+Recent)
			},
		})
	})
}

// A search that finds nothing looks at little, however many items there are and in what order they came.
func TestLooksAtLittle(t *testing.T) {
	for name, order := range map[string]func(i, n int) int{
		"rising": func(i, _ int) int { return i }, "falling": func(i, n int) int { return n - i },
		"mixed": func(i, n int) int { return i * 7919 % n },
	} {
		t.Run(name, func(t *testing.T) {
			var looked [2]int
			for i, n := range []int{1_000, 16_000} {
				var s Set[int]
				for j := range n {
					v := Vector{int64(order(j, n)), int64(n - order(j, n))} // who asks for little of one thing asks for much of the other
					v[0], v[1] = v[0]*1000/int64(n)+1, v[1]*1000/int64(n)+1
					s.Add(j, v)
				}
				served, l := s.Served(nil, &Vector{490, 490})
				require.Empty(t, served)
				looked[i] = l
			}
			t.Logf("looked at %d of 1,000 and %d of 16,000", looked[0], looked[1])
			require.Less(t, looked[1], 3*looked[0])
		})
	}
}

func BenchmarkServed(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run("", func(b *testing.B) {
			var s Set[int]
			for i := range n {
				s.Add(i, Vector{33_000 + rand.Int64N(5000), 1 << 30})
			}
			for b.Loop() {
				s.Served(nil, &Vector{32_000, 1 << 35})
			}
		})
	}
}
