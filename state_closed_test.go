package orbit

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sameClosed compares a state with one in which some nodes are closed, record by record.
func sameClosed(t *rapid.T, want, got *State, closed func(*NodeState) bool) {
	require.NoError(t, got.Verify())
	require.Equal(t, want.rev, got.rev)
	require.Equal(t, want.NodeBound(), got.NodeBound())
	require.Equal(t, want.NodeCount(), got.NodeCount())
	for i := range want.NodeBound() {
		a, b := want.nodes.At(uint32(i)).node, got.nodes.At(uint32(i)).node
		member := a.Node != nil
		if member && closed(&a) && a.Node.Schedulable() {
			description := *a.Node
			description.State = Cordoned
			require.Equal(t, description, *b.Node)
			a.Node, b.Node = nil, nil
		}
		require.Equal(t, a, b, "node in slot %d", i)
		if member {
			require.Same(t, got.nodes.At(uint32(i)).node.Node, got.Node(want.nodes.At(uint32(i)).node.Node.ID).Node)
		}
	}
}

// TestClosedProperty: a state with cordoned nodes equals the state without the cordons, except for those nodes, whether
// it is built from nothing or step by step from the changes. States taken earlier do not change, and cordoned nodes
// with equal descriptions keep sharing one. I8.
func TestClosedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, most := newChaos(t), rapid.SampledFrom([]int{5, 60, 150}).Draw(t, "nodes")
		id := func() NodeID { return NodeID(fmt.Sprint("n", rapid.IntRange(0, most).Draw(t, "node"))) }
		for range most {
			w.try(PutNode{w.node(t, id())})
		}
		flips := map[NodeID]bool{}
		closed := func(n *NodeState) bool {
			return flips[n.Node.ID] != (len(n.Node.ID)%2 == int(n.Node.ID[len(n.Node.ID)-1])%2)
		}
		state := snapshotOf(t, w.ledger)
		shown := state.Restricted(nil, nil, closed)
		type kept struct{ state, shown *State }
		var before []kept
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 10).Draw(t, "changes") {
				w.try(PutNode{w.node(t, id())})
				w.try(RemoveNode{Node: id()})
				w.serial++
				c := CapsuleID(fmt.Sprint("k", w.serial))
				w.try(Submit{IDs: []CapsuleID{c}, Spec: chaosSpecs[0]}, Place{Capsule: c, Node: id()})
				waits, old := CapsuleID(fmt.Sprint("w", w.serial)), CapsuleID(fmt.Sprint("w", rapid.IntRange(1, w.serial).Draw(t, "waits")))
				w.try(Submit{IDs: []CapsuleID{waits}, Spec: chaosSpecs[0]})
				w.try(nominationOf(waits, partOn(id(), 1)))
				w.try(nominationOf(old))
				w.try(Place{Capsule: old, Node: id()})
			}
			next := snapshotOf(t, w.ledger)
			changes, err := w.ledger.Changes(context.Background(), state.rev)
			if err != nil {
				shown, state = next.Restricted(nil, nil, closed), next
				continue
			}
			var touched []int32
			touch := func(s *State, id NodeID) {
				if n := s.Node(id); n != nil {
					touched = append(touched, int32(n.index))
				}
			}
			for _, c := range changes {
				touch(state, c.Node)
				touch(next, c.Node)
			}
			was := map[NodeID]bool{}
			for id, f := range flips {
				was[id] = f
			}
			before = append(before, kept{state, shown})
			for n := range next.Nodes() {
				if rapid.IntRange(0, 9).Draw(t, "flip") == 0 {
					flips[n.Node.ID] = !flips[n.Node.ID]
					touch(next, n.Node.ID)
				}
			}
			old := shown
			shown, state = next.Restricted(shown, touched, closed), next
			sameClosed(t, state, shown, closed)
			for n := range shown.Nodes() {
				if o := old.Node(n.Node.ID); o != nil && o.Specification == n.Specification && o.Node.Schedulable() == n.Node.Schedulable() {
					require.Same(t, o.Node, n.Node, "described anew for nothing")
				}
			}
			now := flips
			flips = was
			last := before[len(before)-1]
			sameClosed(t, last.state, last.shown, closed)
			flips = now
		}
	})
}

