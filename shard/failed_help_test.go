package shard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// bruteRoom counts how many capsules a node takes, by placing them one by one on another ledger.
func bruteRoom(t *rapid.T, n *orbit.NodeState, spec *orbit.Spec) int {
	own := &orbit.MemoryLedger{}
	free := *n.Node
	free.Capacity = n.Free()
	for d := range free.Capacity {
		free.Capacity[d] = max(free.Capacity[d], 0)
	}
	_, err := own.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: free}}})
	require.NoError(t, err)
	for i := 0; ; i++ {
		state, _ := own.Snapshot(context.Background())
		now := state.Node(free.ID)
		if !now.Fits(spec) {
			return i
		}
		id := orbit.CapsuleID(fmt.Sprint(i))
		devices, _ := now.PickDevices(spec)
		_, err := own.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: free.ID, Devices: devices},
		}})
		require.NoError(t, err)
	}
}

func TestRoomAgainstFilling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 9)
		n := orbit.Node{ID: "n", Capacity: orbit.Resources{size.Draw(t, "cpu"), size.Draw(t, "memory"), 3: 20}, State: map[bool]orbit.Condition{true: orbit.Cordoned}[rapid.IntRange(0, 5).Draw(t, "drained") == 0]}
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{size.Draw(t, "wants cpu"), size.Draw(t, "wants memory"), 3: 1}}}
		one := rapid.Bool().Draw(t, "devices")
		if one {
			n.Devices = orbit.Devices{Model: "m", Count: rapid.IntRange(0, 4).Draw(t, "count")}
			if n.Devices.Count == 0 {
				n.Devices.Model = ""
			}
			spec.Devices = orbit.DeviceRequest{Count: 1, Milli: rapid.SampledFrom([]int{300, 500, 1000}).Draw(t, "milli")}
		}
		ledger := &orbit.MemoryLedger{}
		_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: n}}})
		require.NoError(t, err)
		state, _ := ledger.Snapshot(context.Background())
		require.Equal(t, bruteRoom(t, state.Node("n"), spec), roomFor(state.Node("n"), spec))
	})
}

func TestRoomOfHugeNumbers(t *testing.T) {
	const huge = 1<<63 - 1
	s := newStage(t)
	s.do(node("n", huge), orbit.Submit{IDs: ids("x", 1), Spec: cpu(huge)})
	require.Equal(t, maxRoom, roomFor(s.state().Node("n"), cpu(1)))
	require.Equal(t, maxRoom, roomFor(s.state().Node("n"), &orbit.Spec{}))
	require.Equal(t, 1, roomFor(s.state().Node("n"), cpu(huge)))
	s.do(orbit.Place{Capsule: "x000", Node: "n"})
	s.do(node("n", 1))
	require.Equal(t, 0, roomFor(s.state().Node("n"), cpu(1)), "shrunk below what is used")
	require.Equal(t, 0, roomFor(nil, cpu(1)))
}

// TestClearsWhatChangesHelp compares the failures that are cleared after each change with a count by brute force: as
// many as there is new capacity for, and no more than have failed.
func TestClearsWhatChangesHelp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStage(rt)
		s.live("a", "b")
		strict := rapid.Bool().Draw(rt, "strict")
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: strict}
		small, large := cpu(2), cpu(3)
		s.do(orbit.Submit{IDs: ids("small", 6), Spec: small, Owner: "a"}, orbit.Submit{IDs: ids("large", 6), Spec: large, Owner: "a"})
		all := append(ids("small", 6), ids("large", 6)...)
		lost := func() { // every scheduler fails every capsule
			s.settle(d)
			for range 2 {
				for _, id := range all {
					if c := s.state().Capsule(id); c.Pending() && c.Owner() != "" {
						s.giveBack(c.Owner(), id)
					}
				}
				s.settle(d)
			}
		}
		lost()
		for range rapid.IntRange(1, 8).Draw(rt, "changes") {
			before := s.state()
			id := orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, 1).Draw(rt, "node")))
			do := []orbit.Commitment{node(id, rapid.Int64Range(0, 12).Draw(rt, "size"))}
			if rapid.IntRange(0, 2).Draw(rt, "regroup") == 0 {
				do = []orbit.Commitment{orbit.Mark{Key: groupMark.key(string(id)), Value: rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(rt, "group")}}
			} else if n := before.Node(id); n != nil && rapid.Bool().Draw(rt, "use") {
				do = []orbit.Commitment{orbit.Hold{ID: "h", Node: id, Room: orbit.Resources{max(n.Free()[0]/2, 1)}, Ends: time.Unix(1e9, 0)}}
				if h, held := before.Hold("h"); held {
					do, id = []orbit.Commitment{orbit.Release{Hold: "h"}}, h.Node
				}
			}
			if before.Check(orbit.Proposal{Do: do}) != nil {
				continue
			}
			s.do(do...)
			cleared := 0
			for _, r := range s.settle(d) {
				cleared += r.Cleared
			}
			require.Equal(rt, expected(before, s.state(), id, strict, small)+expected(before, s.state(), id, strict, large), cleared, "%v", do)
			lost()
		}
	})
}

