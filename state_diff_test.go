package orbit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// everything has a text for each node and capsule of a state, which says all that Diff compares.
func everything(s *State) (nodes map[NodeID]string, capsules map[CapsuleID]string) {
	nodes, capsules = map[NodeID]string{}, map[CapsuleID]string{}
	for n := range s.Nodes() {
		nodes[n.Node.ID] = fmt.Sprint(n.Usage, n.Specification)
		for r := range s.Remains(n.Node.ID) {
			nodes[n.Node.ID] += fmt.Sprint(" ", r.Capsule, r.Since)
		}
	}
	for c := range s.Capsules() {
		capsules[c.ID] = fmt.Sprint(c.Submitted, c.Changed, c.Remains())
	}
	return nodes, capsules
}

// checkDiff compares Diff with a look at all records.
func checkDiff(t require.TestingT, was, now *State) {
	wasNodes, wasCapsules := everything(was)
	nowNodes, nowCapsules := everything(now)
	for a, b := range now.Diff(was).Nodes() {
		require.True(t, a != nil || b != nil)
		id := NodeID("")
		if a != nil {
			id = a.Node.ID
			require.Same(t, was.Node(id), a)
		}
		if b != nil {
			id = b.Node.ID
		}
		require.Same(t, now.Node(id), b)
		require.NotEqual(t, wasNodes[id], nowNodes[id], "node %s, once", id)
		delete(wasNodes, id)
		delete(nowNodes, id)
	}
	require.Equal(t, wasNodes, nowNodes, "all that differ are yielded")
	for a, b := range now.Diff(was).Capsules() {
		require.True(t, a != nil || b != nil)
		id := CapsuleID("")
		if a != nil {
			id = a.ID
			require.Same(t, was.Capsule(id), a)
		}
		if b != nil {
			id = b.ID
		}
		require.Same(t, now.Capsule(id), b)
		require.NotEqual(t, wasCapsules[id], nowCapsules[id], "capsule %s, once", id)
		delete(wasCapsules, id)
		delete(nowCapsules, id)
	}
	require.Equal(t, wasCapsules, nowCapsules, "all that differ are yielded")
}

// TestDiff: between any two states of a history, and states that were restored from dumps of them, Diff yields each record that differs
// once, and no other.
func TestDiff(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &MemoryLedger{Bounds: Limits{Terminal: 2}}
		states := []*State{snapshotOf(t, l)}
		node := func() NodeID { return NodeID(fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node"))) }
		id := func() CapsuleID { return CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 7).Draw(t, "capsule"))) }
		for range rapid.IntRange(1, 60).Draw(t, "commits") {
			s, c := snapshotOf(t, l), id()
			confirm := Confirm{Capsule: c}
			if k := s.Capsule(c); k != nil && k.Remains() != nil {
				confirm.Since, confirm.Stopped = k.Remains().Since, true
			} else if k != nil {
				confirm.Since, confirm.Begun = k.PlacedAt, true
			}
			do := rapid.SampledFrom([]Commitment{
				PutNode{Node{ID: node(), Capacity: Resources{CPU: 4}, Confirms: true}}, RemoveNode{Node: node()},
				Submit{IDs: []CapsuleID{c}, Spec: movable(1)}, Submit{IDs: []CapsuleID{c}, Spec: movable(1)}, Place{Capsule: c, Node: node()}, Place{Capsule: c, Node: node()},
				Release{Capsule: c, Final: true}, confirm, confirm, Mark{Key: "k", Value: "v"},
			}).Draw(t, "do")
			_, _ = l.Propose(bg, Proposal{Do: []Commitment{do}})
			if rapid.Bool().Draw(t, "look") {
				states = append(states, snapshotOf(t, l))
			}
		}
		one := func() *State {
			s := rapid.SampledFrom(states).Draw(t, "state")
			if rapid.IntRange(0, 3).Draw(t, "restored") == 3 {
				again := new(State)
				require.NoError(t, again.Restore(strings.NewReader(dumpOf(t, s))))
				return again
			}
			return s
		}
		for range 4 {
			checkDiff(t, one(), one())
		}
		checkDiff(t, states[0], snapshotOf(t, l))
		for range snapshotOf(t, l).Diff(snapshotOf(t, l)).Nodes() {
			require.Fail(t, "a state does not differ from itself")
		}
		for range states[0].Diff(snapshotOf(t, l)).Capsules() {
			break // who has seen enough may leave
		}
	})
}