// TestClosedRefuses: nothing is placed on a closed node of the state, and a ledger can go on from it.
func TestClosedRefuses(t *testing.T) {
	ledger := &MemoryLedger{}
	commit(t, ledger, PutNode{Node{ID: "n", Capacity: Resources{1}}}, PutNode{Node{ID: "o", Capacity: Resources{1}}},
		Submit{IDs: []CapsuleID{"x"}, Spec: &Spec{Module: "m"}})
	state := snapshotOf(t, ledger)
	shown := state.Restricted(nil, nil, func(n *NodeState) bool { return n.Node.ID == "n" })
	assert.ErrorIs(t, shown.Check(Proposal{View: shown.Revision(), Do: []Commitment{Place{Capsule: "x", Node: "n"}}}), ErrInfeasible)
	assert.NoError(t, shown.Check(Proposal{Do: []Commitment{Place{Capsule: "x", Node: "o"}}}))
	assert.NoError(t, state.Check(Proposal{Do: []Commitment{Place{Capsule: "x", Node: "n"}}}))
	fork := &MemoryLedger{Start: shown}
	commit(t, fork, Place{Capsule: "x", Node: "o"})
	assert.NoError(t, snapshotOf(t, fork).Verify())
	assert.True(t, shown.Capsule("x").Pending())
	assert.True(t, snapshotOf(t, ledger).Capsule("x").Pending())
	assert.True(t, snapshotOf(t, ledger).Node("n").Node.Schedulable())
}

// TestClosedFreeSlots: a node that has joined and left between two calls is in no list of changes, and the slot that it
// had is free in the closed state as it is in the whole one: a ledger that goes on from it gives no slot to two nodes.
func TestClosedFreeSlots(t *testing.T) {
	ledger := &MemoryLedger{}
	node := func(id NodeID) Commitment { return PutNode{Node{ID: id, Capacity: Resources{1}}} }
	commit(t, ledger, node("a"), node("b"))
	commit(t, ledger, RemoveNode{Node: "a"})
	commit(t, ledger, RemoveNode{Node: "b"})
	open := func(*NodeState) bool { return false }
	before := snapshotOf(t, ledger).Restricted(nil, nil, open)
	commit(t, ledger, node("passing"))
	commit(t, ledger, node("stays"))
	commit(t, ledger, RemoveNode{Node: "passing"})
	state := snapshotOf(t, ledger)
	shown := state.Restricted(before, []int32{int32(state.Node("stays").Index())}, open)
	fork := &MemoryLedger{Start: shown}
	commit(t, fork, node("c"), node("d"))
	after := snapshotOf(t, fork)
	require.NoError(t, after.Verify())
	require.Equal(t, 3, after.NodeCount())
}

// TestEvensOfOneNode: each rule Even of what is on a node is listed, though no other node has any.
func TestEvensOfOneNode(t *testing.T) {
	web, db := cpuSpec(1), cpuSpec(1)
	web.Group, web.Even = "web", []Even{{Group: "web", Level: "rack", MaxSkew: 1}}
	db.Group, db.Even = "db", []Even{{Group: "db", Level: "rack", MaxSkew: 1}}
	c := newCourt(t, cpuNode("n", 9), submitOf(web, "w"), submitOf(db, "d"), placeOn("w", "n"), placeOn("d", "n"))
	var groups []string
	for s := range c.now().Evens() {
		groups = append(groups, s.Even.Group)
		require.Equal(t, []any{"r-n", 1, 1}, []any{s.Domain, s.Members, s.Fewest})
	}
	require.ElementsMatch(t, []string{"db", "web"}, groups)
}
