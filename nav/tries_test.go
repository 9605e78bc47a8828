package nav

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// Plans share their tries among work that always fails, while new work comes. No plan makes more tries than it may, new
// work is tried in its order and before work that has failed takes more than half, and nothing waits longer than a turn
// of all that fail.
func TestTriesAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tries := rapid.IntRange(2, 8).Draw(t, "tries")
		var failed []uint64
		var waited []int // plans since the last try
		for plan := uint64(1); plan <= 100; plan++ {
			for range rapid.IntRange(0, 2).Draw(t, "come") {
				at := rapid.IntRange(0, len(failed)).Draw(t, "at")
				failed, waited = slices.Insert(failed, at, 0), slices.Insert(waited, at, 0)
			}
			again, left := shareTries(failed, tries)
			made, skipped := 0, false
			for i := range failed {
				fresh := failed[i] == 0
				switch {
				case fresh && left > 0:
					require.False(t, skipped)
					left--
				case fresh:
					skipped = true
					require.GreaterOrEqual(t, made, tries/2, "work that has not failed waits for no work that has")
					continue
				case !again[i]:
					waited[i]++
					require.LessOrEqual(t, waited[i], len(failed)/(tries/2)+1, "each gets its turn")
					continue
				}
				made++
				failed[i], waited[i] = plan, 0
			}
			require.Equal(t, min(tries, len(failed)), made, "no try is wasted, and none is too many")
		}
	})
}

// Tries that cost differently are shared too: what is tried again costs no more than it may together, and each gets its
// turn, though others cost less.
func TestCostsAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const each = 10
		most := each * rapid.IntRange(1, 4).Draw(t, "most")
		costs := rapid.SliceOfN(rapid.IntRange(1, each), 1, 30).Draw(t, "costs")
		past, waited := make([]pastTry, len(costs)), make([]int, len(costs))
		for i := range past {
			past[i] = pastTry{uint64(1 + rapid.IntRange(0, 3).Draw(t, "failed")), costs[i]}
		}
		for plan := uint64(5); plan < 100; plan++ {
			again, spent := shareCost(past, most)
			sum := 0
			for i := range past {
				if waited[i]++; again[i] {
					sum += past[i].cost
					past[i].failed, waited[i] = plan, 0
				}
				require.LessOrEqual(t, waited[i], len(past)*each/most+len(past), "each gets its turn")
			}
			require.Equal(t, sum, spent)
			require.LessOrEqual(t, spent, most)
			require.Positive(t, spent)
		}
	})
}

// Whatever joins, changes and leaves: a spec exceeds all nodes if it asks for more of something than each of them has.
func TestWhatExceedsAllNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, v, draft := &orbit.MemoryLedger{}, &orbit.View{}, &orbit.Draft{}
		var x seats.Topology
		amount := rapid.Int64Range(0, 5)
		for range 20 {
			id := orbit.NodeID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node"))
			do := orbit.Commitment(orbit.RemoveNode{Node: id})
			if rapid.IntRange(0, 2).Draw(t, "leaves") > 0 {
				n := orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: amount.Draw(t, "cpu"), orbit.Memory: amount.Draw(t, "memory")}}
				if n.Devices.Count = rapid.IntRange(0, 3).Draw(t, "devices"); n.Devices.Count > 0 {
					n.Devices.Model = "m"
				}
				do = orbit.PutNode{Node: n}
			}
			_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{do}})
			if rapid.Bool().Draw(t, "not yet") {
				continue
			}
			require.NoError(t, v.Refresh(t.Context(), l, nil, time.Unix(1, 0)))
			draft.Sync(v)
			x.Begin(draft, 100)
			x.Follow()
			s := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: amount.Draw(t, "wants cpu"), orbit.Memory: amount.Draw(t, "wants memory")}}}
			s.Devices.Count = rapid.IntRange(0, 3).Draw(t, "wants devices")
			var cpu, memory int64
			devices := 0
			for n := range v.State().Nodes() {
				cpu, memory, devices = max(cpu, n.Node.Capacity[orbit.CPU]), max(memory, n.Node.Capacity[orbit.Memory]), max(devices, n.Node.Devices.Count)
			}
			want := &s.Envelope.Reservation
			require.Equal(t, want[orbit.CPU] > cpu || want[orbit.Memory] > memory || s.Devices.Count > devices, x.ExceedsAll(s))
		}
	})
}
