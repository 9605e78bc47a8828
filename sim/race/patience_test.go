package race_test

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sim/race"
)

// Where the seeds of the races for patience begin, and how many the ordinary test tries.
var (
	patienceSeed  = flag.Uint64("patience.seed", 1, "the first seed of the races for patience")
	patienceSeeds = flag.Int("patience.seeds", scale.WithRace(40, 100), "how many races for patience are run")
)

// Whoever comes, small or of higher priority, and whatever goes wrong, nobody waits for longer than the bounds say. With -tags
// stress there are 5,000 races, times ORBIT_STRESS_SCALE, and -v says how far it is.
func TestPatience(t *testing.T) {
	const each = 500
	races := seeds(scale.Of(*patienceSeeds, 5_000))
	var done atomic.Int64
	for from := 0; from < races; from += each {
		t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := min(each, races-from)
				if res := race.Scenario(race.Patience).Hunt(*patienceSeed+uint64(from), n); res != nil {
					t.Fatal(res.Story())
				}
				t.Logf("%d of %d races", done.Add(int64(n)), races)
			})
		})
	}
}
