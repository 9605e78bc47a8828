package nav

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// The bound holds for whatever duals, and however nodes are put together: more than a greedy packing places it
// always is. (That it is more than the optimum, with the duals it finds, is tested from outside.)
func TestBoundWithAnyDuals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, nodes, placed := drawInventory(t)
		if limit := rapid.IntRange(0, 4).Draw(t, "kinds"); limit > 0 {
			m.kinds = nil
			for _, members := range coarsest(nodes, limit, (*alikeNodes).key) {
				m.kinds = append(m.kinds, newKind(members))
			}
			require.LessOrEqual(t, len(m.kinds), limit)
		}
		p := make(packDuals, len(m.kinds))
		for k := range p {
			for d := range p[k] {
				if sum := m.kinds[k].sum[d]; sum > 0 {
					p[k][d] = rapid.Float64Range(0, 10).Draw(t, "dual") / sum
				}
			}
		}
		require.LessOrEqual(t, placed, m.bound(p))
		solved, _ := m.solve(context.Background())
		require.LessOrEqual(t, placed, m.bound(solved))
		for k := range p {
			p[k][orbit.CPU] = math.NaN()
		}
		require.LessOrEqual(t, placed, m.bound(p))
	})
}

// drawInventory returns an inventory, and how many capsules fit for certain: its nodes are made of capsules.
func drawInventory(t *rapid.T) (v *inventory, nodes []alikeNodes, placed int) {
	var classes []*batchClass
	for range rapid.IntRange(1, 4).Draw(t, "classes") {
		s := &orbit.Spec{}
		for d := range 2 {
			s.Envelope.Reservation[d] = rapid.OneOf(rapid.Int64Range(0, 9), rapid.Just(int64(math.MaxInt64/4))).Draw(t, "want")
		}
		if rapid.Bool().Draw(t, "asks for devices") {
			s.Devices.Count = rapid.IntRange(1, 3).Draw(t, "count")
			s.Devices.Milli = rapid.SampledFrom([]int{300, 501, 1000}).Draw(t, "milli")
		}
		if rapid.Bool().Draw(t, "picky") {
			s.Require = []orbit.Predicate{{Key: "ssd", Op: "Exists"}}
		}
		classes = append(classes, &batchClass{spec: s})
	}
	ledger, n := &orbit.MemoryLedger{}, rapid.IntRange(1, 6).Draw(t, "nodes")
	for i := range n {
		node := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i))}
		for range rapid.IntRange(0, 3).Draw(t, "capsules") {
			c := rapid.SampledFrom(classes).Draw(t, "class")
			if node.Devices.Count+c.spec.Devices.Count > orbit.MaxDevices {
				continue
			}
			c.capsules = append(c.capsules, &orbit.Capsule{})
			placed++
			if len(c.spec.Require) > 0 {
				node.Labels = map[string]string{"ssd": "yes"}
			}
			node.Capacity, _ = node.Capacity.Add(c.spec.Envelope.Reservation)
			node.Devices.Model, node.Devices.Count = "D", node.Devices.Count+c.spec.Devices.Count
		}
		_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: node}}})
		require.NoError(t, err)
	}
	for _, c := range classes {
		c.capsules = append(c.capsules, make([]*orbit.Capsule, rapid.IntRange(0, 5).Draw(t, "more"))...)
	}
	state, err := ledger.Snapshot(context.Background())
	require.NoError(t, err)
	v = newInventory(state.Nodes(), classes)
	return v, v.alike(state.Nodes()), placed
}

// The inventory of a lower priority is what the higher ones have left.
func TestInventoryWithoutWhatIsTaken(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	s := &orbit.Spec{Devices: orbit.DeviceRequest{Count: 1, Milli: 600}}
	s.Envelope.Reservation[orbit.CPU] = 4
	_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{
		ID: "n", Capacity: orbit.Resources{orbit.CPU: 10}, Devices: orbit.Devices{Model: "D", Count: 3}}}}})
	require.NoError(t, err)
	var view orbit.View
	var draft orbit.Draft
	require.NoError(t, view.Refresh(t.Context(), ledger, nil, time.Time{}))
	draft.Sync(&view)
	c := &batchClass{spec: s, capsules: make([]*orbit.Capsule, 9)}
	require.Equal(t, 2, newInventory(draft.Nodes(), []*batchClass{c}).classes[0].count)
	require.NoError(t, draft.Place(&orbit.Capsule{ID: "above", Spec: s}, orbit.Choice{Node: draft.Node(0), Devices: 0b10}))
	m := newInventory(draft.Nodes(), []*batchClass{c})
	require.Equal(t, 1, m.classes[0].count)
	require.Equal(t, [packDims]float64{orbit.CPU: 6, seats.DevicesDim: 2400, halfDim: 2, idleDim: 0}, m.kinds[0].sum)
}

// Sums that follow the view are those of a fresh look.
func TestFreeTallyFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger, tally := &orbit.MemoryLedger{}, freeTally{}
		look := orbit.Engine{Ledger: ledger, Navigator: Func(func(_ context.Context, view *orbit.View, _ []*orbit.Capsule) (orbit.Plan, error) {
			fresh := freeTally{}
			tally.sync(view)
			fresh.sync(view)
			var want [seats.DevicesDim + 1]float64
			for n := range view.State().Nodes() {
				if n.Node.Schedulable() {
					want[orbit.CPU] += float64(max(n.Node.Capacity[orbit.CPU], 0))
					want[seats.DevicesDim] += seats.WholeDevice * float64(n.Node.Devices.Count)
				}
			}
			require.Equal(t, want, fresh.sum)
			require.Equal(t, want, tally.sum)
			return orbit.Plan{}, nil
		})}
		do := []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: &orbit.Spec{}}}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			n := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, 5).Draw(t, "node")))}
			n.Capacity[orbit.CPU] = rapid.Int64Range(0, 9).Draw(t, "cpu")
			n.Devices = orbit.Devices{Model: "D", Count: rapid.IntRange(0, 3).Draw(t, "devices")}
			n.Cordon(rapid.Bool().Draw(t, "drained"))
			do = append(do, orbit.PutNode{Node: n})
			if rapid.IntRange(0, 4).Draw(t, "leaves") == 0 {
				do = append(do, orbit.RemoveNode{Node: n.ID})
			}
			_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do})
			require.NoError(t, err)
			do = nil
			require.Empty(t, look.Pass(context.Background()).Errors)
		}
	})
}
