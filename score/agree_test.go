package score_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim"
)

// everything is a navigator that claims all classes.
type everything struct{ nav.Services }

func (*everything) Claims(string, orbit.AppClass) bool { return true }

// rival is a ledger whose work one placement engine places.
type rival struct {
	ledger orbit.MemoryLedger
	engine orbit.Engine
}

func newRival(placement orbit.PlacementEngine, capsules int) *rival {
	r := &rival{}
	r.engine = orbit.Engine{
		Name: "rival", Ledger: &r.ledger, MaxPlan: capsules, ParkFor: 1, // nanosecond: all are tried in each pass
		Navigator: &everything{nav.Services{Placement: placement}},
	}
	return r
}

func (r *rival) commit(t *testing.T, do []orbit.Commitment) {
	_, err := r.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

func (r *rival) pass(t *testing.T) (*orbit.State, orbit.Round) {
	round := r.engine.Pass(context.Background())
	require.Empty(t, round.Errors)
	state, err := r.ledger.Snapshot(context.Background())
	require.NoError(t, err)
	return state, round
}

// With each of the scores Indexed chooses what Exhaustive chooses, capsule by capsule, while capsules come and
// go and nodes change.
func TestIndexedAgreesWithExhaustive(t *testing.T) {
	n := 2500
	if testing.Short() {
		n = 800
	}
	arrivals := mixedWork(n)
	scores := []orbit.Score{score.Random{Seed: 1}, score.FGD{Typical: score.Typical(specsOf(arrivals))}}
	for _, b := range boundedScores() {
		scores = append(scores, b)
	}
	scores = append(scores,
		score.WeightedSum{{Weight: 4, Score: score.LeastAllocated{}}, {Weight: 2, Score: score.Preferences{}}, {Weight: 1, Score: score.Balance{}}},
		score.WeightedSum{{Weight: 0.1, Score: score.BestFit{}}, {Weight: 3, Score: score.Domains{}}, {Weight: 1, Score: score.Crowding{}}},
		score.WeightedSum{{Weight: 1, Score: score.DotProduct{}}, {Weight: 1, Score: score.FGD{}}},
	)
	for i, sc := range scores {
		t.Run(fmt.Sprintf("%d %T", i, sc), func(t *testing.T) {
			t.Parallel()
			seed := uint64(i % 2 * 7) // 0: ties go by id
			boxes := agree(t, arrivals, &place.Indexed{Score: sc, Seed: seed}, &place.Exhaustive{Score: sc, Seed: seed})
			b, bounded := sc.(score.Bounded)
			bounded = bounded && b.Bound(spec(1, 1), &orbit.Node{}) != nil
			require.Equal(t, bounded, boxes > 0, "looked into %d boxes", boxes)
		})
	}
}

// mixedWork is a shuffled workload, of which some ask for devices.
func mixedWork(n int) []sim.Capsule {
	classes := sim.Workload(sim.Mix{Seed: 5, Capsules: n, Classes: 60})
	for i, c := range classes {
		if i%4 == 0 {
			c.Spec.Devices = orbit.DeviceRequest{Count: 1 + i%3/2, Milli: []int{100, 250, 500, 1000}[i/4%4]}
		}
	}
	list := sim.Expand(classes)
	sim.Shuffle(list, 5)
	return list
}

// agree runs both on the same work, and returns how many boxes the first has looked into.
func agree(t *testing.T, arrivals []sim.Capsule, a, b orbit.PlacementEngine) (boxes int64) {
	rivals := []*rival{newRival(a, len(arrivals)), newRival(b, len(arrivals))}
	do := join(smallFleet(200))
	random := rand.New(rand.NewPCG(1, 2))
	const wave = 500
	for ; len(arrivals) > 0; arrivals = arrivals[min(wave, len(arrivals)):] {
		for _, c := range arrivals[:min(wave, len(arrivals))] {
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c.ID}, Spec: c.Spec})
		}
		var states [2]*orbit.State
		var rounds [2]orbit.Round
		for i, r := range rivals {
			r.commit(t, do)
			states[i], rounds[i] = r.pass(t)
		}
		require.Positive(t, rounds[0].Committed)
		require.Len(t, rounds[1].Unplaced, len(rounds[0].Unplaced))
		same(t, states[0], states[1])
		boxes += noted(rounds[0], "boxes")
		do = changes(states[0], random)
	}
	return boxes
}

// noted is a number that the placement engine has noted.
func noted(round orbit.Round, key string) int64 {
	for _, note := range round.Notes {
		if note.Key == key {
			return note.Value.Int64()
		}
	}
	return 0
}

// same requires all capsules to be in the same place.
func same(t *testing.T, a, b *orbit.State) {
	require.Equal(t, a.CapsuleCount(), b.CapsuleCount())
	for c := range a.Capsules() {
		o := b.Capsule(c.ID)
		if c.Node != o.Node || c.Devices != o.Devices {
			t.Fatalf("capsule %s is on %q, devices %b, and on %q, devices %b", c.ID, c.Node, c.Devices, o.Node, o.Devices)
		}
	}
}

// smallFleet has machines of a quarter of the usual size, many of them with devices of two models.
func smallFleet(n int) []orbit.Node {
	kinds := sim.Machines()
	for i := range kinds {
		for d := range kinds[i].Capacity {
			kinds[i].Capacity[d] /= 4
		}
	}
	kinds[1].Devices = orbit.Devices{Model: "T4", Count: 2}
	kinds[2].Devices = orbit.Devices{Model: "A100", Count: 3, Unhealthy: 0b10}
	kinds[4].Weight = 15
	return sim.Constellation(sim.Fleet{Seed: 3, Nodes: n, Kinds: kinds})
}

func join(nodes []orbit.Node) (do []orbit.Commitment) {
	for _, n := range nodes {
		do = append(do, orbit.PutNode{Node: n})
	}
	return do
}

// changes lets some capsules go for good and some nodes change: they drain, shrink below what is used, or lose
// a device.
func changes(state *orbit.State, r *rand.Rand) (do []orbit.Commitment) {
	for c := range state.Capsules() {
		if c.Placed() && r.IntN(5) == 0 {
			do = append(do, orbit.Release{Capsule: c.ID, Final: true})
		}
	}
	for s := range state.Nodes() {
		if r.IntN(12) > 0 {
			continue
		}
		n := *s.Node
		switch r.IntN(4) {
		case 0:
			n.Cordon(n.Schedulable())
		case 1:
			n.Capacity[orbit.CPU] = s.Used()[orbit.CPU] * 9 / 10
		case 2:
			n.Capacity[orbit.CPU] += 4000
		case 3:
			n.Devices.Unhealthy ^= 1 << min(n.Devices.Count, 1) >> 1
		}
		do = append(do, orbit.PutNode{Node: n})
	}
	return do
}
