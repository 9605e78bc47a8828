package scale

import (
	"iter"
	"testing"
)

// Reach runs a random test until it has reached all wanted outcomes. In each round it yields a map in which the test
// counts the outcomes that it comes to. After six hundred rounds at most, the test fails and names the outcomes that are
// missing. A single round misses a rare outcome often, six hundred hardly ever. In short mode there is one round and no
// outcome is required, because rapid draws a fifth as often then.
func Reach(t *testing.T, wanted ...string) iter.Seq[map[string]int] {
	return func(yield func(map[string]int) bool) {
		t.Helper()
		count := map[string]int{}
		missing := wanted
		for round := 0; round < 600 && len(missing) > 0; round++ {
			if !yield(count) || t.Failed() || testing.Short() {
				return
			}
			t.Logf("outcomes: %v", count)
			missing = nil
			for _, k := range wanted {
				if count[k] == 0 {
					missing = append(missing, k)
				}
			}
		}
		for _, k := range missing {
			t.Errorf("the generator never reaches %q", k)
		}
	}
}
