package nav

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

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
	require.Len(t, g.index.Shapes, 1)
	for _, shape := range g.index.Shapes {
		require.Len(t, shape.Sums, 1)
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
	g.index.Free[0].Resources[orbit.CPU] = 2
	for _, shape := range g.index.Shapes {
		shape.Counts[0], shape.Sums = 2, nil
	}
	round := e.Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Equal(t, 1, g.misjudged)
	require.Zero(t, round.Proposed)
	require.Len(t, round.Unplaced, 2)
	require.ErrorContains(t, round.Unplaced[0].Why, `anywhere fits 1 of 2 (1 node lacks cpu)`)
	require.Zero(t, g.index.Draft.Node(0).Capsules)
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
		require.LessOrEqual(t, len(g.index.Used), 1, "shapes that the last plan has used")
		do(orbit.Release{Capsule: id, Final: true})
		e.Pass(t.Context())
		require.LessOrEqual(t, len(g.waits), 2*mostForgotten)
		require.LessOrEqual(t, len(g.demands), len(g.waits))
	}
}
