package nav_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

func mustPass(t require.TestingT, e *orbit.Engine) orbit.Round {
	r := e.Pass(context.Background())
	require.Empty(t, r.Errors)
	require.Zero(t, r.Infeasible)
	return r
}

// stir lets something come and go, so that a plan counts as one in which others have moved.
func stir(t require.TestingT, l orbit.Ledger, node orbit.NodeID, i int) {
	id := orbit.CapsuleID(fmt.Sprint("stir", i))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(1, 0)}, orbit.Place{Capsule: id, Node: node})
	commit(t, l, orbit.Release{Capsule: id, Final: true})
}

// A gang that fits no domain even when all are empty is first in order. It must not keep the right to holds from
// those that could come to fit.
func TestGangThatNeverFitsLeavesHoldsToOthers(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 4)
	rackOf(t, l, "s", 1, 1)
	for i := range 4 {
		id := orbit.CapsuleID(fmt.Sprint("load", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(4, 0)}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("r-", i))})
	}
	gangOf(t, l, "never", "", 5, 4)
	gangOf(t, l, "could", "", 4, 4)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 2}}
	mustPass(t, e)
	commit(t, l, orbit.Release{Capsule: "load0", Final: true})
	for i := range 40 {
		stir(t, l, "s-0", i)
		mustPass(t, e)
		if countHolds(t, l) > 0 {
			return
		}
	}
	t.Fatal("no room is ever held for the gang that could come to fit")
}

// A gang one of whose roles takes nothing: its holds must still end.
func TestGangHoldsEndWithRolesThatTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		rackOf(t, l, "s", 1, 1)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{
			{Name: "w", Spec: gangSpec(4), Members: []orbit.CapsuleID{"a", "b"}},
			{Name: "x", Spec: gangSpec(0), Members: []orbit.CapsuleID{"c"}},
		}}})
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1, HoldFor: time.Second}}
		free := 0
		for i := range 40 {
			stir(t, l, "s-0", i)
			mustPass(t, e)
			free += btoiTest(countHolds(t, l) == 0)
			time.Sleep(500 * time.Millisecond)
		}
		assert.Greater(t, free, 10, "room that does not grow is held for one second, and then not for a while")
	})
}

func btoiTest(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The same where a ledger takes so few commitments at once that not all that fits can be held.
func TestGangHoldsEndOnSmallLedgers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: 8}}
		rackOf(t, l, "r", 8, 4)
		rackOf(t, l, "s", 1, 1)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
		gangOf(t, l, "g", "", 8, 4)
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1, HoldFor: time.Second}}
		free := 0
		for i := range 40 {
			stir(t, l, "s-0", i)
			mustPass(t, e)
			free += btoiTest(countHolds(t, l) == 0)
			time.Sleep(500 * time.Millisecond)
		}
		assert.Greater(t, free, 10)
	})
}

// What one gang tries with the room that is held for it must not hide from another gang of its shape that this room
// has come free.
func TestGangSeesRoomThatWasHeldForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		rackOf(t, l, "s", 1, 1)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
		gangOf(t, l, "large", "", 4, 2)
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 3, HoldFor: time.Second}}
		for i := 0; countHolds(t, l) == 0; i++ {
			require.Less(t, i, 10)
			stir(t, l, "s-0", i)
			mustPass(t, e)
		}
		small := gangSpec(2)
		small.Priority = 1
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "small", Levels: []string{"rack"}, Roles: []orbit.Role{
			{Name: "w", Spec: small, Members: []orbit.CapsuleID{"s0", "s1"}}}}})
		mustPass(t, e)
		require.Zero(t, placedOf(t, l, "small"))
		time.Sleep(2 * time.Second)
		other := &orbit.Engine{Name: "other", Ledger: l, Navigator: &nav.Services{}}
		mustPass(t, other) // any engine releases what has ended
		require.Zero(t, countHolds(t, l))
		for range 3 {
			mustPass(t, e)
		}
		require.Equal(t, 2, placedOf(t, l, "small"))
	})
}

// The same where a hold gives way to a gang of another navigator: its room is there for a third gang.
func TestGangSeesRoomThatGaveWay(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	for i := range 2 {
		id := orbit.CapsuleID(fmt.Sprint("load", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(4, 0)}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("r-", i))})
	}
	gangOf(t, l, "first", "a", 2, 4)
	gangOf(t, l, "second", "b", 2, 4)
	a := &orbit.Engine{Name: "a", Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	b := &orbit.Engine{Name: "b", Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	mustPass(t, a)
	mustPass(t, b)
	commit(t, l, orbit.Release{Capsule: "load0", Final: true})
	mustPass(t, b) // holds r-0 for second
	third := gangSpec(4)
	third.Priority = 1
	commit(t, l, orbit.Submit{Owner: "b", Gang: &orbit.Gang{ID: "third", Roles: []orbit.Role{{Name: "w", Spec: third, Members: []orbit.CapsuleID{"t"}}}}})
	mustPass(t, b)
	commit(t, l, orbit.Release{Capsule: "load1", Final: true})
	mustPass(t, a) // holds r-1 for first
	require.Equal(t, 2, countHolds(t, l))
	mustPass(t, b)
	require.Equal(t, 1, countHolds(t, l))
	require.Zero(t, placedOf(t, l, "third"))
	mustPass(t, b)
	require.Equal(t, 1, placedOf(t, l, "third"))
}

// Members of two shapes come to fit together by room that is not enough for one more of either.
func TestGangSeesRoomForShapesTogether(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 1, 5)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(1, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{
		{Name: "two", Spec: gangSpec(2), Members: []orbit.CapsuleID{"a"}}, {Name: "three", Spec: gangSpec(3), Members: []orbit.CapsuleID{"b"}}}}})
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	mustPass(t, e)
	require.Zero(t, placedOf(t, l, "g"))
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	require.Equal(t, 2, placedOf(t, l, "g"))
}

