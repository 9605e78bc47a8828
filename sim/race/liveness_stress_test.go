//go:build stress

package race_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/orbitsched/orbit/internal/scale"
)

// Twenty thousand worlds, times ORBIT_STRESS_SCALE. With -v it says how far it is.
func TestStressLiveness(t *testing.T) {
	worlds := scale.Of(0, 20_000)
	const each = 500
	var played atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for from := 0; from < worlds; from += each {
			t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
				t.Parallel()
				n := min(each, worlds-from)
				playWorlds(t, *liveSeed+uint64(from), n)
				t.Logf("%d of %d worlds played", played.Add(int64(n)), worlds)
			})
		}
	})
	if !t.Failed() {
		t.Logf("%d worlds, all navigators, up to three levels and eight specs a group: nothing that fits is left", played.Load())
	}
}
