//go:build !race

package sim_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim"
)

// The openb experiment in its dumbest form: no loop, no engine; for each capsule one call of the score per
// feasible node, the first best by id, straight into a ledger. What the loop gives must agree with it.
// With -tags stress all of the ten seeds run, else one. There is nothing concurrent in it, and the race detector
// makes it twenty times slower, so it is left out there.
func TestOpenbPolicies(t *testing.T) {
	scale.Long(t)
	nodes, pods := openb(t)
	var specs []*orbit.Spec
	for _, p := range pods {
		specs = append(specs, p.Spec)
	}
	typical := score.Typical(specs)
	seeds := scale.Of(1, 10)
	for _, c := range []struct {
		name      string
		published float64
		tolerance float64 // of the mean of ten seeds
		policy    func(seed uint64) orbit.Score
	}{
		{"bestfit", 93.08, 0.35, func(uint64) orbit.Score { return score.BestFit{} }},
		{"fgd", 95.39, 0.35, func(uint64) orbit.Score { return score.FGD{Typical: typical} }},
		{"dotprod", 90.85, 0.35, func(uint64) orbit.Score { return score.DotProduct{} }},
		{"random", 87.47, 0.6, func(seed uint64) orbit.Score { return score.Random{Seed: seed} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sum := 0.0
			for seed := uint64(42); seed < uint64(42+seeds); seed++ {
				arrivals, err := sim.Inflate(pods, sim.DeviceCapacity(nodes), 1.3, seed)
				require.NoError(t, err)
				percent := 100 * float64(replay(t, nodes, arrivals, c.policy(seed))) / float64(sim.DeviceCapacity(nodes))
				t.Logf("seed %d: %.2f%%", seed, percent)
				sum += percent
			}
			slack := c.tolerance + 0.6*(1/math.Sqrt(float64(seeds))-1/math.Sqrt(10)) // fewer seeds, more noise
			t.Logf("mean of %d: %.2f%%, published %.2f%%", seeds, sum/float64(seeds), c.published)
			require.InDelta(t, c.published, sum/float64(seeds), slack)
		})
	}
}

// replay places what fits and returns the device milli that it takes.
func replay(t *testing.T, nodes []orbit.Node, arrivals []sim.Capsule, policy orbit.Score) (milli int64) {
	var ledger orbit.MemoryLedger
	ctx := context.Background()
	propose := func(do ...orbit.Commitment) *orbit.State {
		_, err := ledger.Propose(ctx, orbit.Proposal{Do: do})
		require.NoError(t, err)
		state, err := ledger.Snapshot(ctx)
		require.NoError(t, err)
		return state
	}
	var join []orbit.Commitment
	for _, n := range nodes {
		join = append(join, orbit.PutNode{Node: n})
	}
	var states []*orbit.NodeState // by id
	state := propose(join...)
	for n := range state.Nodes() {
		states = append(states, n)
	}
	for i, c := range arrivals {
		best, low := -1, math.Inf(1)
		if lots, ok := policy.(score.Random); ok {
			policy, _ = lots.Draw(uint64(i))
		}
		for i, n := range states {
			if !n.Fits(c.Spec) {
				continue
			}
			if v, _ := policy.Score(n, nil, c.Spec); v < low {
				best, low = i, v
			}
		}
		if best < 0 {
			continue
		}
		id := states[best].Node.ID
		set := pick(t, policy, states[best], c.Spec)
		state = propose(orbit.Submit{IDs: []orbit.CapsuleID{c.ID}, Spec: c.Spec}, orbit.Place{Capsule: c.ID, Node: id, Devices: set})
		states[best] = state.Node(id)
		milli += sim.DeviceDemand(c.Spec)
	}
	require.NoError(t, state.Verify())
	return milli
}

// pick asks the policy for the device instances, if it chooses them, and else the node.
func pick(t *testing.T, policy orbit.Score, n *orbit.NodeState, spec *orbit.Spec) orbit.DeviceSet {
	picker, chooses := policy.(interface {
		PickDevices(*orbit.NodeState, *orbit.Spec) (orbit.DeviceSet, bool)
	})
	if chooses {
		if set, ok := picker.PickDevices(n, spec); ok {
			return set
		}
	}
	set, ok := n.PickDevices(spec)
	require.True(t, ok)
	return set
}
