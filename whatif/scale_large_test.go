package whatif_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
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

// fleet is a cluster to make.
type fleet struct {
	nodes, waiting int
	// How many capsules of random specs are tried on each node.
	fill    int
	movable bool
	// Neither devices nor rules.
	plain bool
	seed  uint64
}

func (f fleet) kinds() []whatif.NodeKind {
	if f.plain {
		return fleetKinds()[:3]
	}
	return fleetKinds()
}

// ledger returns a ledger with the cluster.
func (f fleet) ledger(t require.TestingT) *orbit.MemoryLedger {
	l, r, kinds, specs := &orbit.MemoryLedger{}, rand.New(rand.NewPCG(f.seed, 0)), f.kinds(), fleetSpecs(f.movable)
	if f.plain {
		specs = specs[:8]
	}
	var do []orbit.Commitment
	flush := func() {
		if len(do) > 0 {
			commit(t, l, do...)
		}
		do = nil
	}
	for i := range f.nodes {
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
		for range f.fill {
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
	for range f.waiting {
		submit(specs[r.IntN(len(specs))])
	}
	flush()
	return l
}

// mostWork bounds the work of one answer on 1,000 nodes; it takes about half a second of one processor.
const mostWork = 1_000_000

// On 1,000 nodes, what has to join costs at most 5% more than the bound, which no nodes beat, and the work is bounded: on
// full nodes and on nodes with room. Moves do not make it dearer.
func TestScaleUpIsNearTheBound(t *testing.T) {
	scale.Sequential(t)
	for _, f := range []fleet{{fill: 30}, {fill: 6}} {
		for _, f.seed = range scale.Some[uint64](1, 0, 1, 2) {
			f.nodes, f.waiting = 1000, 5000
			l := f.ledger(t)
			answer, err := (&whatif.ScaleUp{Kinds: f.kinds()}).Plan(t.Context(), snapshot(t, l))
			require.NoError(t, err)
			t.Logf("%+v: %v nodes, price %v, bound %.1f: %.2f%% more; %d moves, work %d", f, answer.Counts(), answer.Price, answer.Bound,
				100*(answer.Price/answer.Bound-1), len(answer.Moved), answer.Work())
			require.Empty(t, answer.Unplaced)
			require.LessOrEqual(t, answer.Price, answer.Bound*1.05)
			require.LessOrEqual(t, answer.Work(), mostWork)
			bets := map[orbit.NodeID]bool{}
			for _, bet := range answer.Proposals()[0].If {
				free := bet.(orbit.NodeFreeOf)
				require.False(t, bets[free.Node], "one bet for all that goes to %s", free.Node)
				bets[free.Node] = true
			}
			done, err := answer.Commit(t.Context(), l)
			require.NoError(t, err)
			require.Equal(t, 1, done)
			require.NoError(t, snapshot(t, l).Verify())

			f.movable = true
			l = f.ledger(t)
			moved, err := (&whatif.ScaleUp{Kinds: f.kinds()}).Plan(t.Context(), snapshot(t, l))
			require.NoError(t, err)
			t.Logf("  with moves: %v nodes, price %v, %d moves, work %d", moved.Counts(), moved.Price, len(moved.Moved), moved.Work())
			require.Empty(t, moved.Unplaced)
			require.LessOrEqual(t, moved.Price, answer.Price)
			require.LessOrEqual(t, moved.Work(), mostWork)
			_, err = moved.Commit(t.Context(), l)
			require.NoError(t, err)
			f.movable = false
		}
	}
}

// On 1,000 nodes that are half empty, the nodes that stay cost at most 5% more than the bound says that they must.
func TestScaleDownIsNearTheBound(t *testing.T) {
	for seed := range uint64(3) {
		f := fleet{nodes: 1000, fill: 3, movable: true, plain: true, seed: seed}
		l, total := f.ledger(t), 0.0
		price := priceLike(f.kinds())
		state := snapshot(t, l)
		for n := range state.Nodes() {
			total += price(n.Node)
		}
		answer, err := (&whatif.ScaleDown{Price: price, Moves: 1 << 20}).Plan(t.Context(), state)
		require.NoError(t, err)
		t.Logf("%+v: of %v, %v is saved by %d nodes and %d moves, bound %.1f: what stays costs %.2f%% more; work %d", f, total, answer.Price, len(answer.Nodes),
			len(answer.Moved), answer.Bound, 100*((total-answer.Price)/(total-answer.Bound)-1), answer.Work())
		require.LessOrEqual(t, total-answer.Price, (total-answer.Bound)*1.05)
		require.LessOrEqual(t, answer.Work(), mostWork)
		done, err := answer.Commit(t.Context(), l)
		require.NoError(t, err)
		require.Equal(t, len(answer.Nodes), done)
		require.NoError(t, snapshot(t, l).Verify())
	}
}

// priceLike returns the price of a node by its kind.
func priceLike(kinds []whatif.NodeKind) func(*orbit.Node) float64 {
	return func(n *orbit.Node) float64 {
		for i := range kinds {
			if k := &kinds[i]; k.Node.Capacity == n.Capacity && k.Node.Devices == n.Devices {
				return k.Price
			}
		}
		return 0
	}
}

func BenchmarkScaleUp(b *testing.B) {
	f := fleet{nodes: 1000, waiting: 5000, fill: 30, movable: true}
	state := snapshot(b, f.ledger(b))
	for b.Loop() {
		answer, err := (&whatif.ScaleUp{Kinds: f.kinds()}).Plan(b.Context(), state)
		require.NoError(b, err)
		b.ReportMetric(float64(answer.Work()), "steps/op")
	}
}

func BenchmarkScaleDown(b *testing.B) {
	f := fleet{nodes: 1000, fill: 3, movable: true, plain: true}
	state := snapshot(b, f.ledger(b))
	for b.Loop() {
		answer, err := (&whatif.ScaleDown{Price: priceLike(f.kinds()), Moves: 1 << 20}).Plan(b.Context(), state)
		require.NoError(b, err)
		b.ReportMetric(float64(answer.Work()), "steps/op")
	}
}
