package whatif_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/whatif"
)

func put(id string, cpu int64, labels map[string]string) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: labels}}
}

func submitted(id string, spec *orbit.Spec) orbit.Submit {
	return orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: spec}
}

func movable(cpu int64) *orbit.Spec {
	s := wants(cpu, 0)
	s.Movable = true
	return s
}

func planUp(t *testing.T, up *whatif.ScaleUp, l orbit.Ledger) *whatif.Scaling {
	answer, err := up.Plan(t.Context(), snapshot(t, l))
	require.NoError(t, err)
	return answer
}

func planDown(t *testing.T, down *whatif.ScaleDown, l orbit.Ledger) *whatif.Scaling {
	answer, err := down.Plan(t.Context(), snapshot(t, l))
	require.NoError(t, err)
	return answer
}

// A node that would have to be left by more capsules than a search for moves tries is left all the same: no node joins.
func TestScaleUpSavesANodeByManyMoves(t *testing.T) {
	l := &orbit.MemoryLedger{}
	z0, z1 := map[string]string{"zone": "z0"}, map[string]string{"zone": "z1"}
	commit(t, l, put("a", 20, z0), put("b", 41, z1), submitted("stays", wants(21, 0)), orbit.Place{Capsule: "stays", Node: "b"})
	for i := range 20 {
		id := fmt.Sprint("c", i)
		commit(t, l, submitted(id, movable(1)), orbit.Place{Capsule: orbit.CapsuleID(id), Node: "a"})
	}
	s := wants(20, 0)
	s.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"z0"}}}
	commit(t, l, submitted("w", s))
	k := kind("k", 20, 1)
	k.Node.Labels = z0
	up := &whatif.ScaleUp{Kinds: []whatif.NodeKind{k}}
	answer := planUp(t, up, l)
	require.Empty(t, answer.Nodes, "%v", answer)
	require.Len(t, answer.Moved, 20)
	require.Empty(t, answer.Unplaced)
	up.Moves = 19
	answer = planUp(t, up, l)
	require.Len(t, answer.Nodes, 1, "it may not move so many")
	require.Empty(t, answer.Moved)
}

// What waits keeps the room that it would get, and nothing else keeps a node that is empty.
func TestScaleDownKeepsTheRoomOfWhatWaits(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, put("a", 8, nil), put("b", 8, nil), put("c", 4, nil), submitted("on", wants(2, 0)), orbit.Place{Capsule: "on", Node: "a"}, submitted("w", wants(8, 0)))
	answer := planDown(t, &whatif.ScaleDown{}, l)
	require.Len(t, answer.Nodes, 1)
	require.Equal(t, orbit.NodeID("c"), answer.Nodes[0].ID)
	require.Error(t, answer.Unplaced[0].Why)
}

// An answer rests on what it has read: if that has changed, nothing of the proposal is committed, and it is a conflict.
func TestScalingBets(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, put("a", 8, nil), put("b", 8, nil), submitted("x", movable(2)), submitted("y", movable(2)), submitted("late", wants(1, 0)),
		orbit.Place{Capsule: "x", Node: "a"}, orbit.Place{Capsule: "y", Node: "b"})
	down := planDown(t, &whatif.ScaleDown{Of: func(n *orbit.Node) bool { return n.ID == "a" }}, l)
	require.Len(t, down.Nodes, 1)
	commit(t, l, orbit.Place{Capsule: "late", Node: "a"})
	done, err := down.Commit(t.Context(), l)
	require.ErrorIs(t, err, orbit.ErrConflict)
	require.Zero(t, done)
	require.Equal(t, orbit.Ready, snapshot(t, l).Node("a").Node.State)

	commit(t, l, submitted("w1", wants(5, 0)), submitted("w2", wants(8, 0)), submitted("other", wants(6, 0)))
	up := planUp(t, &whatif.ScaleUp{Kinds: []whatif.NodeKind{kind("k", 8, 1)}, Of: func(c *orbit.Capsule) bool { return c.ID != "other" }}, l)
	require.Len(t, up.Nodes, 1, "%v", up)
	commit(t, l, orbit.Place{Capsule: "other", Node: "b"})
	commit(t, l, submitted("z", wants(5, 0)), orbit.Place{Capsule: "z", Node: "a"})
	_, err = up.Commit(t.Context(), l)
	require.ErrorIs(t, err, orbit.ErrConflict)
	require.Equal(t, 2, snapshot(t, l).NodeCount(), "the new node has not joined alone")
}

