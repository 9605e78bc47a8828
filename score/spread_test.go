package score_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// scoredNode is a node of 1000 cpu and 400 memory in zone a, of which so much is held, with so many capsules
// that take nothing.
func scoredNode(t *testing.T, cpu, memory int64, capsules int) *orbit.NodeState {
	n := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1000, orbit.Memory: 400}, Labels: map[string]string{"zone": "a", "disk": "ssd"}}
	do := []orbit.Commitment{orbit.PutNode{Node: n}}
	if cpu+memory > 0 {
		do = append(do, orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{orbit.CPU: cpu, orbit.Memory: memory}, Ends: time.Unix(5000, 0)})
	}
	do = append(do, company("n", capsules)...)
	return stateAfter(t, do...).Node("n")
}

// company places capsules that take nothing on a node.
func company(node orbit.NodeID, capsules int) (do []orbit.Commitment) {
	for i := range capsules {
		id := orbit.CapsuleID(fmt.Sprint(node, "-", i))
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{}}, orbit.Place{Capsule: id, Node: node})
	}
	return do
}

// stateAfter returns the state of a ledger that has committed this, one after the other.
func stateAfter(t require.TestingT, do ...orbit.Commitment) *orbit.State {
	var ledger orbit.MemoryLedger
	for i := range do {
		_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do[i : i+1]})
		require.NoError(t, err)
	}
	state, err := ledger.Snapshot(context.Background())
	require.NoError(t, err)
	return state
}

// The published formula, number for number: mean of remaining/available over the dimensions that have something
// available, 5.0 for each capsule on the node, less the weights of what is preferred and matches, less 2.5 in
// a domain that it spreads across, and not below 0.
func TestSpreadScoreIsTheSeeds(t *testing.T) {
	ssd := orbit.Predicate{Key: "disk", Op: "In", Values: []string{"ssd"}}
	hdd := orbit.Predicate{Key: "disk", Op: "In", Values: []string{"hdd"}}
	spread := orbit.Domains{Level: "zone", Names: []string{"b", "a"}}
	for name, c := range map[string]struct {
		cpu, memory int64 // held on the node
		capsules    int
		spec        orbit.Spec
		want        float64
	}{
		"nothing":           {spec: orbit.Spec{}, want: 1},
		"half of one":       {spec: orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500}}}, want: 0.75},
		"half of both":      {spec: orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500, orbit.Memory: 200}}}, want: 0.5},
		"all":               {spec: orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1000, orbit.Memory: 400}}}, want: 0},
		"of what is free":   {cpu: 500, spec: orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 400}}}, want: (0.2 + 1) / 2},
		"one is exhausted":  {memory: 400, spec: orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 250}}}, want: 0.75},
		"all exhausted":     {cpu: 1000, memory: 400, spec: orbit.Spec{}, want: 0},
		"three capsules":    {capsules: 3, spec: orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500}}}, want: 15.75},
		"preferred":         {capsules: 1, spec: orbit.Spec{Prefer: []orbit.Preference{{Predicate: ssd, Weight: 1.5}, {Predicate: hdd, Weight: 4}, {Predicate: ssd, Weight: 0.25}}}, want: 6 - 1.75},
		"disliked":          {spec: orbit.Spec{Prefer: []orbit.Preference{{Predicate: ssd, Weight: -3}}}, want: 4},
		"spreads":           {capsules: 1, spec: orbit.Spec{Spread: spread}, want: 3.5},
		"spreads, not here": {capsules: 1, spec: orbit.Spec{Spread: orbit.Domains{Level: "zone", Names: []string{"b"}}}, want: 6},
		"no such level":     {capsules: 1, spec: orbit.Spec{Spread: orbit.Domains{Level: "rack", Names: []string{"a"}}}, want: 6},
		"not below zero":    {spec: orbit.Spec{Spread: spread, Prefer: []orbit.Preference{{Predicate: ssd, Weight: 100}}}, want: 0},
		"all together": {cpu: 500, capsules: 2, want: (0.5+0.5)/2 + 10 - 1.5 - 2.5,
			spec: orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 250, orbit.Memory: 200}}, Spread: spread, Prefer: []orbit.Preference{{Predicate: ssd, Weight: 1.5}}}},
	} {
		t.Run(name, func(t *testing.T) {
			value, tie := score.Spread{}.Score(scoredNode(t, c.cpu, c.memory, c.capsules), &orbit.Report{}, &c.spec)
			assert.InDelta(t, c.want, value, 1e-12)
			assert.Zero(t, tie)
			assert.False(t, math.Signbit(value))
		})
	}
}