// No room is held in a domain whose nodes would not take the whole gang even if nothing ran.
func TestGangHoldsNothingBesideDrainedNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	rackOf(t, l, "s", 1, 1)
	drained := *snapshot(t, l).Node("r-1").Node
	drained.State = orbit.Cordoned
	commit(t, l, orbit.PutNode{Node: drained})
	gangOf(t, l, "g", "", 2, 4)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	for i := range 4 {
		stir(t, l, "s-0", i)
		mustPass(t, e)
		require.Zero(t, countHolds(t, l))
	}
}

// A node whose capacity has shrunk below what is used has no room for what asks for nothing of that, by the ledger's
// rule or not; either way the navigator does not propose what the ledger refuses for ever.
func TestGangOnShrunkNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	shape := func(cpu, memory int64) orbit.PutNode {
		return orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: cpu, orbit.Memory: memory}, Labels: map[string]string{"rack": "r"}}}
	}
	commit(t, l, shape(10, 10))
	s := spec(1, 0)
	s.Envelope.Reservation[orbit.Memory] = 8
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: s}, orbit.Place{Capsule: "load", Node: "n"})
	commit(t, l, shape(10, 4))
	gangOf(t, l, "g", "", 2, 1)
	gangOf(t, l, "none", "", 2, 0)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	for i := range 5 {
		mustPass(t, e)
		_ = i
	}
	assert.Equal(t, 2, placedOf(t, l, "g"))
	assert.Equal(t, 2, placedOf(t, l, "none"))
}

// Ids of gangs, labels and groups as long as they may be, and ledgers that take short ones only.
func TestGangWithLongNames(t *testing.T) {
	long := strings.Repeat("x", 253)
	l := &orbit.MemoryLedger{}
	for i := range 2 {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(long[:250] + fmt.Sprint(i)), Capacity: orbit.Resources{orbit.CPU: 4}, Labels: map[string]string{long: strings.Repeat("y", 5000)}}})
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: orbit.NodeID(long[:250] + "0")})
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(long), Levels: []string{long}, Roles: []orbit.Role{{Name: "w", Spec: gangSpec(4), Members: []orbit.CapsuleID{"a", "b"}}}}})
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	for i := range 4 {
		mustPass(t, e)
		stirs := orbit.CapsuleID(fmt.Sprint("t", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{stirs}, Spec: spec(0, 0)}, orbit.Place{Capsule: stirs, Node: orbit.NodeID(long[:250] + "0")})
	}
	assert.Equal(t, 1, countHolds(t, l))
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	assert.Equal(t, 2, placedOf(t, l, long))
	assert.Zero(t, countHolds(t, l))
}

// A ledger that takes short ids only takes no holds for gangs: none are asked for.
func TestGangHoldsWithinShortIDs(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{IDBytes: 8}}
	rackOf(t, l, "r", 2, 4)
	rackOf(t, l, "s", 1, 1)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	gangOf(t, l, "g", "", 2, 4)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	for i := range 5 {
		stir(t, l, "s-0", i)
		mustPass(t, e)
	}
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	assert.Equal(t, 2, placedOf(t, l, "g"))
}

// A gang that wants to be near a group in a domain whose name is too long to be bet on is told so, and others are
// not kept from it.
func TestGangNearLongDomains(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i, rack := range []string{strings.Repeat("y", 300), "short"} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 4}, Labels: map[string]string{"rack": rack}}})
		s := spec(1, 0)
		s.Group = "db"
		id := orbit.CapsuleID(fmt.Sprint("db", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("n", i))})
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(1, 0)}, orbit.Place{Capsule: "load", Node: "n0"})
	s := gangSpec(1)
	s.Near = orbit.Near{Group: "db", Level: "rack"}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{"a", "b"}}}}})
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	mustPass(t, e)
	assert.Equal(t, 2, placedOf(t, l, "g"))
}

// A gang that loses a member it cannot do without gives up what is held for it.
func TestGangThatCannotBeWholeGivesUpItsHolds(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	rackOf(t, l, "s", 1, 1)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	gangOf(t, l, "g", "", 2, 4)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	for i := 0; countHolds(t, l) == 0; i++ {
		require.Less(t, i, 10)
		stir(t, l, "s-0", i)
		mustPass(t, e)
	}
	commit(t, l, orbit.Release{Capsule: "g-0", Final: true})
	mustPass(t, e)
	assert.Zero(t, countHolds(t, l))
}
