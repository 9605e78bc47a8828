package score_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

func TestBestFit(t *testing.T) {
	n := nodeWith(t, gpuNode(), spec(6000, 0), devices(spec(2000, 0), 1, 500))
	// 100·(1 - [½·(88000-8000)/128000 + ½·(7500-500)/8000]) = 25.0
	v, tie := score.BestFit{}.Score(n, &orbit.Report{}, devices(spec(8000, 0), 1, 500))
	require.Equal(t, -25.0, v)
	require.Zero(t, tie)
	// One milli-core more is left: 24.9996 is cut to 24.
	v, _ = score.BestFit{}.Score(n, &orbit.Report{}, devices(spec(7999, 0), 1, 500))
	require.Equal(t, -24.0, v)
	// Machines of another size: 100·(1 - [½·80000/80000 + ½·7000/7000]).
	v, _ = score.BestFit{CPUMax: 80000, DeviceMax: 7000}.Score(n, &orbit.Report{}, devices(spec(8000, 0), 1, 500))
	require.Zero(t, v)
}

func TestDotProduct(t *testing.T) {
	n := nodeWith(t, gpuNode(), spec(32000, 0), devices(spec(0, 0), 4, 1000))
	// 100·(1 - (64000·64000/128000² + 4000·2000/8000²)/2) = 81.25
	v, tie := score.DotProduct{}.Score(n, &orbit.Report{}, devices(spec(64000, 0), 2, 1000))
	require.Equal(t, -81.0, v)
	require.Zero(t, tie)
	v, _ = score.DotProduct{CPUMax: 64000, DeviceMax: 4000}.Score(n, &orbit.Report{}, devices(spec(64000, 0), 4, 1000))
	require.Zero(t, v)
}

// What is out of order is not free.
func TestUnhealthyDevicesAreNotFree(t *testing.T) {
	sick := gpuNode()
	sick.Devices.Unhealthy = 0b1111
	v, _ := score.BestFit{}.Score(nodeWith(t, sick), &orbit.Report{}, devices(spec(96000, 0), 4, 1000))
	require.Equal(t, -100.0, v)
}

func TestRandomIsPure(t *testing.T) {
	a, b := nodeWith(t, gpuNode()), nodeWith(t, gpuNode())
	s := devices(spec(1000, 0), 1, 500)
	draw := func(r score.Random, n *orbit.NodeState, s *orbit.Spec) float64 {
		v, tie := r.Score(n, &orbit.Report{}, s)
		require.Zero(t, tie)
		require.True(t, v >= 0 && v < 1)
		return v
	}
	first := draw(score.Random{}, a, s)
	require.Equal(t, first, draw(score.Random{}, b, s), "another ledger, the same node")
	require.NotEqual(t, first, draw(score.Random{Seed: 1}, a, s))
	require.NotEqual(t, first, draw(score.Random{}, a, spec(1000, 0)), "another spec")
	require.NotEqual(t, first, draw(score.Random{}, nodeWith(t, gpuNode(), spec(0, 0)), s), "a capsule more")
	require.NotEqual(t, first, draw(score.Random{}, nodeWith(t, gpuNode(), s), s), "after placing")
	other := gpuNode()
	other.ID = "node-2"
	require.NotEqual(t, first, draw(score.Random{}, nodeWith(t, other), s))
}

// Of 100 nodes each is drawn first about as often as any other, over many specs and seeds.
func TestRandomIsUniform(t *testing.T) {
	const nodes, draws = 100, 20_000
	state := constellation(t, nodes)
	wins := make([]int, nodes)
	for i := range draws {
		s, best, low := spec(int64(i%100), 0), 0, 2.0
		for j := range nodes {
			if v, _ := (score.Random{Seed: uint64(i / 100)}).Score(state.NodeByIndex(j), nil, s); v < low {
				best, low = j, v
			}
		}
		wins[best]++
	}
	chi2 := 0.0
	for _, n := range wins {
		d := float64(n) - draws/nodes
		chi2 += d * d / (draws / nodes)
	}
	require.Less(t, chi2, 160.0, "99 degrees of freedom: above 160 with a chance of 1 in 10,000")
}
