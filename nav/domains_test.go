package nav

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// A table says of every node what a map says, whatever moves.
func TestDomainTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table domainTable
		model := map[int32]string{}
		for range rapid.IntRange(1, 60).Draw(t, "moves") {
			node := rapid.Int32Range(0, 9).Draw(t, "node")
			name := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "name")
			require.Equal(t, model[node] != name, table.put(node, name, name != ""))
			model[node] = name
		}
		want, got := map[string][]int32{}, map[string][]int32{}
		for i := range int32(10) {
			if name := model[i]; name != "" {
				want[name] = append(want[name], i)
				require.Equal(t, name, table.domains[table.of[i]].name)
			}
		}
		for _, d := range table.domains {
			if len(d.nodes) > 0 {
				got[d.name] = d.nodes
			}
		}
		require.Len(t, got, len(want))
		require.Equal(t, len(want), table.live)
		for name := range want {
			require.ElementsMatch(t, want[name], got[name])
		}
	})
}

// A table whose domains have mostly lost their nodes is to be made anew, one with a domain a node is not.
func TestDomainTableIsSparse(t *testing.T) {
	var table domainTable
	for i := range 200 {
		table.put(int32(i), fmt.Sprint("d", i), true)
	}
	require.False(t, table.sparse())
	for i := range 150 {
		table.put(int32(i), "", false)
	}
	require.True(t, table.sparse())
}

// Where capacity has shrunk below what is used there is nothing, not less.
func TestMeasureOfAShrunkNode(t *testing.T) {
	l, node := &orbit.MemoryLedger{}, orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 10, orbit.Memory: 7}}
	node.Devices = orbit.Devices{Model: "D", Count: 2}
	spec := &orbit.Spec{Devices: orbit.DeviceRequest{Count: 1, Milli: 700}}
	spec.Envelope.Reservation[orbit.CPU] = 10
	shrunk := node
	shrunk.Capacity[orbit.CPU], shrunk.Devices.Unhealthy = 5, 0b10
	for _, do := range []orbit.Commitment{orbit.PutNode{Node: node}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec},
		orbit.Place{Capsule: "c", Node: "n", Devices: 1}, orbit.PutNode{Node: shrunk}} {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{do}})
		require.NoError(t, err)
	}
	state, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	require.Equal(t, quantities{orbit.Memory: 7, devicesDim: 300}, measureFree(state.Node("n")))
}

// Shapes keep sums for the tables that there are, however often a table is made anew.
func TestSumsOfTablesMadeAnew(t *testing.T) {
	l, g := &orbit.MemoryLedger{}, &Gang{}
	spec := &orbit.Spec{Module: "m", Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
	do := func(c ...orbit.Commitment) {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: c})
		require.NoError(t, err)
	}
	do(orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: spec, Members: []orbit.CapsuleID{"a", "b"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: g}
	for round := range 5 {
		for i := range 100 {
			do(orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 1},
				Labels: map[string]string{"rack": fmt.Sprint(round, "-", i)}}})
		}
		require.Len(t, e.Pass(t.Context()).Unplaced, 2)
	}
	require.Len(t, g.index.shapes, 1)
	for _, shape := range g.index.shapes {
		require.Len(t, shape.sums, 1)
	}
}

// Where the index of a Gang has come to differ from its draft, the draft decides.
func TestGangIndexThatDiffersFromItsDraft(t *testing.T) {
	l, g := &orbit.MemoryLedger{}, &Gang{}
	spec := &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
	role := orbit.Role{Name: "w", Spec: spec, Members: []orbit.CapsuleID{"a", "b"}}
	_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1}}},
		orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{role}}}}})
	require.NoError(t, err)
	e := orbit.Engine{Ledger: l, Navigator: g}
	for range 2 { // in the second one nothing is tried, so that the draft has no changes for the index
		require.Len(t, e.Pass(t.Context()).Unplaced, 2)
	}
	clear(g.waits)
	clear(g.demands)
	g.index.free[0].resources[orbit.CPU] = 2
	for _, shape := range g.index.shapes {
		shape.counts[0], shape.sums = 2, nil
	}
	round := e.Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Equal(t, 1, g.misjudged)
	require.Zero(t, round.Proposed)
	require.Len(t, round.Unplaced, 2)
	require.ErrorContains(t, round.Unplaced[0].Why, `anywhere fits 1 of 2 (1 node lacks cpu)`)
	require.Zero(t, g.index.draft.Node(0).Capsules)
}

// Gangs that found no room and were cancelled are forgotten, each with what it asked for.
func TestGangForgetsCancelledGangs(t *testing.T) {
	l, g := &orbit.MemoryLedger{}, &Gang{}
	do := func(c ...orbit.Commitment) {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: c})
		require.NoError(t, err)
	}
	do(orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1}}})
	e := orbit.Engine{Ledger: l, Navigator: g}
	for i := range 1000 {
		id := orbit.CapsuleID(fmt.Sprint("c", i))
		spec := &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: int64(2 + i)}}}
		do(orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "r", Spec: spec, Members: []orbit.CapsuleID{id}}}}})
		require.Len(t, e.Pass(t.Context()).Unplaced, 1)
		require.LessOrEqual(t, len(g.index.used), 1, "shapes that the last plan has used")
		do(orbit.Release{Capsule: id, Final: true})
		e.Pass(t.Context())
		require.LessOrEqual(t, len(g.waits), 2*mostForgotten)
		require.LessOrEqual(t, len(g.demands), len(g.waits))
	}
}
