package race_test

import (
	"flag"
	"testing"
	"testing/synctest"

	"github.com/orbitsched/orbit/sim/race"
)

// Where the seeds of the races for patience begin, and how many the ordinary test tries.
var (
	patienceSeed  = flag.Uint64("patience.seed", 1, "the first seed of the races for patience")
	patienceSeeds = flag.Int("patience.seeds", 300, "how many races for patience are run")
)

// Whoever comes, small or of higher priority, and whatever goes wrong, nobody waits for longer than the bounds say.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if res := race.Scenario(race.Patience).Hunt(*patienceSeed, seeds(*patienceSeeds)); res != nil {
			t.Fatal(res.Story())
		}
	})
}
