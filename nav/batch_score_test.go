package nav

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// No node of a box that fits is rated below what the box as a whole is, whatever the numbers.
func TestPackingBound(t *testing.T) {
	type part struct{ free, capacity int64 }
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.IntRange(1, 3).Draw(t, "dims")
		s := &packScore{scarce: make([]int, dims), tight: rapid.SampledFrom([]float64{0, 0.001, 0.5}).Draw(t, "tight")}
		amounts := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, 20_000), rapid.Int64Range(math.MaxInt64-9, math.MaxInt64))
		want := rapid.SliceOfN(rapid.OneOf(rapid.Just(int64(0)), amounts), dims, dims).Draw(t, "want")
		low, high := make([]part, dims), make([]part, dims)
		var values []float64
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			alone, fits := rating{least: math.Inf(1)}, true
			for d := range dims {
				n := part{capacity: amounts.Draw(t, "capacity")}
				n.free = n.capacity - min(amounts.Draw(t, "used"), n.capacity)
				if rapid.IntRange(0, 9).Draw(t, "shrunk") == 0 {
					n.free = -1
				}
				if i == 0 {
					low[d], high[d] = n, n
				}
				low[d] = part{min(low[d].free, n.free), min(low[d].capacity, n.capacity)}
				high[d] = part{max(high[d].free, n.free), max(high[d].capacity, n.capacity)}
				fits = fits && (want[d] == 0 || want[d] <= n.free)
				alone.add(want[d], n.free, n.free, n.capacity, n.capacity)
			}
			if fits {
				values = append(values, alone.value(s))
			}
		}
		box := rating{least: math.Inf(1)}
		for d := range dims {
			box.add(want[d], low[d].free, high[d].free, low[d].capacity, high[d].capacity)
		}
		for _, v := range values {
			require.LessOrEqual(t, box.value(s), v)
			require.GreaterOrEqual(t, v, 0.0)
			require.LessOrEqual(t, v, 1+s.tight)
		}
	})
}
