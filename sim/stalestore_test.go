package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
)

// What is listed is what was true Lag ago, to the nanosecond; what is claimed is judged by what is true.
func TestStaleStoreLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &StaleStore{Lag: time.Second}
		listed := func() (out []claim.Slot) {
			l, err := s.Idle(t.Context())
			require.NoError(t, err)
			return l.Slots
		}
		a := claim.Slot{Name: "a", UID: "1"}
		s.Add("a")
		time.Sleep(time.Second - 1)
		require.Empty(t, listed())
		time.Sleep(1)
		require.Equal(t, []claim.Slot{a}, listed())
		id := orbit.NewProposalID()
		for range 2 { // the same attempt has one effect
			_, _, err := s.Claim(t.Context(), claim.Attempt{ID: id, Slot: a})
			require.NoError(t, err)
		}
		_, _, err := s.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: a})
		require.ErrorIs(t, err, orbit.ErrConflict)
		time.Sleep(time.Second - 1)
		require.Equal(t, []claim.Slot{a}, listed(), "it is taken, and listed")
		time.Sleep(1)
		require.Empty(t, listed())
		require.Equal(t, 1, s.Held())
		for range 2 {
			require.NoError(t, s.Return(t.Context(), a))
		}
		require.Zero(t, s.Held())
		require.Equal(t, StoreTally{Claims: 3, Granted: 1, Conflicts: 1, Returned: 1, Listings: 4}, s.Tally())
	})
}

// Doubled counts what the history shows: two who had a slot at the same time, but not one after the other, nor two
// lives of one name.
func TestStaleStoreDoubled(t *testing.T) {
	for name, c := range map[string]struct {
		grants []grant
		want   int
	}{
		"one after the other": {[]grant{{"a", 1, 1, 5}, {"a", 1, 6, 0}}, 0},
		"two lives":           {[]grant{{"a", 1, 1, 0}, {"a", 2, 3, 0}}, 0},
		"two slots":           {[]grant{{"a", 1, 1, 0}, {"b", 1, 3, 0}}, 0},
		"while it is held":    {[]grant{{"a", 1, 1, 0}, {"a", 1, 3, 0}}, 1},
		"before it is back":   {[]grant{{"a", 1, 1, 4}, {"a", 1, 3, 0}, {"a", 1, 9, 0}}, 2},
	} {
		require.Equal(t, c.want, (&StaleStore{grants: c.grants}).Doubled(), name)
	}
}
