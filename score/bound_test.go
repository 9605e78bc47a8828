package score_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
)

func boundedScores() []score.Bounded {
	return []score.Bounded{
		score.BestFit{}, score.BestFit{CPUMax: 3000, DeviceMax: 900}, score.BestFit{CPUMax: 1, DeviceMax: 1},
		score.DotProduct{}, score.DotProduct{CPUMax: 3000, DeviceMax: 900}, score.DotProduct{CPUMax: -1, DeviceMax: 1},
		score.LeastAllocated{}, score.MostAllocated{}, score.Balance{},
		score.Preferences{}, score.Domains{},
		score.Crowding{}, score.Crowding{Half: 1}, score.Crowding{Half: math.MaxInt},
		score.Spread{},
	}
}

// No node that fits is rated below the bound of a box that it is in, and a box of one node is rated as the node.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSpec(rt)
		box := drawBox(rt, s)
		scores := boundedScores()
		var sum score.WeightedSum
		for range rapid.IntRange(0, 4).Draw(rt, "terms") {
			term := rapid.SampledFrom(scores).Draw(rt, "term")
			sum = append(sum, score.Weighted{Weight: rapid.Float64Range(0, 1e6).Draw(rt, "weight"), Score: term})
		}
		for _, b := range append(scores, sum) {
			if bound := b.Bound(s, box.like); bound != nil {
				box.check(rt, b, s, bound)
			}
		}
	})
}

// Where integers are no longer exact as floats, a node can be rated a little better than one with less taken.
func TestBoundsBeyondExactFloats(t *testing.T) {
	scale.Sequential(t)
	s := spec(1, 0)
	r := rand.New(rand.NewPCG(1, 2))
	near := func(n int64) int64 { return n + r.Int64N(16) }
	for range 500 {
		var b box
		for range 2 {
			n := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: near(1 << 53)}}
			b.add(nodeWith(t, n, spec(near(9<<53/10), 0)))
		}
		for _, sc := range boundedScores() {
			b.check(t, sc, s, sc.Bound(s, b.like))
		}
	}
}

// What was taken before capacity shrank counts: less than nothing is free.
func TestBoundsOfOverusedNodes(t *testing.T) {
	for _, c := range []struct{ used, left int64 }{{9000, 3000}, {math.MaxInt64, 0}} {
		b, s := box{}, spec(0, 0)
		b.add(nodeWith(t, orbit.Node{ID: "empty"}))
		b.add(shrunk(t, c.used, c.left))
		for _, sc := range boundedScores() {
			b.check(t, sc, s, sc.Bound(s, b.like))
		}
	}
}

// shrunk is a node of which all the CPU was used, and that has been left with less.
func shrunk(t *testing.T, used, left int64) *orbit.NodeState {
	var ledger orbit.MemoryLedger
	n := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: used}}
	for _, do := range [][]orbit.Commitment{
		{orbit.PutNode{Node: n}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec(used, 0)}, orbit.Place{Capsule: "c", Node: "n"}},
		{orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: left}}}},
	} {
		_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: do})
		require.NoError(t, err)
	}
	state, err := ledger.Snapshot(t.Context())
	require.NoError(t, err)
	return state.Node("n")
}

// check requires ties to be 0 and compares values: at least that of the box, and just that of the node alone.
func (b *box) check(t require.TestingT, sc orbit.Score, s *orbit.Spec, bound func(least, most *score.Extent) (value, tie float64)) {
	low, lowTie := bound(&b.least, &b.most)
	for _, n := range b.nodes {
		if !n.Fits(s) {
			continue
		}
		v, tie := sc.Score(n, nil, s)
		require.LessOrEqual(t, low, v, "%T%+v", sc, sc)
		require.LessOrEqual(t, lowTie, tie, "%T%+v", sc, sc)
		e := extentOf(n)
		alone, aloneTie := bound(&e, &e)
		require.LessOrEqual(t, alone, v, "%T%+v", sc, sc)
		require.LessOrEqual(t, aloneTie, tie, "%T%+v", sc, sc)
		if sane(n) {
			require.Equal(t, math.Float64bits(v), math.Float64bits(alone), "%T%+v gives %v and %v", sc, sc, v, alone)
			require.Equal(t, math.Float64bits(tie), math.Float64bits(aloneTie), "%T%+v", sc, sc)
		}
	}
}

// sane reports whether the node's numbers are exact as floats.
func sane(n *orbit.NodeState) bool { return slices.Max(n.Node.Capacity[:]) <= 1<<53 }

// box is a set of nodes that a spec cannot tell apart by their labels.
type box struct {
	like        *orbit.Node
	nodes       []*orbit.NodeState
	least, most score.Extent
}

