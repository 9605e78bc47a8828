package herd

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// An engine that loses nothing has the whole ring, and one that has lost has it again after a bounded number of passes in
// which it loses nothing, whatever has been before.
func TestSpreadEndsWhenNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Spread{Seed: rapid.Uint64().Draw(t, "seed")}
		passes := rapid.SliceOf(rapid.IntRange(0, 100)).Draw(t, "lost of 100")
		for _, lost := range passes {
			before, _ := s.Ring()
			s.Passed(100, lost)
			parts, from := s.Ring()
			require.LessOrEqual(t, parts, MostParts)
			switch {
			case lost > 25:
				require.Equal(t, min(2*before, MostParts), parts)
			case lost > 0:
				require.Equal(t, before, parts)
			}
			require.Zero(t, from*uint64(parts), "parts begin where those of any other engine do")
		}
		for range 4 * calmPasses {
			s.Passed(0, 0) // says nothing
			s.Passed(1, 0)
		}
		parts, from := s.Ring()
		require.Equal(t, 1, parts)
		require.Zero(t, from)
	})
}

// The parts are of one size, and the first begins where the ring does.
func TestParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cuts := rapid.IntRange(0, mostCuts).Draw(t, "cuts")
		from, at := rapid.Uint64().Draw(t, "from"), rapid.Uint64().Draw(t, "at")
		want := 0
		if cuts > 0 {
			want = int(at >> (64 - cuts))
		}
		require.Equal(t, want, Part(1<<cuts, from, from+at))
	})
}

// Engines that all want the same place, and lose where another has come first, are soon in parts of their own. Without that
// seven of eight lose in each pass.
func TestEnginesPart(t *testing.T) {
	const engines, passes, places = 8, 400, 64
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		spreads := make([]Spread, engines)
		for i := range spreads {
			spreads[i].Seed = rng.Uint64()
		}
		lost := 0
		for range passes {
			taken, best := map[int]bool{}, rng.Perm(places) // of the ring, best first
			for _, i := range rng.Perm(engines) {
				parts, from := spreads[i].Ring()
				wanted := slices.IndexFunc(best, func(place int) bool { return Part(parts, from, uint64(place)<<58) == 0 })
				spreads[i].Passed(1, btoi(taken[wanted]))
				lost += btoi(taken[wanted])
				taken[wanted] = true
			}
		}
		require.Less(t, lost, passes*(engines-1)/4)
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
