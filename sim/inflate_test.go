package sim_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

func demand(capsules []sim.Capsule) (sum int64) {
	for _, c := range capsules {
		sum += sim.DeviceDemand(c.Spec)
	}
	return sum
}

func asking(id orbit.CapsuleID, count, milli int) sim.Capsule {
	return sim.Capsule{ID: id, Spec: &orbit.Spec{Devices: orbit.DeviceRequest{Count: count, Milli: milli}}}
}

// The recipe, whatever the list: the origins come first, all of them; then repeats of them with ids of
// their own; just as many as the target takes; the same for the same seed, in whatever order the list is.
func TestInflate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := []sim.Capsule{asking("a", 1, 1), asking("b#2", 1, 500)}
		for i := range rapid.IntRange(0, 5).Draw(t, "more") {
			id := orbit.CapsuleID([]string{"b", "a#2", "a#3", "c", "d"}[i])
			list = append(list, asking(id, rapid.IntRange(0, 2).Draw(t, "count"), rapid.IntRange(1, 1000).Draw(t, "milli")))
		}
		capacity, factor := rapid.Int64Range(0, 20_000).Draw(t, "capacity"), rapid.Float64Range(0, 2).Draw(t, "factor")
		seed := rapid.Uint64().Draw(t, "seed")
		out, err := sim.Inflate(list, capacity, factor, seed)
		require.NoError(t, err)

		require.ElementsMatch(t, list, out[:len(list)])
		seen := map[orbit.CapsuleID]bool{}
		for i, c := range out {
			require.False(t, seen[c.ID], "%s is there twice", c.ID)
			seen[c.ID] = true
			if i >= len(list) {
				cut := strings.LastIndex(string(c.ID), "#")
				require.True(t, slices.ContainsFunc(list, func(o sim.Capsule) bool {
					return o.ID == c.ID[:cut] && o.Spec == c.Spec
				}), "%s repeats nothing", c.ID)
			}
		}
		target := factor * float64(capacity)
		if len(out) > len(list) {
			require.LessOrEqual(t, float64(demand(out)), target)
		}
		require.Greater(t, float64(demand(out)+2000), target, "the next draw must have been too much")

		slices.Reverse(list)
		again, err := sim.Inflate(list, capacity, factor, seed)
		require.NoError(t, err)
		require.Equal(t, out, again)
	})
}

func TestInflateRefuses(t *testing.T) {
	list := []sim.Capsule{asking("a", 1, 500)}
	for _, factor := range []float64{-1, math.NaN(), math.Inf(1)} {
		_, err := sim.Inflate(list, 1000, factor, 1)
		require.ErrorIs(t, err, orbit.ErrInvalid)
	}
	_, err := sim.Inflate([]sim.Capsule{asking("a", 0, 0)}, 1000, 1, 1)
	require.ErrorIs(t, err, orbit.ErrInvalid)
	require.ErrorContains(t, err, "none of the 1 capsules asks for a device")
	for _, empty := range [][]sim.Capsule{nil, {asking("a", 0, 0)}} {
		out, err := sim.Inflate(empty, 0, 1.3, 1)
		require.NoError(t, err)
		require.Len(t, out, len(empty))
	}
}

// The stream is the same on any machine and in any version: results in documents depend on it.
func TestInflateIsPinned(t *testing.T) {
	list := []sim.Capsule{asking("a", 1, 500), asking("b", 1, 500), asking("c", 1, 500)}
	out, err := sim.Inflate(list, 4000, 1, 42)
	require.NoError(t, err)
	var ids []string
	for _, c := range out {
		ids = append(ids, string(c.ID))
	}
	require.Equal(t, "a b c c#2 a#2 a#3 a#4 b#2", strings.Join(ids, " "))
}
