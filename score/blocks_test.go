package score_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

func value(s orbit.Score, n *orbit.NodeState, spec *orbit.Spec) float64 {
	v, _ := s.Score(n, &orbit.Report{}, spec)
	return v
}

func TestFill(t *testing.T) {
	n := nodeWith(t, gpuNode(), spec(24_000, 96*gib), devices(spec(0, 0), 1, 1000)) // a quarter, a quarter, an eighth
	for _, c := range []struct {
		name          string
		spec          *orbit.Spec
		least, spread float64
	}{
		{"nothing", spec(0, 0), 0, 0},
		{"cpu alone", spec(24_000, 0), 0.5, 0},
		{"cpu and memory alike", spec(24_000, 96*gib), 0.5, 0},
		{"cpu more than memory", spec(48_000, 96*gib), 0.625, 0.25},
		{"devices count as one dimension", devices(spec(24_000, 0), 2, 500), 0.375, 0.25},
		{"full", spec(72_000, 288*gib), 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.InDelta(t, c.least, value(score.LeastAllocated{}, n, c.spec), 1e-12)
			require.InDelta(t, 1-c.least, value(score.MostAllocated{}, n, c.spec), 1e-12)
			require.InDelta(t, c.spread, value(score.Balance{}, n, c.spec), 1e-12)
		})
	}
}

func TestPreferences(t *testing.T) {
	n := nodeWith(t, gpuNode())
	in := func(key, val string, weight float64) orbit.Preference {
		return orbit.Preference{Predicate: orbit.Predicate{Key: key, Op: "In", Values: []string{val}}, Weight: weight}
	}
	for _, c := range []struct {
		name string
		wish []orbit.Preference
		want float64
	}{
		{"none", nil, 0},
		{"met", []orbit.Preference{in("zone", "z1", 3)}, 0},
		{"unmet", []orbit.Preference{in("zone", "z2", 3)}, 1},
		{"three of four", []orbit.Preference{in("zone", "z1", 3), in("disk", "hdd", 1)}, 0.25},
		{"avoided", []orbit.Preference{in("zone", "z2", -1)}, 0},
		{"not avoided", []orbit.Preference{in("zone", "z1", -1), in("disk", "ssd", 1)}, 0.5},
		{"without weight", []orbit.Preference{in("zone", "z2", 0)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, value(score.Preferences{}, n, &orbit.Spec{Prefer: c.wish}))
		})
	}
}

func TestDomains(t *testing.T) {
	n := nodeWith(t, gpuNode())
	for _, c := range []struct {
		spread orbit.Domains
		want   float64
	}{
		{orbit.Domains{}, 0},
		{orbit.Domains{Level: "zone"}, 0},
		{orbit.Domains{Level: "zone", Names: []string{"z0", "z1"}}, 0},
		{orbit.Domains{Level: "zone", Names: []string{"z0"}}, 1},
		{orbit.Domains{Level: "rack", Names: []string{""}}, 1},
	} {
		require.Equal(t, c.want, value(score.Domains{}, n, &orbit.Spec{Spread: c.spread}), "%+v", c.spread)
	}
}

func TestCrowding(t *testing.T) {
	s := spec(1, 0)
	require.Zero(t, value(score.Crowding{}, nodeWith(t, gpuNode()), s))
	n := nodeWith(t, gpuNode(), s, s)
	require.Equal(t, 0.5, value(score.Crowding{Half: 2}, n, s))
	require.InDelta(t, 2.0/12, value(score.Crowding{}, n, s), 1e-12)
}

// Building blocks stay within 0 and 1 whatever the node and the spec, also where the capsule does not fit
// or capacity has shrunk below what is used.
func TestBlocksStayInRange(t *testing.T) {
	blocks := []orbit.Score{
		score.LeastAllocated{}, score.MostAllocated{}, score.Balance{},
		score.Preferences{}, score.Domains{}, score.Crowding{}, score.Crowding{Half: -3},
	}
	rapid.Check(t, func(rt *rapid.T) {
		amount := rapid.Int64Range(0, 100)
		node := orbit.Node{ID: "n", Labels: map[string]string{"zone": "z1"}, Devices: orbit.Devices{Model: "m", Count: rapid.IntRange(0, 8).Draw(rt, "devices")}}
		for d := range node.Capacity {
			node.Capacity[d] = amount.Draw(rt, "capacity")
		}
		n := nodeWith(t, node)
		s := devices(&orbit.Spec{}, rapid.IntRange(0, 8).Draw(rt, "count"), rapid.IntRange(1, 1000).Draw(rt, "milli"))
		for d := range s.Envelope.Reservation {
			s.Envelope.Reservation[d] = amount.Draw(rt, "want")
		}
		for i := range rapid.IntRange(0, 3).Draw(rt, "preferences") {
			p := orbit.Predicate{Key: "zone", Op: "In", Values: []string{fmt.Sprint("z", i)}}
			s.Prefer = append(s.Prefer, orbit.Preference{Predicate: p, Weight: rapid.Float64Range(-1e9, 1e9).Draw(rt, "weight")})
		}
		for _, b := range blocks {
			v, tie := b.Score(n, &orbit.Report{}, s)
			require.Zero(rt, tie)
			require.True(rt, v >= 0 && v <= 1, "%T gives %v", b, v)
		}
	})
}

// A rejected dimension is rated as full, not as overfull: capacity 0 would divide by 0.
func TestFillWithoutCapacity(t *testing.T) {
	n := nodeWith(t, orbit.Node{ID: "n"})
	require.Equal(t, 1.0, value(score.LeastAllocated{}, n, devices(spec(1, 1), 1, 1)))
}

func TestScoresDoNotAllocate(t *testing.T) {
	n, s := nodeWith(t, gpuNode(), spec(1000, gib)), devices(spec(1000, gib), 1, 500)
	s.Spread = orbit.Domains{Level: "zone", Names: []string{"z1"}}
	for _, b := range everyScore() {
		require.Zero(t, testing.AllocsPerRun(100, func() { b.Score(n, nil, s) }), "%T", b)
	}
}

func everyScore() []orbit.Score {
	return []orbit.Score{
		score.BestFit{}, score.DotProduct{}, score.Random{}, score.LeastAllocated{}, score.MostAllocated{},
		score.Balance{}, score.Preferences{}, score.Domains{}, score.Crowding{}, toldOfMuch(),
	}
}

func BenchmarkScore(b *testing.B) {
	n := nodeWith(b, gpuNode(), spec(1000, gib))
	s := devices(spec(1000, gib), 1, 500)
	s.Module, s.Spread = "service-0001", orbit.Domains{Level: "zone", Names: []string{"z1"}}
	for _, sc := range append(everyScore(), score.Spread{}) {
		b.Run(fmt.Sprintf("%T", sc), func(b *testing.B) {
			b.ReportAllocs()
			sum := 0.0
			for b.Loop() {
				v, _ := sc.Score(n, nil, s)
				sum += v
			}
			_ = sum
		})
	}
}
