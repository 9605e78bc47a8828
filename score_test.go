package orbit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scoredNode is a node of 1000 cpu and 400 memory in zone a, of which so much is held, with so many capsules
// that take nothing.
func scoredNode(t *testing.T, cpu, memory int64, capsules int) *NodeState {
	l := &MemoryLedger{}
	n := machine("n", 1000).inZone("a")
	n.Capacity[Memory] = 400
	n.Labels["disk"] = "ssd"
	commit(t, l, PutNode{n})
	if cpu+memory > 0 {
		commit(t, l, Hold{ID: "h", Node: "n", Room: Resources{CPU: cpu, Memory: memory}, Ends: time.Unix(5000, 0)})
	}
	for _, id := range names("c", capsules) {
		commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: &Spec{}}, Place{Capsule: id, Node: "n"})
	}
	return snapshotOf(t, l).Node("n")
}

// The published formula, number for number: mean of remaining/available over the dimensions that have something
// available, 5.0 for each capsule on the node, less the weights of what is preferred and matches, less 2.5 in
// a domain that it spreads across, and not below 0.
func TestSpreadScoreIsTheSeeds(t *testing.T) {
	ssd := Predicate{Key: "disk", Op: "In", Values: []string{"ssd"}}
	hdd := Predicate{Key: "disk", Op: "In", Values: []string{"hdd"}}
	spread := Domains{Level: "zone", Names: []string{"b", "a"}}
	for name, c := range map[string]struct {
		cpu, memory int64 // held on the node
		capsules    int
		spec        Spec
		want        float64
	}{
		"nothing":           {spec: Spec{}, want: 1},
		"half of one":       {spec: Spec{Envelope: Envelope{Reservation: Resources{CPU: 500}}}, want: 0.75},
		"half of both":      {spec: Spec{Envelope: Envelope{Reservation: Resources{CPU: 500, Memory: 200}}}, want: 0.5},
		"all":               {spec: Spec{Envelope: Envelope{Reservation: Resources{CPU: 1000, Memory: 400}}}, want: 0},
		"of what is free":   {cpu: 500, spec: Spec{Envelope: Envelope{Reservation: Resources{CPU: 400}}}, want: (0.2 + 1) / 2},
		"one is exhausted":  {memory: 400, spec: Spec{Envelope: Envelope{Reservation: Resources{CPU: 250}}}, want: 0.75},
		"all exhausted":     {cpu: 1000, memory: 400, spec: Spec{}, want: 0},
		"three capsules":    {capsules: 3, spec: Spec{Envelope: Envelope{Reservation: Resources{CPU: 500}}}, want: 15.75},
		"preferred":         {capsules: 1, spec: Spec{Prefer: []Preference{{ssd, 1.5}, {hdd, 4}, {ssd, 0.25}}}, want: 6 - 1.75},
		"disliked":          {spec: Spec{Prefer: []Preference{{ssd, -3}}}, want: 4},
		"spreads":           {capsules: 1, spec: Spec{Spread: spread}, want: 3.5},
		"spreads, not here": {capsules: 1, spec: Spec{Spread: Domains{Level: "zone", Names: []string{"b"}}}, want: 6},
		"no such level":     {capsules: 1, spec: Spec{Spread: Domains{Level: "rack", Names: []string{"a"}}}, want: 6},
		"not below zero":    {spec: Spec{Spread: spread, Prefer: []Preference{{ssd, 100}}}, want: 0},
		"all together": {cpu: 500, capsules: 2, want: (0.5+0.5)/2 + 10 - 1.5 - 2.5,
			spec: Spec{Envelope: Envelope{Reservation: Resources{CPU: 250, Memory: 200}}, Spread: spread, Prefer: []Preference{{ssd, 1.5}}}},
	} {
		t.Run(name, func(t *testing.T) {
			value, tie := SpreadScore{}.Score(scoredNode(t, c.cpu, c.memory, c.capsules), &Report{}, &c.spec)
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
	spec := &Spec{Envelope: Envelope{Reservation: Resources{CPU: 10, Memory: 10}}}
	a, _ := SpreadScore{}.Score(empty, &Report{}, spec)
	b, _ := SpreadScore{}.Score(tight, &Report{}, spec)
	assert.Less(t, a, b)
}

// A weighted sum adds values and ties up, each times its weight, and hands node, report and spec on.
func TestWeightedSum(t *testing.T) {
	n, r, s := scoredNode(t, 0, 0, 2), &Report{FreeSlots: 3}, wants(4)
	term := func(value, tie float64) Score {
		return ScoreFunc(func(gotNode *NodeState, gotReport *Report, gotSpec *Spec) (float64, float64) {
			require.Same(t, n, gotNode)
			require.Same(t, r, gotReport)
			require.Same(t, s, gotSpec)
			return value, tie
		})
	}
	value, tie := WeightedSum{{2, term(3, 0.5)}, {-1, term(4, 0.25)}, {0.5, SpreadScore{}}, {0, term(9, 9)}}.Score(n, r, s)
	spread, _ := SpreadScore{}.Score(n, r, s)
	assert.InDelta(t, 2*3-4+0.5*spread, value, 1e-12)
	assert.InDelta(t, 2*0.5-0.25, tie, 1e-12)
	value, tie = WeightedSum{}.Score(n, r, s)
	assert.Equal(t, [2]float64{0, 0}, [2]float64{value, tie})
	value, _ = WeightedSum{{1, WeightedSum{{2, term(1, 0)}}}}.Score(n, r, s)
	assert.InDelta(t, 2.0, value, 1e-12)
}