func drawBox(t *rapid.T, s *orbit.Spec) (b box) {
	for _, n := range drawNodes(t) {
		if b.like == nil || !toldApart(n.Node, b.like, s) {
			b.add(n)
		}
	}
	return b
}

func (b *box) add(n *orbit.NodeState) {
	e := extentOf(n)
	if b.nodes = append(b.nodes, n); b.like == nil {
		b.like, b.least, b.most = n.Node, e, e
	}
	for i, v := range e {
		b.least[i], b.most[i] = min(b.least[i], v), max(b.most[i], v)
	}
}

// toldApart reports whether preferences or domains set the two nodes apart.
func toldApart(a, b *orbit.Node, s *orbit.Spec) bool {
	for _, p := range s.Prefer {
		if p.Matches(a.Labels) != p.Matches(b.Labels) {
			return true
		}
	}
	in := func(n *orbit.Node) bool {
		domain, ok := n.Labels[s.Spread.Level]
		return ok && slices.Contains(s.Spread.Names, domain)
	}
	return in(a) != in(b)
}

// extentOf makes the extent of one node in another way than ExtentOf, by what the methods read.
func extentOf(n *orbit.NodeState) (e score.Extent) {
	free, idle, largest, sum, each := n.Free(), 0, 0, 0, make([]int, orbit.MaxDevices)
	for d := range orbit.Dimensions {
		set(&e, func(e *score.Extent) int64 { return e.Free(d) }, free[d])
		set(&e, func(e *score.Extent) int64 { return e.Capacity(d) }, n.Node.Capacity[d])
	}
	for i := range n.Node.Devices.Count {
		f := n.DeviceFree(i)
		each[i] = f
		if sum, largest = sum+f, max(largest, f); f == 1000 {
			idle++
		}
	}
	set(&e, func(e *score.Extent) int64 { return int64(e.Capsules()) }, int64(n.Capsules))
	set(&e, func(e *score.Extent) int64 { return int64(e.Devices()) }, int64(n.Node.Devices.Count))
	set(&e, (*score.Extent).DevicesFree, int64(sum))
	set(&e, func(e *score.Extent) int64 { return int64(e.DevicesIdle()) }, int64(idle))
	set(&e, func(e *score.Extent) int64 { return int64(e.DeviceLargest()) }, int64(largest))
	slices.SortFunc(each, func(a, b int) int { return b - a })
	for i, k := range []int{2, 4, 8} { // the last coordinates, which DevicesWith reads
		e[len(e)-3+i] = int64(each[k-1])
	}
	return e
}

// The extent of a node says of it what the node itself says.
func TestExtentOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, n := range drawNodes(t) {
			e := score.ExtentOf(n)
			require.Equal(t, extentOf(n), e)
			for _, milli := range []int{1, 2, 300, 500, 501, 999, 1000} {
				have, most := 0, e.DevicesWith(milli)
				for i := range n.Node.Devices.Count {
					have += btoi(n.DeviceFree(i) >= milli)
				}
				require.LessOrEqual(t, have, most)
				for _, k := range []int{1, 2, 4, 8} {
					require.Equal(t, have >= k, most >= k, "%d devices with %d milli", k, milli)
				}
			}
		}
	})
}

// set finds the coordinate that a method reads, and sets it.
func set(e *score.Extent, read func(*score.Extent) int64, v int64) {
	for i := range e {
		if probe := (score.Extent{}); read(&probe) == 0 {
			if probe[i] = 1; read(&probe) == 1 {
				e[i] = v
			}
		}
	}
}

// drawSpec asks for little, mostly, so that it fits.
func drawSpec(t *rapid.T) *orbit.Spec {
	s := &orbit.Spec{Module: "m"}
	for d := range 4 {
		s.Envelope.Reservation[d] = rapid.SampledFrom([]int64{0, 0, 1, 700, 1000, 1<<53 + 1}).Draw(t, "want")
	}
	s.Devices = drawRequest(t)
	s.Devices.Models = nil
	if rapid.Bool().Draw(t, "no devices") {
		s.Devices = orbit.DeviceRequest{}
	}
	for range rapid.IntRange(0, 3).Draw(t, "preferences") {
		p := orbit.Predicate{Key: "zone", Op: "In", Values: []string{drawZone(t)}}
		s.Prefer = append(s.Prefer, orbit.Preference{Predicate: p, Weight: rapid.Float64Range(-9, 9).Draw(t, "weight")})
	}
	if rapid.Bool().Draw(t, "spread") {
		s.Spread = orbit.Domains{Level: "zone", Names: []string{drawZone(t)}}
	}
	return s
}

func drawZone(t *rapid.T) string {
	return rapid.SampledFrom([]string{"z1", "z2", "z3"}).Draw(t, "zone")
}

