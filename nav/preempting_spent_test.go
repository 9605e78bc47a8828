package nav

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// What Hourly counts takes no more memory and no more time of a plan the more are evicted: what is left of an hour's victims is a
// count for each second, and none is forgotten before the hour is over.
func TestPreemptingCountsAnHourInLittleRoom(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	state, err := (&orbit.MemoryLedger{}).Snapshot(t.Context())
	require.NoError(t, err)
	p, now := &Preempting{Hourly: 1}, time.Unix(1e9, 0)
	plan := func(victims int) (counted int) {
		for range victims {
			p.proposed = append(p.proposed, preemption{victims: []*orbit.Capsule{{ID: "gone", PlacedAt: 1}}})
		}
		(&preemptPass{Preempting: p, state: state, now: now}).countLost()
		for _, s := range p.spent {
			counted += s.count
		}
		return counted
	}
	for i := range 60 * 60 * 10 { // ten plans a second
		require.Equal(t, 3*(i+1), plan(3))
		now = now.Add(time.Second / 10)
	}
	require.LessOrEqual(t, len(p.spent), 60*60+1)
	require.GreaterOrEqual(t, plan(0), 3*(60*60*10-10), "all but those of the first second")
	now = now.Add(time.Hour - time.Second)
	require.Positive(t, plan(0))
	now = now.Add(2 * time.Second)
	require.Zero(t, plan(0))
	require.Empty(t, p.spent)
}
