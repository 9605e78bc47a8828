package orbit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// states invents nodes that are alike in labels, with some of their capacity taken: all of it, too, and more.
func states(r *rand.Rand, n int, labels map[string]string, huge bool) (out []*NodeState) {
	dims := 1 + r.IntN(Dimensions)
	crowds := 1 + 3*r.IntN(2) // often all have the same number of capsules, so that fractions matter
	near := r.IntN(2) == 0    // sizes are far from each other, or near
	for range n {
		s := &NodeState{Node: &Node{Labels: labels, Devices: Devices{Model: "m", Count: r.IntN(4)}}, Capsules: r.IntN(crowds)}
		for d := range dims {
			size := []int64{0, 1, 7, 1000, 1<<40 + 1, 1<<53 - 1}[r.IntN(6)]
			if huge {
				size = hugeNumbers[r.IntN(len(hugeNumbers))]
			}
			if near {
				size = 1<<53 - 1 - r.Int64N(5)*int64(1+r.IntN(2))
				if huge {
					size += 7
				}
				s.Node.Capacity[d], s.used[d] = size, size*int64(btoi(r.IntN(4) == 0))
				continue
			}
			s.Node.Capacity[d] = size
			s.used[d] = []int64{0, 0, size, size / 2, min(size, 1), min(size, 3)}[r.IntN(6)]
			if r.IntN(20) == 0 {
				s.Node.Capacity[d] /= 2
			}
		}
		if r.IntN(2) == 0 {
			s.useDevices(DeviceSet(r.IntN(1<<s.Node.Devices.Count)), 1+r.IntN(1000))
		}
		out = append(out, s)
	}
	return out
}

// extremes returns the least and the most of nodes.
func extremes(nodes []*NodeState) (least, most Extent) {
	least, most = nodes[0].Extent(), nodes[0].Extent()
	for _, n := range nodes {
		for d, x := range n.Extent() {
			least[d], most[d] = min(least[d], x), max(most[d], x)
		}
	}
	return least, most
}

// Around where integers stop being exact as floats, and up to the end.
var hugeNumbers = []int64{0, 3, 1 << 53, 1<<53 - 1, 1<<53 + 1, 1<<53 + 2, 1 << 54, 1<<54 + 3, 1 << 60, 1 << 62, 1<<62 + 1, math.MaxInt64}

// rule is a score and its exact bound, made of one function of the extents.
type rule func(least, most *Extent) (value, tie float64)

func (f rule) Score(n *NodeState, _ *Report, _ *Spec) (value, tie float64) {
	e := n.Extent()
	return f(&e, &e)
}

func (f rule) Bound(*Spec, *Node) func(least, most *Extent) (value, tie float64) { return f }

// roomy likes full nodes, and goes by devices among equals.
var roomy = rule(func(least, most *Extent) (value, tie float64) {
	return float64(least.Free(CPU)) / 1024, float64(least.Capacity(Memory)) - float64(most.DevicesFree()) + float64(least.DeviceLargest())
})

// crowding likes company on the node, and idle devices.
var crowding = rule(func(_, most *Extent) (value, tie float64) {
	return -float64(most.Capsules()), -float64(most.DevicesIdle())
})

// A bound is not above the value, nor above the tie, of any node among some that fits; of one node alone it is
// the very score, to the last bit, as long as integers are exact as floats. Boxes also have nodes in them that
// do not fit, and the bound must hold all the same.
func TestBoundsHold(t *testing.T) {
	preferred := Predicate{Key: "zone", Op: "In", Values: []string{"x"}}
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "details"), 0))
		weight := rapid.SampledFrom([]float64{0, 1, 0.1, 3.7, 1e-3})
		score := rapid.SampledFrom([]Bounded{SpreadScore{}, SpreadScore{}, roomy, crowding,
			WeightedSum{{weight.Draw(t, "a"), SpreadScore{}}, {weight.Draw(t, "b"), roomy}, {weight.Draw(t, "c"), crowding}},
			WeightedSum{{weight.Draw(t, "d"), WeightedSum{{weight.Draw(t, "e"), roomy}, {2, SpreadScore{}}}}, {1, SpreadScore{}}}}).Draw(t, "score")
		huge := rapid.Bool().Draw(t, "huge")
		spec := &Spec{Spread: Domains{Level: "zone", Names: []string{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "spread")}}}
		for range rapid.IntRange(0, 2).Draw(t, "preferences") {
			spec.Prefer = append(spec.Prefer, Preference{preferred, rapid.SampledFrom([]float64{1, -0.3, 5, 0.1}).Draw(t, "weight")})
		}
		for d := range rapid.IntRange(0, 3).Draw(t, "dimensions wanted") {
			spec.Envelope.Reservation[d] = rapid.SampledFrom([]int64{0, 1, 3, 500, 1 << 40, 1<<53 - 2, 1 << 54}).Draw(t, "want")
		}
		labels := map[string]string{"zone": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "zone")}
		for range 20 {
			holds(t, score, spec, states(r, 1+r.IntN(12), labels, huge), !huge)
		}
	})
}

// holds checks the bound of some nodes, and of each alone.
func holds(t *rapid.T, score Bounded, spec *Spec, nodes []*NodeState, exact bool) {
	bound := score.Bound(spec, nodes[0].Node)
	least, most := extremes(nodes)
	lowValue, lowTie := bound(&least, &most)
	for _, n := range nodes {
		if !n.Fits(spec) {
			continue
		}
		value, tie := score.Score(n, &noReport, spec)
		require.LessOrEqual(t, lowValue, value)
		require.LessOrEqual(t, lowTie, tie)
		e := n.Extent()
		alone, aloneTie := bound(&e, &e)
		require.LessOrEqual(t, alone, value)
		require.LessOrEqual(t, aloneTie, tie)
		if exact {
			require.Equal(t, math.Float64bits(value), math.Float64bits(alone))
			require.Equal(t, math.Float64bits(tie), math.Float64bits(aloneTie))
		}
	}
}