// expected returns how many of six capsules that all schedulers have failed a change helps.
func expected(before, after *orbit.State, id orbit.NodeID, strict bool, spec *orbit.Spec) int {
	was, _ := before.Mark(groupMark.key(string(id)))
	group, _ := after.Mark(groupMark.key(string(id)))
	gain := roomFor(after.Node(id), spec)
	_, at := after.Mark(groupMark.key(string(id)))
	if regrouped := at > before.Revision() || was != group; !regrouped || !strict {
		gain -= roomFor(before.Node(id), spec)
	}
	if strict && group != "a" && group != "b" {
		return 0
	}
	return min(6, max(gain, 0))
}

// TestHelpForOneLeavesTheOthersFailures: in strict mode, free capacity on a node clears only the failures of the node's
// owner.
func TestHelpForOneLeavesTheOthersFailures(t *testing.T) {
	s := newStage(t)
	s.live("a", "b", "c")
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: true}
	for _, name := range []string{"a", "b", "c"} {
		s.do(node(orbit.NodeID("n"+name), 1), orbit.Mark{Key: "group/n" + name, Value: name})
	}
	s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(2)})
	for range 3 {
		s.settle(d)
		s.giveBack(s.owner("x000"), "x000")
	}
	s.settle(d)
	s.do(node("nc", 2), node("nb", 2))
	r := d.Step(t.Context())
	require.Equal(t, 1, r.Cleared)
	list, err := parseFailures(s.mark("plan/capsule/failed/x000"))
	require.NoError(t, err)
	require.Len(t, list.list, 1)
	require.Equal(t, "a", list.list[0].Scheduler)
	s.settle(d)
	require.Contains(t, []string{"b", "c"}, s.owner("x000"))
}

// TestAChangeThatTheMarkOvertook: capacity became free after the scheduler's view and before its mark was written.
func TestAChangeThatTheMarkOvertook(t *testing.T) {
	for _, strict := range []bool{false, true} {
		s := newStage(t)
		s.live("a", "b")
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: strict}
		s.do(orbit.Submit{IDs: ids("x", 3), Spec: cpu(2), Owner: "a"}, orbit.Mark{Key: "group/n", Value: "a"}, orbit.Mark{Key: "group/m", Value: "b"}, node("m", 1))
		s.settle(d)
		plan, err := s.plan(&Scheduler{Name: "a", Navigator: says(&orbit.NoFit{})}, ids("x", 3)...)
		require.NoError(t, err)
		s.do(node("n", 4))
		require.Empty(t, s.settle(d), "the dispatcher sees the room first")
		for _, p := range plan.Proposals {
			_, err := s.ledger.Propose(t.Context(), p)
			require.NoError(t, err)
		}
		require.Equal(t, 2, d.Step(t.Context()).Cleared, "as many as there is room for")
		s.settle(d)
		require.Equal(t, "b", s.owner("x002"))
		require.NotEmpty(t, s.mark("plan/capsule/failed/x002"))
	}
}

func TestARestartClearsWhatChangedMeanwhile(t *testing.T) {
	s := newStage(t)
	s.live("a")
	s.do(node("n", 1), orbit.Submit{IDs: ids("x", 2), Spec: cpu(2), Owner: "a"})
	s.giveBack("a", ids("x", 2)...)
	require.Zero(t, (&Dispatcher{Ledger: s.ledger, Leases: s.leases}).Step(t.Context()).Cleared)
	s.do(node("n", 2))
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	require.Equal(t, 1, d.Step(t.Context()).Cleared)
}
