package score_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
)

// states invents nodes that are alike in labels, with some of their capacity taken: all of it, too, and more.
func states(t require.TestingT, r *rand.Rand, n int, labels map[string]string, huge bool) []*orbit.NodeState {
	dims := 1 + r.IntN(orbit.Dimensions)
	crowds := 1 + 3*r.IntN(2) // often all have the same number of capsules, so that fractions matter
	near := r.IntN(2) == 0    // sizes are far from each other, or near
	var do []orbit.Commitment
	for i := range n {
		id := orbit.NodeID(fmt.Sprint("n", i))
		node := orbit.Node{ID: id, Labels: labels, Devices: orbit.Devices{Model: "m", Count: r.IntN(4)}}
		hold := orbit.Hold{ID: orbit.HoldID(id), Node: id, Ends: time.Unix(5000, 0)}
		shrunk := node
		for d := range dims {
			size, used := sizes(r, near, huge)
			node.Capacity[d], shrunk.Capacity[d], hold.Room[d] = size, size, used
			if !near && r.IntN(20) == 0 {
				shrunk.Capacity[d] /= 2
			}
		}
		if r.IntN(2) == 0 {
			hold.Devices, hold.Milli = orbit.DeviceSet(r.IntN(1<<node.Devices.Count)), 1+r.IntN(1000)
		}
		if hold.Devices == 0 {
			hold.Milli = 0
		}
		do = append(do, orbit.PutNode{Node: node})
		if hold.Room != (orbit.Resources{}) || hold.Devices != 0 {
			do = append(do, hold)
		}
		do = append(do, company(id, r.IntN(crowds))...)
		do = append(do, orbit.PutNode{Node: shrunk})
	}
	return slices.Collect(stateAfter(t, do...).Nodes())
}

// sizes invents the capacity in a dimension, and how much of it is taken.
func sizes(r *rand.Rand, near, huge bool) (size, used int64) {
	if near {
		size = 1<<53 - 1 - r.Int64N(5)*int64(1+r.IntN(2))
		if huge {
			size += 7
		}
		if r.IntN(4) == 0 {
			used = size
		}
		return size, used
	}
	size = []int64{0, 1, 7, 1000, 1<<40 + 1, 1<<53 - 1}[r.IntN(6)]
	if huge {
		size = hugeNumbers[r.IntN(len(hugeNumbers))]
	}
	return size, []int64{0, 0, size, size / 2, min(size, 1), min(size, 3)}[r.IntN(6)]
}

// extremes returns the least and the most of nodes.
func extremes(nodes []*orbit.NodeState) (least, most score.Extent) {
	least, most = score.ExtentOf(nodes[0]), score.ExtentOf(nodes[0])
	for _, n := range nodes {
		for d, x := range score.ExtentOf(n) {
			least[d], most[d] = min(least[d], x), max(most[d], x)
		}
	}
	return least, most
}

// Around where integers stop being exact as floats, and up to the end.
var hugeNumbers = []int64{0, 3, 1 << 53, 1<<53 - 1, 1<<53 + 1, 1<<53 + 2, 1 << 54, 1<<54 + 3, 1 << 60, 1 << 62, 1<<62 + 1, math.MaxInt64}

// rule is a score and its exact bound, made of one function of the extents.
type rule func(least, most *score.Extent) (value, tie float64)

func (f rule) Score(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	e := score.ExtentOf(n)
	return f(&e, &e)
}

func (f rule) Bound(*orbit.Spec, *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	return f
}

// roomy likes full nodes, and goes by devices among equals.
var roomy = rule(func(least, most *score.Extent) (value, tie float64) {
	return float64(least.Free(orbit.CPU)) / 1024, float64(least.Capacity(orbit.Memory)) - float64(most.DevicesFree()) + float64(least.DeviceLargest())
})

// crowding likes company on the node, and idle devices.
var crowding = rule(func(_, most *score.Extent) (value, tie float64) {
	return -float64(most.Capsules()), -float64(most.DevicesIdle())
})

// A bound is not above the value, nor above the tie, of any node among some that fits; of one node alone it is
// the very score, to the last bit, as long as integers are exact as floats. Boxes also have nodes in them that
// do not fit, and the bound must hold all the same.
func TestBoundsHold(t *testing.T) {
	scale.Sequential(t)
	preferred := orbit.Predicate{Key: "zone", Op: "In", Values: []string{"x"}}
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "details"), 0))
		weight := rapid.SampledFrom([]float64{0, 1, 0.1, 3.7, 1e-3})
		rates := rapid.SampledFrom([]score.Bounded{score.Spread{}, score.Spread{}, roomy, crowding,
			score.WeightedSum{{weight.Draw(t, "a"), score.Spread{}}, {weight.Draw(t, "b"), roomy}, {weight.Draw(t, "c"), crowding}},
			score.WeightedSum{{weight.Draw(t, "d"), score.WeightedSum{{weight.Draw(t, "e"), roomy}, {2, score.Spread{}}}}, {1, score.Spread{}}}}).Draw(t, "score")
		huge := rapid.Bool().Draw(t, "huge")
		spec := &orbit.Spec{Spread: orbit.Domains{Level: "zone", Names: []string{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "spread")}}}
		for range rapid.IntRange(0, 2).Draw(t, "preferences") {
			spec.Prefer = append(spec.Prefer, orbit.Preference{Predicate: preferred, Weight: rapid.SampledFrom([]float64{1, -0.3, 5, 0.1}).Draw(t, "weight")})
		}
		for d := range rapid.IntRange(0, 3).Draw(t, "dimensions wanted") {
			spec.Envelope.Reservation[d] = rapid.SampledFrom([]int64{0, 1, 3, 500, 1 << 40, 1<<53 - 2, 1 << 54}).Draw(t, "want")
		}
		labels := map[string]string{"zone": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "zone")}
		for range 20 {
			holds(t, rates, spec, states(t, r, 1+r.IntN(12), labels, huge), !huge)
		}
	})
}

// holds checks the bound of some nodes, and of each alone.
func holds(t *rapid.T, rates score.Bounded, spec *orbit.Spec, nodes []*orbit.NodeState, exact bool) {
	bound := rates.Bound(spec, nodes[0].Node)
	least, most := extremes(nodes)
	lowValue, lowTie := bound(&least, &most)
	for _, n := range nodes {
		if !n.Fits(spec) {
			continue
		}
		value, tie := rates.Score(n, &orbit.Report{}, spec)
		require.LessOrEqual(t, lowValue, value)
		require.LessOrEqual(t, lowTie, tie)
		e := score.ExtentOf(n)
		alone, aloneTie := bound(&e, &e)
		require.LessOrEqual(t, alone, value)
		require.LessOrEqual(t, aloneTie, tie)
		if exact {
			require.Equal(t, math.Float64bits(value), math.Float64bits(alone))
			require.Equal(t, math.Float64bits(tie), math.Float64bits(aloneTie))
		}
	}
}
