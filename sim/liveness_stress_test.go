//go:build stress

package sim_test

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// liveWorlds is how many worlds there are; the environment variable SCHEDULE_STRESS_SCALE multiplies it.
const liveWorlds = 20_000

// Twenty thousand worlds. With -v it says how far it is.
func TestStressLiveness(t *testing.T) {
	worlds := liveWorlds
	if text := os.Getenv("SCHEDULE_STRESS_SCALE"); text != "" {
		f, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		worlds = max(1, int(f*liveWorlds))
	}
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
