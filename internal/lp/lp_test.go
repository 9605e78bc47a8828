package lp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// That a solution is the best is proved by its duals: solution and duals keep to the constraints, and are worth the
// same, so neither can be better.
func TestMaximizeIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, vars := rapid.IntRange(1, 8).Draw(t, "rows"), rapid.IntRange(1, 12).Draw(t, "vars")
		a, c := make([][]float64, rows), make([]float64, vars)
		for i := range a {
			a[i] = make([]float64, vars)
			for j := range a[i] {
				a[i][j] = float64(rapid.IntRange(0, 9).Draw(t, "a")) / 3
			}
		}
		for j := range c {
			a[0][j]++ // so that there is a bound
			c[j] = float64(rapid.IntRange(0, 9).Draw(t, "c"))
		}
		x, p, optimal := Maximize(context.Background(), c, a, 10_000)
		require.True(t, optimal)
		worth, cost := 0.0, 0.0
		for i := range a {
			used := 0.0
			for j := range x {
				used += a[i][j] * x[j]
			}
			require.LessOrEqual(t, used, 1+1e-6)
			require.GreaterOrEqual(t, p[i], 0.0)
			cost += p[i]
		}
		for j := range x {
			price := 0.0
			for i := range a {
				price += p[i] * a[i][j]
			}
			require.GreaterOrEqual(t, price, c[j]-1e-6)
			require.GreaterOrEqual(t, x[j], -1e-9)
			worth += c[j] * x[j]
		}
		require.InDelta(t, cost, worth, 1e-6)
	})
}

// What stops the method early is said, and leaves a solution that keeps to the constraints.
func TestMaximizeStopsEarly(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	x, _, optimal := Maximize(ended, []float64{1}, [][]float64{{1}}, 9)
	require.False(t, optimal)
	require.Equal(t, []float64{0}, x)
	_, _, optimal = Maximize(t.Context(), []float64{1}, [][]float64{{1}}, 0)
	require.False(t, optimal)
	_, _, optimal = Maximize(t.Context(), []float64{1}, [][]float64{{0}}, 9)
	require.False(t, optimal, "no bound")
}
