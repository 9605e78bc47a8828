package nav

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// Capsules of a class are together, in the order in which they came; classes are in the order of their first.
func TestByClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs := make([]orbit.Spec, 5)
		var pending, want []*orbit.Capsule
		for _, k := range rapid.SliceOfN(rapid.IntRange(0, len(specs)-1), 0, 40).Draw(t, "classes") {
			pending = append(pending, &orbit.Capsule{Spec: &specs[k]})
		}
		taken := map[*orbit.Spec]bool{}
		for _, first := range pending {
			if taken[first.Spec] {
				continue
			}
			taken[first.Spec] = true
			for _, c := range pending {
				if c.Spec == first.Spec {
					want = append(want, c)
				}
			}
		}
		got, same := byClass(pending)
		require.Equal(t, slices.Equal(want, pending), same)
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
		}
	})
}
