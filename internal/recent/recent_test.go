package recent_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/cow"
	"github.com/orbitsched/orbit/internal/recent"
)

type id [16]byte

// TestNewest compares what is remembered with a list of the newest ids. Ids that are remembered are not added again.
func TestNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		var r recent.IDs[id, uint64]
		var owner cow.Owner
		var want []id
		for at := range uint64(rapid.IntRange(0, 120).Draw(t, "ids")) {
			k := id{byte(rapid.IntRange(0, 60).Draw(t, "id"))}
			if r.Find(k) != 0 {
				continue
			}
			r.Add(k, at+1, limit, owner)
			if k != (id{}) {
				want = append(want, k)
			}
		}
		want = want[max(0, len(want)-limit):]
		require.Equal(t, len(want), r.Len())
		i := 0
		for k, at := range r.All() {
			require.Equal(t, want[i], k)
			require.Equal(t, at, r.Find(k))
			i++
		}
		require.Equal(t, len(want), i)
		require.Zero(t, r.Find(id{200}))
	})
}
