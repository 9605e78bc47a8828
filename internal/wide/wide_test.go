package wide_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/wide"
)

// TestSums compares sums, differences, products and comparisons with those of math/big.
func TestSums(t *testing.T) {
	quantity := rapid.OneOf(rapid.Int64Range(0, math.MaxInt64), rapid.Just[int64](math.MaxInt64), rapid.Int64Range(0, 3))
	rapid.Check(t, func(t *rapid.T) {
		sum := func(name string) (wide.Int, *big.Int) {
			w, b := wide.Int{}, new(big.Int)
			for _, x := range rapid.SliceOfN(quantity, 0, 20).Draw(t, name) {
				w, b = w.Plus(x), b.Add(b, big.NewInt(x))
			}
			return w, b
		}
		w, b := sum("one")
		o, c := sum("other")
		require.Equal(t, b.String(), w.String())
		require.Equal(t, new(big.Int).Add(b, c).String(), w.Add(o).String())
		require.Equal(t, b.Cmp(c) > 0, w.Exceeds(o))
		require.Equal(t, b.Cmp(c) == 0, w == o)
		n := rapid.IntRange(0, 1<<40).Draw(t, "times")
		require.Equal(t, new(big.Int).Mul(b, big.NewInt(int64(n))).String(), w.Times(n).String())
		if x := quantity.Draw(t, "less"); b.Cmp(big.NewInt(x)) >= 0 {
			require.Equal(t, new(big.Int).Sub(b, big.NewInt(x)).String(), w.Plus(-x).String())
		}
	})
}
