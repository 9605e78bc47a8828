package whatif_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/whatif"
)

// fleetKinds are kinds of nodes of which no one is best for all work.
func fleetKinds() []whatif.NodeKind {
	return []whatif.NodeKind{
		{Name: "small", Price: 10, Node: orbit.Node{Capacity: orbit.Resources{orbit.CPU: 16, orbit.Memory: 64}}},
		{Name: "large", Price: 37, Node: orbit.Node{Capacity: orbit.Resources{orbit.CPU: 64, orbit.Memory: 256}}},
		{Name: "memory", Price: 17, Node: orbit.Node{Capacity: orbit.Resources{orbit.CPU: 16, orbit.Memory: 160}}},
		{Name: "devices", Price: 90, Node: orbit.Node{Capacity: orbit.Resources{orbit.CPU: 64, orbit.Memory: 256}, Devices: orbit.Devices{Model: "g", Count: 8}}},
	}
}

// fleetSpecs are specs of many sizes; some ask for devices, and one keeps its replicas on nodes of their own.
func fleetSpecs(movable bool) (out []*orbit.Spec) {
	for i, size := range [][3]int64{{1, 4, 0}, {2, 4, 0}, {2, 16, 0}, {4, 8, 0}, {4, 48, 0}, {6, 20, 0}, {8, 32, 0}, {12, 24, 0}, {3, 11, 0}, {8, 16, 1}, {16, 64, 2}, {30, 100, 4}} {
		s := wants(size[0], 0)
		s.Envelope.Reservation[orbit.Memory] = size[1]
		s.Movable, s.Group = movable, fmt.Sprint("group-", i)
		if size[2] > 0 {
			s.Devices = orbit.DeviceRequest{Count: int(size[2]), Milli: 1000}
		}
		out = append(out, s)
	}
	out[8].Apart = []orbit.Apart{{Group: "group-8", Level: orbit.NodeKey}}
	return out
}

// fleet returns a ledger of so many nodes that are full but for crumbs, and on which so many capsules wait.
func fleet(t require.TestingT, nodes, waiting int, movable bool, seed uint64) *orbit.MemoryLedger {
	l, r, kinds, specs := &orbit.MemoryLedger{}, rand.New(rand.NewPCG(seed, 0)), fleetKinds(), fleetSpecs(movable)
	var do []orbit.Commitment
	flush := func() {
		if len(do) > 0 {
			commit(t, l, do...)
		}
		do = nil
	}
	for i := range nodes {
		n := kinds[r.IntN(len(kinds))].Node
		n.ID = nodeID(i)
		do = append(do, orbit.PutNode{Node: n})
	}
	flush()
	count := 0
	submit := func(s *orbit.Spec) orbit.CapsuleID {
		id := orbit.CapsuleID(fmt.Sprint("c", count))
		count++
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s})
		return id
	}
	for n := range snapshot(t, l).Nodes() {
		free, devices := n.Node.Capacity, 0
		for tries := 0; tries < 6; tries++ {
			s := specs[r.IntN(len(specs))]
			want := s.Envelope.Reservation
			if want[orbit.CPU] > free[orbit.CPU] || want[orbit.Memory] > free[orbit.Memory] || devices+s.Devices.Count > n.Node.Devices.Count || len(s.Apart) > 0 {
				continue
			}
			free[orbit.CPU], free[orbit.Memory] = free[orbit.CPU]-want[orbit.CPU], free[orbit.Memory]-want[orbit.Memory]
			set := orbit.DeviceSet(1<<s.Devices.Count-1) << devices
			devices += s.Devices.Count
			do = append(do, orbit.Place{Capsule: submit(s), Node: n.Node.ID, Devices: set})
		}
	}
	flush()
	for range waiting {
		submit(specs[r.IntN(len(specs))])
	}
	flush()
	return l
}

// On 1,000 nodes, what has to join costs at most 5% more than the bound, which no nodes beat, and the work is bounded.
func TestScaleUpIsNearTheBound(t *testing.T) {
	for _, movable := range []bool{false, true} {
		for seed := range uint64(3) {
			l := fleet(t, 1000, 5000, movable, seed)
			state := snapshot(t, l)
			up := &whatif.ScaleUp{Kinds: fleetKinds()}
			answer, err := up.Plan(t.Context(), state)
			require.NoError(t, err)
			require.Empty(t, answer.Unplaced)
			t.Logf("movable %t, seed %d: %v nodes, price %v, bound %.1f: %.2f%% more; %d moves, work %d", movable, seed, answer.Counts(), answer.Price, answer.Bound,
				100*(answer.Price/answer.Bound-1), len(answer.Moved), answer.Work())
			require.LessOrEqual(t, answer.Price, answer.Bound*1.05)
		}
	}
}

func BenchmarkScaleUp(b *testing.B) {
	state := snapshot(b, fleet(b, 1000, 5000, true, 1))
	for b.Loop() {
		answer, err := (&whatif.ScaleUp{Kinds: fleetKinds()}).Plan(b.Context(), state)
		require.NoError(b, err)
		b.ReportMetric(float64(answer.Work()), "steps/op")
	}
}