// If the nodes of a kind do not suffice, the first in the queue get them, and the others say why they wait.
func TestScaleUpServesTheQueueInOrder(t *testing.T) {
	for _, more := range []int{0, 8} { // a few are searched exactly
		l := &orbit.MemoryLedger{}
		urgent := wants(3, 0)
		urgent.Priority = 10
		commit(t, l, submitted("large", wants(4, 0)), submitted("urgent", urgent))
		for i := range more {
			commit(t, l, submitted(fmt.Sprint("more", i), wants(4, 0)))
		}
		k := kind("k", 4, 1)
		k.Max = 1
		answer := planUp(t, &whatif.ScaleUp{Kinds: []whatif.NodeKind{k}}, l)
		require.Len(t, answer.Nodes, 1)
		require.Len(t, answer.Placed, 1)
		require.Equal(t, orbit.CapsuleID("urgent"), answer.Placed[0].Capsule)
		require.Len(t, answer.Unplaced, more+1)
		require.ErrorContains(t, answer.Unplaced[0].Why, `no more nodes of kind "k" may join`)
	}
}

// A gang has a place for all that wait, in one domain, or for none, and no node joins for a part of it.
func TestScaleUpPlacesGangsWhole(t *testing.T) {
	for _, size := range []int{4, 12} {
		l := &orbit.MemoryLedger{}
		commit(t, l, put("a", 4, map[string]string{"rack": "r0"}))
		var members []orbit.CapsuleID
		for i := range size {
			members = append(members, orbit.CapsuleID(fmt.Sprint("m", i)))
		}
		s := wants(2, 0)
		s.Class = orbit.GangClass
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "r", Members: members, Spec: s, Min: 2}}}})
		in := func(name, rack string, price float64, most int) whatif.NodeKind {
			k := kind(name, 4, price)
			k.Node.Labels, k.Max = map[string]string{"rack": rack}, most
			return k
		}
		cheap, dear := in("cheap", "r1", 1, size/2-1), in("dear", "r0", 1.5, 0)
		answer := planUp(t, &whatif.ScaleUp{Kinds: []whatif.NodeKind{cheap, dear}}, l)
		require.Empty(t, answer.Unplaced)
		require.Equal(t, map[string]int{"dear": size/2 - 1}, answer.Counts(), "%d nodes in the rack that has one", size/2-1)

		answer = planUp(t, &whatif.ScaleUp{Kinds: []whatif.NodeKind{cheap}}, l)
		require.Empty(t, answer.Nodes)
		require.Len(t, answer.Unplaced, size)
		require.ErrorContains(t, answer.Unplaced[0].Why, `members of gang "g" are placed together or not at all`)
	}
}

// Kinds and prices that make no sense are refused with a reason.
func TestScalingRefusesBadSettings(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, put("a", 4, nil))
	state := snapshot(t, l)
	bad := kind("k", 4, 1)
	bad.Node.Capacity[orbit.CPU] = -1
	cordoned := kind("k", 4, 1)
	cordoned.Node.State = orbit.Cordoned
	for _, kinds := range [][]whatif.NodeKind{{kind("", 4, 1)}, {kind("k", 4, 0)}, {kind("k", 4, math.NaN())}, {kind("k", 4, math.Inf(1))},
		{kind("k", 4, 1), kind("k", 8, 1)}, {{Name: "k", Price: 1, Max: -1}}, {bad}, {cordoned}} {
		_, err := (&whatif.ScaleUp{Kinds: kinds}).Plan(t.Context(), state)
		require.ErrorIs(t, err, orbit.ErrInvalid)
	}
	_, err := (&whatif.ScaleDown{Price: func(*orbit.Node) float64 { return -1 }}).Plan(t.Context(), state)
	require.ErrorIs(t, err, orbit.ErrInvalid)
	_, err = (&whatif.ScaleDown{}).Plan(t.Context(), nil)
	require.Error(t, err)
	_, err = (&whatif.ScaleUp{}).Plan(t.Context(), nil)
	require.Error(t, err)
}

// An answer about an empty state, and one without anything to do, commits nothing.
func TestScalingOfNothing(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for _, answer := range []*whatif.Scaling{planUp(t, &whatif.ScaleUp{Kinds: []whatif.NodeKind{kind("k", 4, 1)}}, l), planDown(t, &whatif.ScaleDown{}, l)} {
		require.Empty(t, answer.Nodes)
		done, err := answer.Commit(t.Context(), l)
		require.NoError(t, errors.Join(err))
		require.Zero(t, done)
	}
}
