package nav_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// A broken gang gets what it lacks before members that it can do without, although more of these fit.
func TestGangTopsUpWhatItNeedsFirst(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 4), orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{
		{Name: "small", Spec: gangSpec(1), Members: []orbit.CapsuleID{"s0", "s1", "s2", "s3"}, Min: 1},
		{Name: "large", Spec: gangSpec(3), Members: []orbit.CapsuleID{"l0"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	e.Pass(t.Context())
	require.True(t, snapshot(t, l).Capsule("l0").Placed())
	commit(t, l, orbit.Release{Capsule: "l0", From: "n", Stopped: true})
	require.True(t, snapshot(t, l).Gang("g").Broken())
	e.Pass(t.Context())
	require.True(t, snapshot(t, l).Capsule("l0").Placed())
	require.False(t, snapshot(t, l).Gang("g").Broken())
}

// A gang that is not nominated takes the room that is nominated for work of lower priority, but only where it fits nowhere
// else. Room of work of its own priority is not for it.
func TestGangTakesRoomOfNominationsThatItOutranks(t *testing.T) {
	for name, w := range map[string]struct {
		priorities [2]int32
		more       bool
		placed     orbit.NodeID
	}{
		"higher":                    {[2]int32{5, 5}, false, "n"},
		"as high":                   {[2]int32{1, 1}, false, ""},
		"one role alone is higher":  {[2]int32{5, 1}, false, ""},
		"higher, and there is room": {[2]int32{5, 5}, true, "z"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
			commit(t, l, node("n", 4), orbit.Submit{IDs: []orbit.CapsuleID{"waits"}, Spec: spec(4, 1)}, orbit.Nominate{Capsule: "waits",
				Ends: time.Now().Add(time.Minute), Parts: []orbit.NominatedRoom{{Node: "n", Room: orbit.Resources{orbit.CPU: 4}}}})
			if w.more {
				commit(t, l, node("z", 4))
			}
			gang := &orbit.Gang{ID: "g"}
			for i, priority := range w.priorities {
				s := gangSpec(2)
				s.Priority = priority
				gang.Roles = append(gang.Roles, orbit.Role{Name: string(rune('a' + i)), Spec: s, Members: []orbit.CapsuleID{orbit.CapsuleID(rune('a' + i))}})
			}
			commit(t, l, orbit.Submit{Gang: gang})
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			for range 3 {
				round := e.Pass(t.Context())
				require.Zero(t, round.Infeasible+round.Conflicts+round.Invalid)
			}
			for _, id := range []orbit.CapsuleID{"a", "b"} {
				require.Equal(t, w.placed, snapshot(t, l).Capsule(id).Node)
			}
		})
	}
}

// Only the members that still stop elsewhere need a node that confirms, and not the others of their role.
func TestGangMembersThatStopShareARole(t *testing.T) {
	l := &orbit.MemoryLedger{}
	a, b := node("a", 2), node("b", 2)
	a.Node.Confirms = true
	commit(t, l, a, b, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: gangSpec(2), Members: []orbit.CapsuleID{"m0", "m1"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	e.Pass(t.Context())
	var leave []orbit.Commitment
	for c := range snapshot(t, l).Members("g") {
		leave = append(leave, orbit.Release{Capsule: c.ID, From: c.Node})
		if c.Node == "a" {
			commit(t, l, orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: true})
		}
	}
	a.Node.State, b.Node.State = orbit.Cordoned, orbit.Cordoned
	commit(t, l, a, b)
	commit(t, l, leave...)
	a.Node.State, b.Node.State = orbit.Ready, orbit.Ready
	commit(t, l, a, b)
	require.Zero(t, snapshot(t, l).Gang("g").Total())
	e.Pass(t.Context())
	require.Equal(t, 2, snapshot(t, l).Gang("g").Total())
}

// If the hardest member first leaves no seat for the other one, Preempting begins with the other one.
func TestPreemptingSeatsInTheOtherOrder(t *testing.T) {
	l := &orbit.MemoryLedger{}
	big, small := node("big", 3), node("small", 2)
	big.Node.Capacity[orbit.Memory], small.Node.Capacity[orbit.Memory] = 2, 5
	commit(t, l, big, small)
	put(t, l, "low", "small", spec(2, 0))
	wide, tall := gangSpec(3), gangSpec(1)
	tall.Envelope.Reservation[orbit.Memory] = 2
	wide.Priority, tall.Priority = 1, 1
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{
		{Name: "wide", Spec: wide, Members: []orbit.CapsuleID{"w"}}, {Name: "tall", Spec: tall, Members: []orbit.CapsuleID{"t"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}
	e.Pass(t.Context())
	require.Equal(t, orbit.NodeID("big"), snapshot(t, l).Capsule("w").Node)
	require.Equal(t, orbit.NodeID("small"), snapshot(t, l).Capsule("t").Node)
}

// What a role of a broken gang needs leaves the seats to the members without which the gang as a whole stays below its
// minimum.
func TestGangToppedUpToTheMinimumOfAll(t *testing.T) {
	l := &orbit.MemoryLedger{}
	on := func(id, disk string, cpu int64) orbit.PutNode {
		n := node(id, cpu)
		n.Node.Labels = map[string]string{"disk": disk}
		return n
	}
	picky := gangSpec(1)
	picky.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}
	commit(t, l, on("ssd", "ssd", 4), orbit.Submit{Gang: &orbit.Gang{ID: "g", Min: 4, Roles: []orbit.Role{
		{Name: "plain", Spec: gangSpec(1), Members: []orbit.CapsuleID{"p0", "p1"}}, {Name: "picky", Spec: picky, Members: []orbit.CapsuleID{"s0", "s1"}, Min: 1}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	e.Pass(t.Context())
	for _, id := range []orbit.CapsuleID{"p1", "s1"} {
		commit(t, l, orbit.Release{Capsule: id, From: "ssd", Stopped: true})
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: spec(1, 0)}, orbit.Place{Capsule: "other", Node: "ssd"}, on("hdd", "hdd", 1))
	require.Equal(t, map[string]int{"plain": 1, "*": 1}, snapshot(t, l).Gang("g").Shortfall())
	e.Pass(t.Context())
	require.False(t, snapshot(t, l).Gang("g").Broken())
}
