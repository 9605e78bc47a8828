package sim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

func TestConstellation(t *testing.T) {
	nodes := sim.Constellation(sim.Fleet{Seed: 1, Nodes: 2000})
	require.Len(t, nodes, 2000)
	kinds, zones, racks := map[string]int{}, map[string]int{}, map[string]int{}
	for i, n := range nodes {
		require.Equal(t, orbit.NodeID(fmt.Sprintf("node-%06d", i)), n.ID)
		kinds[n.Labels["kind"]]++
		zones[n.Labels["zone"]]++
		racks[n.Labels["rack"]]++
		require.True(t, strings.HasPrefix(n.Labels["rack"], n.Labels["block"]+"-"))
		require.True(t, strings.HasPrefix(n.Labels["block"], n.Labels["zone"]+"-"))
	}
	require.Equal(t, map[string]int{"standard": 1000, "large": 500, "memory": 200, "arm": 200, "gpu": 100}, kinds)
	require.Equal(t, map[string]int{"z1": 667, "z2": 667, "z3": 666}, zones)
	for rack, n := range racks {
		require.LessOrEqual(t, n, 20, rack)
	}
	require.Len(t, racks, 3*34)
	require.Equal(t, nodes, sim.Constellation(sim.Fleet{Seed: 1, Nodes: 2000}), "the same seed gives the same")
	require.NotEqual(t, nodes, sim.Constellation(sim.Fleet{Seed: 2, Nodes: 2000}))
	require.Empty(t, sim.Constellation(sim.Fleet{}))
	odd := sim.Constellation(sim.Fleet{Nodes: 9, Kinds: []sim.Kind{{Name: "a"}, {Name: "b", Weight: -1}}})
	require.Len(t, odd, 9, "weights that say nothing make all kinds alike")
}

func TestWorkload(t *testing.T) {
	classes := sim.Workload(sim.Mix{Seed: 1, Capsules: 100_000, Classes: 100})
	require.Len(t, classes, 100)
	trades := map[string]int{}
	for _, c := range classes {
		require.Positive(t, c.Count)
		trades[strings.Split(c.Spec.Module, "-")[0]] += c.Count
	}
	for trade, want := range map[string]int{"service": 30_000, "sweep": 51_000, "besteffort": 18_000, "device": 1_000} {
		require.InDelta(t, want, trades[trade], 50, trade)
	}
	capsules := sim.Expand(classes)
	require.Len(t, capsules, 100_000)
	require.Equal(t, orbit.CapsuleID("service-0000-000000"), capsules[0].ID)
	require.Same(t, capsules[0].Spec, capsules[1].Spec)
	again := sim.Expand(sim.Workload(sim.Mix{Seed: 1, Capsules: 100_000, Classes: 100}))
	require.Equal(t, capsules, again)
	sim.Shuffle(capsules, 7)
	sim.Shuffle(again, 7)
	require.Equal(t, capsules, again)
	require.NotEqual(t, capsules[0].Spec, capsules[1].Spec)
}

// Numbers add up, whatever they are.
func TestCountsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := sim.Mix{
			Seed: rapid.Uint64().Draw(t, "seed"), Capsules: rapid.IntRange(0, 3000).Draw(t, "capsules"),
			Classes: rapid.IntRange(1, 200).Draw(t, "classes"), Zones: rapid.IntRange(1, 5).Draw(t, "zones"),
		}
		classes := sim.Workload(m)
		require.Len(t, classes, m.Classes)
		require.Len(t, sim.Expand(classes), m.Capsules)
		f := sim.Fleet{Nodes: rapid.IntRange(0, 300).Draw(t, "nodes"), Zones: m.Zones, NodesPerRack: rapid.IntRange(1, 9).Draw(t, "rack")}
		nodes := sim.Constellation(f)
		require.Len(t, nodes, f.Nodes)
		for _, n := range nodes {
			require.NotEmpty(t, n.Labels["kind"])
		}
	})
}

// A ledger takes all of it, there is a node for every class, and 20 capsules a node leave room.
func TestWorkloadFitsConstellation(t *testing.T) {
	for seed := range uint64(20) {
		nodes := sim.Constellation(sim.Fleet{Seed: seed, Nodes: 200})
		classes := sim.Workload(sim.Mix{Seed: seed, Capsules: 4000, Classes: 60})
		state := joined(t, nodes)
		var have, want orbit.Resources
		for _, n := range nodes {
			have, _ = have.Add(n.Capacity)
		}
		milli := int64(0)
		for _, c := range classes {
			fits := 0
			for n := range state.Nodes() {
				if n.Fits(c.Spec) {
					fits++
				}
			}
			require.Greater(t, fits, 5, c.Spec.Module)
			milli += int64(c.Count) * sim.DeviceDemand(c.Spec)
			for range c.Count {
				want, _ = want.Add(c.Spec.Envelope.Reservation)
			}
		}
		for d := range 4 {
			require.Less(t, float64(want[d]), 0.5*float64(have[d]), "seed %d, %s", seed, state.DimensionName(d))
		}
		require.Less(t, 2*milli, sim.DeviceCapacity(nodes))
	}
}

// joined returns the state of a ledger that the nodes have joined.
func joined(t testing.TB, nodes []orbit.Node) *orbit.State {
	t.Helper()
	var ledger orbit.MemoryLedger
	p := orbit.Proposal{}
	for _, n := range nodes {
		p.Do = append(p.Do, orbit.PutNode{Node: n})
	}
	_, err := ledger.Propose(context.Background(), p)
	require.NoError(t, err)
	state, err := ledger.Snapshot(context.Background())
	require.NoError(t, err)
	return state
}

// The made-up trace has openb's totals within 5%.
func TestOpenbLike(t *testing.T) {
	nodes, pods := sim.OpenbLike(1, 1)
	require.Len(t, nodes, 1213)
	require.Len(t, pods, 8152)
	within := func(what string, want, got int64) {
		require.InEpsilon(t, want, got, 0.05, what)
	}
	within("device capacity", 6_212_000, sim.DeviceCapacity(nodes))
	within("device demand", 6_086_800, demand(pods))
	var have, want orbit.Resources
	for _, n := range nodes {
		have, _ = have.Add(n.Capacity)
	}
	for _, p := range pods {
		want, _ = want.Add(p.Spec.Envelope.Reservation)
	}
	within("cpu capacity", 107_018_000, have[orbit.CPU])
	within("cpu demand", 85_436_012, want[orbit.CPU])
	within("memory capacity", 503_828_480, have[orbit.Memory]>>20)
	within("memory demand", 303_546_211, want[orbit.Memory]>>20)
	joined(t, nodes)

	again, _ := sim.OpenbLike(1, 1)
	require.Equal(t, nodes, again)
	small, few := sim.OpenbLike(1, 0.1)
	require.Len(t, small, 121)
	require.Len(t, few, 815)
	nodes, _ = sim.OpenbLike(1, -1)
	require.Len(t, nodes, 1213)
}

// A large constellation: generating it must not be what one waits for.
func BenchmarkGenerate(b *testing.B) {
	b.Run("nodes=50000", func(b *testing.B) {
		for b.Loop() {
			sim.Constellation(sim.Fleet{Nodes: 50_000})
		}
	})
	b.Run("capsules=1000000", func(b *testing.B) {
		for b.Loop() {
			capsules := sim.Expand(sim.Workload(sim.Mix{Capsules: 1_000_000, Classes: 1000}))
			sim.Shuffle(capsules, 1)
		}
	})
}
