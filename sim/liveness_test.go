package sim_test

import (
	"flag"
	"testing"
	"testing/synctest"

	"github.com/orbitsched/orbit/sim"
)

var (
	liveSeed  = flag.Uint64("live.seed", 1, "the first seed of the liveness worlds")
	liveStory = flag.Bool("live.story", false, "make every failing world small and tell its story")
	liveSeeds = flag.Int("live.seeds", 150, "how many liveness worlds the ordinary test plays")
)

// play plays a world in a bubble.
func play(t *testing.T, l *sim.Liveness, seed uint64) (s *sim.Stall) {
	synctest.Test(t, func(*testing.T) { s = l.Play(seed) })
	return s
}

func TestLiveness(t *testing.T) {
	l := &sim.Liveness{Command: "go test ./sim -run '^TestLiveness$' -live.seed %d -live.seeds 1"}
	rules := map[string]int{}
	for i := range *liveSeeds {
		if s := play(t, l, *liveSeed+uint64(i)); s != nil {
			rules[s.Rule()]++
			t.Error(s.Error())
			if *liveStory {
				synctest.Test(t, func(*testing.T) { s = l.Shrink(s) })
				t.Log(s.Story())
			}
		}
	}
	t.Log(rules)
}