// It spreads: a node with a capsule less wins however tight the other would be filled, until preferences
// outweigh 5.0.
func TestSpreadScoreSpreads(t *testing.T) {
	empty, tight := scoredNode(t, 0, 0, 0), scoredNode(t, 990, 390, 1)
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 10, orbit.Memory: 10}}}
	a, _ := score.Spread{}.Score(empty, &orbit.Report{}, spec)
	b, _ := score.Spread{}.Score(tight, &orbit.Report{}, spec)
	assert.Less(t, a, b)
}

// A node with devices comes after all nodes without for a spec that asks for none, however many capsules these have, and
// also if its devices are unhealthy; for a spec that asks for devices it does not matter. A preference may outweigh it.
func TestSpreadScoreSparesDevices(t *testing.T) {
	with := orbit.Node{ID: "with", Capacity: orbit.Resources{orbit.CPU: 1000}, Devices: orbit.Devices{Model: "g", Count: 2, Unhealthy: 3}, Labels: map[string]string{"pool": "g"}}
	without := orbit.Node{ID: "without", Capacity: orbit.Resources{orbit.CPU: 1000}}
	state := stateAfter(t, append([]orbit.Commitment{orbit.PutNode{Node: with}, orbit.PutNode{Node: without}}, company("without", 300)...)...)
	rate := func(spec *orbit.Spec) (on, off float64) {
		on, _ = score.Spread{}.Score(state.Node("with"), &orbit.Report{}, spec)
		off, _ = score.Spread{}.Score(state.Node("without"), &orbit.Report{}, spec)
		return on, off
	}
	on, off := rate(spec(1, 0))
	assert.Greater(t, on, off)
	asks := spec(1, 0)
	asks.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	on, off = rate(asks)
	assert.Less(t, on, off)
	prefers := spec(1, 0)
	prefers.Prefer = []orbit.Preference{{Predicate: orbit.Predicate{Key: "pool", Op: "Exists"}, Weight: 2e6}}
	on, off = rate(prefers)
	assert.Less(t, on, off)
}

// A weighted sum adds values and ties up, each times its weight, and hands node, report and spec on.
func TestWeightedSum(t *testing.T) {
	n, r, s := scoredNode(t, 0, 0, 2), &orbit.Report{FreeSlots: 3}, spec(4, 0)
	term := func(value, tie float64) orbit.Score {
		return score.Func(func(gotNode *orbit.NodeState, gotReport *orbit.Report, gotSpec *orbit.Spec) (float64, float64) {
			require.Same(t, n, gotNode)
			require.Same(t, r, gotReport)
			require.Same(t, s, gotSpec)
			return value, tie
		})
	}
	value, tie := score.WeightedSum{{2, term(3, 0.5)}, {-1, term(4, 0.25)}, {0.5, score.Spread{}}, {0, term(9, 9)}}.Score(n, r, s)
	spread, _ := score.Spread{}.Score(n, r, s)
	assert.InDelta(t, 2*3-4+0.5*spread, value, 1e-12)
	assert.InDelta(t, 2*0.5-0.25, tie, 1e-12)
	value, tie = score.WeightedSum{}.Score(n, r, s)
	assert.Equal(t, [2]float64{0, 0}, [2]float64{value, tie})
	value, _ = score.WeightedSum{{1, score.WeightedSum{{2, term(1, 0)}}}}.Score(n, r, s)
	assert.InDelta(t, 2.0, value, 1e-12)
}
