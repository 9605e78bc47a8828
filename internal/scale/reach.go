package scale

import (
	"iter"
	"testing"
)

// Reach yields a map in which a random test counts the outcomes that it comes to, once more while one of those that are wanted
// has not been counted: ten times at most, and then it says which are missing. A single run misses a rare outcome now and
// then, ten hardly ever. In short mode it yields once and misses none, because rapid draws a fifth as often then.
func Reach(t *testing.T, wanted ...string) iter.Seq[map[string]int] {
	return func(yield func(map[string]int) bool) {
		t.Helper()
		count := map[string]int{}
		missing := wanted
		for round := 0; round < 10 && len(missing) > 0; round++ {
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