// drawNodes returns nodes of one device model. Of some, capacity has shrunk below what is used, or devices have
// gone out of order.
func drawNodes(t *rapid.T) (out []*orbit.NodeState) {
	var ledger orbit.MemoryLedger
	ctx := context.Background()
	propose := func(do ...orbit.Commitment) {
		_, err := ledger.Propose(ctx, orbit.Proposal{Do: do})
		require.NoError(t, err)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Labels: map[string]string{"zone": drawZone(t)}}
		if rapid.IntRange(0, 3).Draw(t, "labelled") == 0 {
			n.Labels = nil
		}
		n.Devices = orbit.Devices{Model: "G2", Count: rapid.IntRange(0, 4).Draw(t, "devices")}
		drawCapacity(t, &n)
		propose(orbit.PutNode{Node: n})
		drawUse(t, &ledger, &n)
		n.Devices.Unhealthy = orbit.DeviceSet(rapid.IntRange(0, 1<<n.Devices.Count-1).Draw(t, "out of order"))
		for d := range n.Capacity {
			n.Capacity[d] /= rapid.SampledFrom([]int64{1, 1, 1, 2, 10, math.MaxInt64}).Draw(t, "shrink")
		}
		propose(orbit.PutNode{Node: n})
	}
	state, err := ledger.Snapshot(ctx)
	require.NoError(t, err)
	return slices.Collect(state.Nodes())
}

func drawCapacity(t *rapid.T, n *orbit.Node) {
	sizes := rapid.OneOf(rapid.Int64Range(0, 10_000), rapid.Int64Range(1000, 10_000), rapid.Just(int64(1<<53)))
	if rapid.IntRange(0, 3).Draw(t, "huge") == 0 {
		sizes = rapid.OneOf(sizes, rapid.Int64Range(1<<53, 1<<53+8), rapid.Int64Range(math.MaxInt64-2000, math.MaxInt64))
	}
	for d := range 4 {
		n.Capacity[d] = sizes.Draw(t, "capacity")
	}
}

// drawUse places capsules on the node, of what is still free.
func drawUse(t *rapid.T, ledger *orbit.MemoryLedger, n *orbit.Node) {
	for i := range rapid.IntRange(0, 3).Draw(t, "capsules") {
		state, err := ledger.Snapshot(context.Background())
		require.NoError(t, err)
		now, s := state.Node(n.ID), devices(&orbit.Spec{}, 1, drawMilli(t))
		set, ok := now.PickDevices(s)
		if !ok {
			s.Devices = orbit.DeviceRequest{}
		}
		for d, free := range now.Free() {
			s.Envelope.Reservation[d] = rapid.SampledFrom([]int64{0, min(1, free), min(500, free), free / 3, free}).Draw(t, "use")
		}
		id := orbit.CapsuleID(fmt.Sprint(n.ID, "-", i))
		_, err = ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: n.ID, Devices: set},
		}})
		require.NoError(t, err)
	}
}

// A bound upside down is none.
func TestBoundsThatCannotSay(t *testing.T) {
	n, s := gpuNode(), devices(spec(1000, gib), 1, 500)
	for _, b := range []score.Bounded{
		score.BestFit{CPUMax: -1}, score.BestFit{DeviceMax: -1},
	} {
		require.Nil(t, b.Bound(s, &n), "%T", b)
		require.Nil(t, score.WeightedSum{{Weight: 1, Score: b}}.Bound(s, &n), "%T", b)
	}
	for _, b := range boundedScores() {
		require.NotNil(t, b.Bound(s, &n), "%T", b)
	}
	for _, sc := range []orbit.Score{score.FGD{}, score.Random{}} {
		require.NotImplements(t, (*score.Bounded)(nil), sc)
	}
}

func TestBoundsDoNotAllocate(t *testing.T) {
	n, s := nodeWith(t, gpuNode(), spec(1000, gib)), spec(1000, gib)
	e := extentOf(n)
	for _, b := range boundedScores() {
		bound := b.Bound(s, n.Node)
		require.Zero(t, testing.AllocsPerRun(100, func() { bound(&e, &e) }), "%T", b)
	}
}

func BenchmarkBound(b *testing.B) {
	n := nodeWith(b, gpuNode(), spec(1000, gib))
	s := spec(1000, gib)
	s.Spread = orbit.Domains{Level: "zone", Names: []string{"z1"}}
	e := extentOf(n)
	for _, sc := range boundedScores() {
		bound := sc.Bound(s, n.Node)
		b.Run(fmt.Sprintf("%T", sc), func(b *testing.B) {
			b.ReportAllocs()
			sum := 0.0
			for b.Loop() {
				v, _ := bound(&e, &e)
				sum += v
			}
			_ = sum
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
