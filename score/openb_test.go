package score_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
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
	require.Equal(t, first, draw(score.Random{}, nodeWith(t, gpuNode(), s), s), "what has changed on a node makes no difference")
	require.NotEqual(t, first, draw(score.Random{Seed: 1}, a, s))
	drawn := func(decision uint64) score.Random {
		sc, draws := score.Random{}.Draw(decision)
		require.True(t, draws)
		return sc.(score.Random)
	}
	require.Equal(t, draw(drawn(1), a, s), draw(drawn(1), b, s))
	require.NotEqual(t, draw(drawn(1), a, s), draw(drawn(2), a, s), "another decision")
	other := gpuNode()
	other.ID = "node-2"
	require.NotEqual(t, first, draw(score.Random{}, nodeWith(t, other), s))
	_, draws := score.WeightedSum{{Weight: 1, Score: score.BestFit{}}}.Draw(1)
	require.False(t, draws, "nothing in the sum draws lots")
}

// Every feasible node is chosen as often as any other, and as often right after it has been chosen as at any
// other time, by every engine: in one plan, in plans of which each sees what the one before has committed, with
// nodes that have just changed, and while which nodes are feasible changes.
func TestRandomIsUniform(t *testing.T) {
	sc := score.Random{Seed: 3}
	for name, placement := range map[string]func() orbit.PlacementEngine{
		"exhaustive":  func() orbit.PlacementEngine { return &place.Exhaustive{Score: sc} },
		"indexed":     func() orbit.PlacementEngine { return &place.Indexed{Score: sc} },
		"sampled":     func() orbit.PlacementEngine { return &place.Sampled{Score: sc} },
		"remembering": func() orbit.PlacementEngine { return &place.Sampled{Score: sc, Enough: 8, Remember: 4} },
		"summed": func() orbit.PlacementEngine {
			return &place.Indexed{Score: score.WeightedSum{{Weight: 1, Score: score.Domains{}}, {Weight: 2, Score: sc}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, each := range []int{1, 3, 500} { // choices in one plan
				newDice(t, placement()).roll(t, 1500, each)
			}
		})
	}
}

// A share goes to any of the instances that have room for it, each as often as any other.
func TestRandomPicksAnyDevice(t *testing.T) {
	full, half := devices(spec(0, 0), 1, 1000), devices(spec(0, 0), 1, 600)
	sick := gpuNode()
	sick.Devices.Unhealthy = 1 << 7
	n, asked := nodeWith(t, sick, full, half, half), devices(spec(0, 0), 1, 400)
	const draws = 6000
	picked := map[orbit.DeviceSet]float64{}
	for i := range uint64(draws) {
		sc, _ := score.Random{Seed: 5}.Draw(i)
		set, ok := sc.(score.Random).PickDevices(n, asked)
		require.True(t, ok)
		picked[set]++
	}
	chi2 := 0.0
	for i := 1; i < 7; i++ {
		d := picked[1<<i] - draws/6
		chi2 += d * d / (draws / 6)
	}
	require.Len(t, picked, 6, "neither the full one nor the one that is out of order")
	require.Less(t, chi2, 27.0, "5 degrees of freedom: above 27 with a chance of 1 in 20,000")
	_, ok := score.Random{}.PickDevices(n, full)
	require.False(t, ok, "whole devices are all alike")
	_, ok = score.Random{}.PickDevices(nodeWith(t, sick, full, full, full, full, full, full, full), asked)
	require.False(t, ok, "there is none")
}

// dice is one spec that is placed over and over on nodes of which some drain and come back.
type dice struct {
	ledger orbit.MemoryLedger
	view   orbit.View
	engine orbit.PlacementEngine
	random *rand.Rand
	draft  orbit.Draft
	// Of every node: how often it was chosen and should have been; and how often right after itself.
	chosen, due     map[orbit.NodeID]float64
	again, dueAgain float64
	last            orbit.NodeID
	placed          int
}

const diceNodes = 40

func newDice(t *testing.T, engine orbit.PlacementEngine) *dice {
	d := &dice{engine: engine, random: rand.New(rand.NewPCG(1, 2)), chosen: map[orbit.NodeID]float64{}, due: map[orbit.NodeID]float64{}}
	for i := range diceNodes {
		d.commit(t, d.node(i, false))
	}
	return d
}

func (d *dice) node(i int, closed bool) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{orbit.CPU: 1 << 40}, State: map[bool]orbit.Condition{true: orbit.Cordoned}[closed]}}
}

func (d *dice) commit(t *testing.T, do ...orbit.Commitment) {
	_, err := d.ledger.Propose(t.Context(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

// roll makes so many choices, some in each plan, and commits what every second plan has chosen.
func (d *dice) roll(t *testing.T, choices, each int) {
	asked := spec(1, 0)
	d.commit(t, orbit.Submit{IDs: []orbit.CapsuleID{"first"}, Spec: asked})
	for d.placed < choices {
		// The mark makes a new revision, also if the node's description is as it was: plans on one view choose alike.
		d.commit(t, d.node(d.random.IntN(diceNodes), d.random.IntN(3) == 0), orbit.Mark{Key: "roll", Value: fmt.Sprint(d.placed, d.random.Uint64())})
		require.NoError(t, d.view.Refresh(t.Context(), &d.ledger, nil, time.Time{}))
		d.draft.Sync(&d.view)
		interned, open := d.view.State().Capsule("first").Spec, d.expect(each)
		var do []orbit.Commitment
		for range each {
			d.placed++
			c := &orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint("c", d.placed)), Spec: interned}
			choice, err := d.engine.Best(&d.draft, interned)
			require.NoError(t, err)
			d.count(choice.Node.Node.ID, open)
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c.ID}, Spec: asked})
			require.NoError(t, d.draft.Place(c, choice))
			do = append(do, d.draft.Propose().Do...)
			if d.random.IntN(2) == 0 { // it leaves again, and the node is as it was
				do = append(do, orbit.Release{Capsule: c.ID, Final: true})
			}
		}
		if d.random.IntN(2) == 0 {
			d.commit(t, do...)
		}
	}
	chi2 := (d.again-d.dueAgain)*(d.again-d.dueAgain)/d.dueAgain - 1
	for id, due := range d.due {
		chi2 += (d.chosen[id] - due) * (d.chosen[id] - due) / due
	}
	require.Less(t, chi2, 85.0, "%d choices a plan; 40 degrees of freedom: above 85 with a chance of 1 in 20,000; %v times in a row, %v are due", each, d.again, d.dueAgain)
}

// expect says how often each node is due to be chosen in a plan with so many choices: each that is feasible as
// often as any other. It returns those.
func (d *dice) expect(choices int) map[orbit.NodeID]bool {
	open := map[orbit.NodeID]bool{}
	for n := range d.view.State().Nodes() {
		if n.Node.Schedulable() {
			open[n.Node.ID] = true
		}
	}
	for id := range open {
		d.due[id] += float64(choices) / float64(len(open))
	}
	return open
}

// count counts a choice.
func (d *dice) count(id orbit.NodeID, open map[orbit.NodeID]bool) {
	if open[d.last] {
		d.dueAgain += 1 / float64(len(open))
	}
	if d.chosen[id]++; id == d.last {
		d.again++
	}
	d.last = id
}
