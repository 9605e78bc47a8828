package diskledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/internal/scale"
)

// Placements are written as Change.MarshalJSON writes them, and read as UnmarshalJSON reads them, also if a byte is another.
func TestPlacementsInShort(t *testing.T) {
	plain := rapid.StringMatching(`[a-z0-9-]{1,9}`)
	text := rapid.OneOf(plain, plain, plain, plain, plain, plain, plain, plain, rapid.Just(""), rapid.Just("é<\n"))
	for outcomes := range scale.Reach(t, "read in short", "read otherwise") {
		rapid.Check(t, func(t *rapid.T) {
			place := orbit.Place{
				Capsule: orbit.CapsuleID(text.Draw(t, "capsule")), Node: orbit.NodeID(text.Draw(t, "node")),
				Note: text.Draw(t, "note"), At: orbit.Instant(rapid.SampledFrom([]int64{0, 1, 12345, 12346, 1e18, -1}).Draw(t, "at")),
				Devices: orbit.DeviceSet(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 3}).Draw(t, "devices")), After: rapid.IntRange(0, 9).Draw(t, "after") == 0,
			}
			change := orbit.Change{
				Revision: orbit.Revision(rapid.SampledFrom([]int{1, 7, 70, 8, 9, 0}).Draw(t, "revision")), Seq: rapid.IntRange(0, 2).Draw(t, "seq"),
				ID: orbit.ProposalID{rapid.Byte().Draw(t, "id")}, Do: place, Node: orbit.NodeID(text.Draw(t, "of")),
			}
			want, err := change.MarshalJSON()
			require.NoError(t, err)
			line, err := diskledger.AppendChange([]byte("before"), &change)
			require.NoError(t, err)
			require.Equal(t, "before"+string(want), string(line))
			line = line[len("before"):]
			if rapid.Bool().Draw(t, "damage") {
				line[rapid.IntRange(0, len(line)-1).Draw(t, "where")] = rapid.SampledFrom([]byte("0aA\\\"{}:,\x00\xff")).Draw(t, "byte")
			}
			got, ok := diskledger.ReadPlacement(line)
			if !ok {
				outcomes["read otherwise"]++
				return
			}
			outcomes["read in short"]++
			var slow orbit.Change
			require.NoError(t, slow.UnmarshalJSON(line), "%s", line)
			require.Equal(t, slow, got)
		})
	}
}
