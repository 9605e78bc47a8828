package nav_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// TestNominatedRoomIsUsed: every ready navigator places the nominee in the room that is nominated for it, although others of
// its spec come first and do not fit there.
func TestNominatedRoomIsUsed(t *testing.T) {
	for name, navigator := range map[string]orbit.Navigator{"services": &nav.Services{}, "batch": &nav.Batch{}, "anchor": &nav.Anchor{Navigator: &nav.Services{}}} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
			s := spec(4, 0)
			if name == "batch" {
				s.Class = orbit.Batch
			}
			commit(t, l, node("n1", 4), orbit.Submit{IDs: []orbit.CapsuleID{"first", "nominee", "last"}, Spec: s})
			commit(t, l, orbit.Nominate{Capsule: "nominee", Ends: time.Now().Add(time.Hour),
				Parts: []orbit.NominatedRoom{{Node: "n1", Room: orbit.Resources{orbit.CPU: 4}}}})
			e := orbit.Engine{Name: "e", Ledger: l, Navigator: navigator}
			require.Equal(t, 1, e.Pass(t.Context()).Committed)
			require.Equal(t, orbit.NodeID("n1"), snapshot(t, l).Capsule("nominee").Node)
		})
	}
}

// TestGangUsesItsNomination: a gang is placed in the room that is nominated for it and for those that it outranks, and
// another gang, or the same one without its nomination, is not.
func TestGangUsesItsNomination(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	s := spec(2, 0)
	s.Class = orbit.GangClass
	gang := func(id orbit.GangID, members ...orbit.CapsuleID) orbit.Submit {
		return orbit.Submit{Gang: &orbit.Gang{ID: id, Roles: []orbit.Role{{Name: "r", Spec: s, Members: members}}}}
	}
	commit(t, l, node("n1", 4), node("n2", 4), gang("a", "a1", "a2"), gang("b", "b1", "b2", "b3"))
	claim := func(id orbit.GangID, cpu int64) orbit.Nominate {
		n := orbit.Nominate{Gang: id, Ends: time.Now().Add(time.Hour)}
		for _, on := range []orbit.NodeID{"n1", "n2"} {
			n.Parts = append(n.Parts, orbit.NominatedRoom{Node: on, Room: orbit.Resources{orbit.CPU: cpu}})
		}
		return n
	}
	commit(t, l, claim("b", 3))
	commit(t, l, claim("a", 1))
	e := orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Gang{}}
	round := e.Pass(t.Context())
	require.Equal(t, 1, round.Committed)
	for _, id := range []orbit.CapsuleID{"b1", "b2", "b3"} {
		require.True(t, snapshot(t, l).Capsule(id).Placed(), id)
	}
	require.Empty(t, snapshot(t, l).Capsule("a1").Node)
}

// TestNominatedMemberStartsItsGroup: of a group of which nothing runs, the member that is nominated is the anchor, on its room,
// although others were submitted first and could start nowhere; or in the rack that takes more of the group, if there is one.
func TestNominatedMemberStartsItsGroup(t *testing.T) {
	for _, elsewhere := range []int64{0, 4} {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
		commit(t, l, rackNode("n1", "r1", 4), rackNode("n2", "r1", 4), rackNode("m1", "r2", elsewhere), rackNode("m2", "r2", elsewhere))
		submit(t, l, "a", 1, near("g", 3))
		other := near("g", 3)
		other.Module = "other"
		submit(t, l, "b", 2, other)
		commit(t, l, orbit.Nominate{Capsule: "b-1", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{
			{Node: "n1", Room: orbit.Resources{orbit.CPU: 3}}}})
		put(t, l, "load", "n2", batchSpec(4))
		e := anchored(l)
		e.MaxPlan = 10
		require.Empty(t, e.Pass(t.Context()).Errors)
		s := snapshot(t, l)
		if elsewhere > 0 {
			require.Equal(t, orbit.NodeID("m1"), s.Capsule("b-1").Node)
			continue
		}
		require.Equal(t, orbit.NodeID("n1"), s.Capsule("b-1").Node)
		require.True(t, s.Capsule("a-0").Pending())
		commit(t, l, orbit.Release{Capsule: "load", Final: true})
		settle(t, e)
		require.Equal(t, 2, snapshot(t, l).Node("n1").Capsules+snapshot(t, l).Node("n2").Capsules)
	}
}
