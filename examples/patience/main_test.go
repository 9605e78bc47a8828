package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/scale"
)

// However fast tasks end beside the time after which what waits is nominated, every story ends well with nominations. The
// small work waits as well, is nominated too, and must not be ranked above what has waited for longer.
func TestNobodyStarvesAtAnyPace(t *testing.T) {
	scale.Long(t)
	for _, pace := range []time.Duration{50 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		for seed := range uint64(scale.WithRace(1, 5)) {
			synctest.Test(t, func(t *testing.T) {
				for _, s := range stories {
					w, placed, ended := open(s, true, seed), false, 0
					for ; ended < 500 && !placed; ended++ {
						time.Sleep(pace)
						w.submitTasks(1)
						w.pass()
						placed, _ = w.large()
						w.endOne()
					}
					require.True(t, placed, "%s, one ends every %v, seed %d: starved", s.title, pace, seed)
					t.Logf("%s, one ends every %v: placed after %d", s.title, pace, ended)
				}
			})
		}
	}
}
