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
}
