package sandbox_test

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// slotted is a node that has so many free slots, and a spec that starts from the template.
func slotted(t testing.TB, free int64) (*orbit.NodeState, *orbit.Spec) {
	l := &orbit.MemoryLedger{}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.Slots: free}}})
	return snapshot(t, l).Node("n"), &orbit.Spec{Start: orbit.Start{Template: "code-interpreter"}}
}

// reported is a report of warm slots of the template, beside some of another one.
func reported(warm, free int, cpu float64) *orbit.Report {
	return &orbit.Report{
		Node: "n", At: time.Unix(1, 0), FreeSlots: free, CPUPercent: cpu,
		Warm: map[string]int{"code-interpreter": warm, "browser": 99},
	}
}

// The worked example: 1817.9 against 521.8, to the last bit.
func TestWarmSlotsWorkedExample(t *testing.T) {
	n, s := slotted(t, 16_384)
	pz20, tie := sandbox.WarmSlots{}.Score(n, reported(18, 21, 31), s)
	require.Equal(t, -1817.9, pz20)
	require.Equal(t, 31.0, tie)
	n1v2, tie := sandbox.WarmSlots{}.Score(n, reported(5, 23, 12), s)
	require.Equal(t, -521.8, n1v2)
	require.Equal(t, 12.0, tie)
	require.Less(t, pz20, n1v2)
}

// The score's own numbers outweigh its malus for staleness.
func TestWarmSlotsStaleCanWin(t *testing.T) {
	n, s := slotted(t, 16_384)
	old := reported(18, 21, 31)
	old.Stale = true
	stale, _ := sandbox.WarmSlots{}.Score(n, old, s)
	fresh, _ := sandbox.WarmSlots{}.Score(n, reported(5, 23, 12), s)
	require.Equal(t, -817.9, stale)
	require.Less(t, stale, fresh)
}

// Free slots are the lesser of ledger and report; without telemetry those of the ledger.
func TestWarmSlotsLesserOfLedgerAndReport(t *testing.T) {
	n, s := slotted(t, 7)
	for _, c := range []struct {
		name   string
		report *orbit.Report
		want   float64
	}{
		{"the ledger has less", reported(0, 21, 0), -7},
		{"the report has less", reported(0, 3, 0), -3},
		{"a full node", reported(0, 0, 0), 0},
		{"no telemetry", &orbit.Report{}, -7},
		{"a node that has said nothing", &orbit.Report{Node: "n", Stale: true}, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			value, _ := sandbox.WarmSlots{}.Score(n, c.report, s)
			require.Equal(t, c.want, value)
		})
	}
	none, _ := sandbox.WarmSlots{}.Score(n, reported(18, 3, 0), &orbit.Spec{})
	require.Equal(t, -3.0, none, "a capsule without a template finds nothing warm")
}

// One warm slot goes before any number of idle ones that a node can have below a hundred; equal values tie on CPU.
func TestWarmSlotsOrder(t *testing.T) {
	var s sandbox.WarmSlots
	warm, _ := s.Rate(1, 1, 100, false)
	idle, _ := s.Rate(0, 90, 0, false)
	require.Less(t, warm, idle)
	a, tieA := s.Rate(0, 10, 0, false)
	b, tieB := s.Rate(0, 11, 10, false)
	require.Equal(t, a, b)
	require.Less(t, tieA, tieB)
}

// WarmFirst: the worked example goes the same way; one warm slot goes before any number of idle ones; a stale
// node goes behind unless it has ten warm slots; within a rank it orders as WarmSlots does.
func TestWarmFirstOrder(t *testing.T) {
	n, s := slotted(t, 16_384)
	pz20, tie := sandbox.WarmFirst{}.Score(n, reported(18, 21, 31), s)
	n1v2, _ := sandbox.WarmFirst{}.Score(n, reported(5, 23, 12), s)
	require.Equal(t, 31.0, tie)
	require.InDelta(t, 1817.9-521.8, n1v2-pz20, 0.001)
	rate := func(warm int, free int64, stale bool) float64 {
		value, _ := sandbox.WarmFirst{}.Rate(warm, free, 50, stale)
		return value
	}
	require.Less(t, rate(1, 1, false), rate(0, 1<<50, false))
	require.Less(t, rate(11, 1, true), rate(0, 1<<50, false))
	require.Less(t, rate(0, 1, false), rate(9, 1<<50, true))
	require.Less(t, rate(0, 2, false), rate(10, 1, true))
	require.Less(t, rate(10, 2, true), rate(0, 1, false))
	rapid.Check(t, func(t *rapid.T) {
		rank := func(warm int, stale bool) int {
			malus, _ := sandbox.WarmSlots{}.Rate(warm, 0, 0, stale)
			return cmp.Compare(malus, 0)
		}
		warm, free, cpu := rapid.IntRange(0, 30), rapid.Int64Range(0, 16_384), rapid.IntRange(0, 100)
		a, b := [2]float64{}, [2]float64{}
		ranks := [2]int{}
		for i := range 2 {
			w, f, c, stale := warm.Draw(t, "warm"), free.Draw(t, "free"), float64(cpu.Draw(t, "cpu")), rapid.Bool().Draw(t, "stale")
			a[i], _ = sandbox.WarmSlots{}.Rate(w, f, c, stale)
			b[i], _ = sandbox.WarmFirst{}.Rate(w, f, c, stale)
			ranks[i] = rank(w, stale)
		}
		want := cmp.Or(cmp.Compare(ranks[0], ranks[1]), cmp.Compare(a[0], a[1]))
		require.True(t, cmp.Compare(b[0], b[1]) == want || math.Abs(a[0]-a[1]) < 0.001)
	})
}

// Neither gets better by warm slots or free slots that go, by load or by staleness, whatever the numbers: what
// sandbox.Warm relies on when it leaves a node where it stood until it is looked at.
func TestWarmSlotsMonotone(t *testing.T) {
	t.Run("WarmSlots", func(t *testing.T) { monotone(t, sandbox.WarmSlots{}) })
	t.Run("WarmFirst", func(t *testing.T) { monotone(t, sandbox.WarmFirst{}) })
}

func monotone(t *testing.T, s interface {
	Rate(warm int, free int64, cpu float64, stale bool) (value, tie float64)
}) {
	rapid.Check(t, func(t *rapid.T) {
		warm, free := rapid.IntRange(0, math.MaxInt).Draw(t, "warm"), rapid.Int64().Draw(t, "free")
		cpu := rapid.Float64Range(0, 1e300).Draw(t, "cpu")
		value, tie := s.Rate(warm, free, cpu, false)
		require.Equal(t, cpu, tie)
		less, _ := s.Rate(rapid.IntRange(0, warm).Draw(t, "less warm"), rapid.Int64Range(math.MinInt64, free).Draw(t, "less free"), cpu, rapid.Bool().Draw(t, "stale"))
		require.GreaterOrEqual(t, less, value)
		busy, _ := s.Rate(warm, free, cpu*rapid.Float64Range(1, 2).Draw(t, "more"), false)
		require.GreaterOrEqual(t, busy, value)
	})
	value, _ := s.Rate(1, 1, math.NaN(), false)
	require.True(t, math.IsNaN(value))
}

// It allocates nothing.
func TestWarmSlotsDoesNotAllocate(t *testing.T) {
	n, s := slotted(t, 7)
	r := reported(1, 2, 3)
	require.Zero(t, testing.AllocsPerRun(100, func() { sandbox.WarmSlots{}.Score(n, r, s) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { sandbox.WarmFirst{}.Score(n, r, s) }))
}
