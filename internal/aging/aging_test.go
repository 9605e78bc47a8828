package aging_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/aging"
)

// Whatever waits since when: what is of a higher band is first; within a band, what has risen to a higher priority at any time is
// first, with the rise counted in fractions; and nothing rises above its band, nor falls.
func TestTurnsFollowWhatHasRisen(t *testing.T) {
	priority := rapid.OneOf(rapid.Int32Range(-30, 30), rapid.Int32())
	rapid.Check(t, func(t *rapid.T) {
		b := &aging.Book{Every: rapid.Int64Range(1, 100).Draw(t, "every"), Band: rapid.Int64Range(1, 20).Draw(t, "band")}
		p, q := priority.Draw(t, "p"), priority.Draw(t, "q")
		s, r := rapid.Int64Range(0, 1000).Draw(t, "since"), rapid.Int64Range(0, 1000).Draw(t, "other since")
		now := max(s, r) + rapid.Int64Range(0, 2000).Draw(t, "now")
		floor := func(p int32) float64 { return math.Floor(float64(p) / float64(b.Band)) }
		risen := func(p int32, since int64) float64 { return float64(p) + float64(now-since)/float64(b.Every) }
		band, turn := b.Turn(p, s)
		other, next := b.Turn(q, r)
		require.Equal(t, floor(p), float64(band))
		aged := b.Aged(p, s, now)
		require.GreaterOrEqual(t, aged, p)
		require.Equal(t, math.Min(math.Min(math.Floor(risen(p, s)), (floor(p)+1)*float64(b.Band)-1), math.MaxInt32), float64(aged))
		if floor(p) != floor(q) {
			require.Equal(t, floor(p) > floor(q), band > other)
			return
		}
		if math.Abs(risen(p, s)-risen(q, r)) > 1e-6 {
			require.Equal(t, risen(p, s) > risen(q, r), turn < next, "%v and %v", risen(p, s), risen(q, r))
		}
		if turn < next { // the priorities that are told never contradict the turns
			require.GreaterOrEqual(t, aged, b.Aged(q, r, now))
		}
	})
	b := &aging.Book{Every: 1 << 29, Band: 1 << 32} // the largest that is allowed
	_, low := b.Turn(math.MinInt32, math.MaxInt64)
	_, high := b.Turn(math.MaxInt32, 0)
	require.Less(t, high, low)
}

// What says since when it waits is believed; else it waits since it was first seen, until it waits no more or its id is another's.
func TestSince(t *testing.T) {
	b := &aging.Book{Every: 1, Band: 1}
	see := func(id string, order uint64, now int64) {
		b.See(id, order, now, func(id string, _ uint64) bool { return id == "kept" })
	}
	require.EqualValues(t, 5, b.Since("said", 1, 5, 9))
	require.EqualValues(t, 9, b.Since("never seen", 1, 0, 9))
	see("kept", 2, 9)
	see("kept", 2, 11)
	see("gone", 3, 9)
	require.EqualValues(t, 9, b.Since("kept", 2, 0, 11))
	require.EqualValues(t, 9, b.Since("gone", 3, 0, 11))
	for i := range 5000 {
		see(fmt.Sprint(i), uint64(i), 10)
	}
	require.EqualValues(t, 9, b.Since("kept", 2, 0, 11))
	require.EqualValues(t, 12, b.Since("gone", 3, 0, 12), "it was forgotten")
	require.EqualValues(t, 13, b.Since("kept", 4, 0, 13), "another one with the id")
	see("kept", 4, 14)
	require.EqualValues(t, 14, b.Since("kept", 4, 0, 15))
}
