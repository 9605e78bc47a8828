package scale

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSome(t *testing.T) {
	t.Setenv("ORBIT_STRESS_SCALE", "10")
	want := []int{4, 5, 6}
	if !stress {
		want = want[:2]
	}
	require.Equal(t, want, Some(2, 4, 5, 6))
}

func TestOf(t *testing.T) {
	if !stress {
		t.Setenv("ORBIT_STRESS_SCALE", "10")
		require.Equal(t, 3, Of(3, 100), "the variable is for full samples")
		return
	}
	for text, want := range map[string]int{"": 100, "1": 100, "0.1": 10, "2.5": 250, "0.0001": 1} {
		t.Setenv("ORBIT_STRESS_SCALE", text)
		require.Equal(t, want, Of(3, 100), text)
	}
	for _, text := range []string{"0", "-1", "NaN", "much", "1e9"} {
		t.Setenv("ORBIT_STRESS_SCALE", text)
		require.Panics(t, func() { Of(3, 100) }, text)
	}
	t.Setenv("ORBIT_STRESS_SCALE", "")
	t.Setenv("SCHEDULE_STRESS_SCALE", "0.5")
	require.Equal(t, 50, Of(3, 100), "the other name")
	t.Setenv("ORBIT_STRESS_SCALE", "0.5")
	require.Equal(t, 50, Of(3, 100), "both names, one value")
	t.Setenv("ORBIT_STRESS_SCALE", "2")
	require.Panics(t, func() { Of(3, 100) }, "which of the two?")
	t.Setenv("ORBIT_STRESS_SCALE", "")
	t.Setenv("SCHEDULE_STRESS_SCALE", "much")
	require.Panics(t, func() { Of(3, 100) })
}

// With the race detector a test of one goroutine is left out, and samples are smaller; without it all runs.
func TestRace(t *testing.T) {
	ran := false
	t.Run("one goroutine", func(t *testing.T) {
		Sequential(t)
		ran = true
	})
	require.Equal(t, !Race, ran)
	require.Equal(t, Race, WithRace(3, 7) == 3)
	require.Equal(t, !Race, WithRace(3, 7) == 7)
}
