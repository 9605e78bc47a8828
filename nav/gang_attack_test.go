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

// stir lets something come and go.
func stir(t require.TestingT, l orbit.Ledger, node orbit.NodeID, i int) {
	id := orbit.CapsuleID(fmt.Sprint("stir", i))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(1, 0)}, orbit.Place{Capsule: id, Node: node})
	commit(t, l, orbit.Release{Capsule: id, Final: true})
}

// A gang that fits no domain even when all are empty is first in order. It must not keep those that could come to fit from
// being nominated.
func TestGangThatNeverFitsLeavesRoomToOthers(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 4)
	rackOf(t, l, "s", 1, 1)
	for i := range 4 {
		put(t, l, fmt.Sprint("load", i), fmt.Sprint("r-", i), batchSpec(4))
	}
	gangOf(t, l, "never", "", 5, 4)
	gangOf(t, l, "could", "", 4, 4)
	e := gangEngine(l, "")
	for range 3 {
		mustPass(t, e)
	}
	require.Len(t, nominees(t, l), 4)
	for i := range 4 {
		require.Zero(t, placedOf(t, l, "could"))
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("load", i)), Final: true})
		mustPass(t, e)
	}
	require.Equal(t, 4, placedOf(t, l, "could"))
}

// A gang one of whose roles takes nothing waits for room that a service keeps: its nomination must still end.
func TestNominationsEndOfRolesThatTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		rackOf(t, l, "s", 1, 1)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{
			{Name: "w", Spec: gangSpec(4), Members: []orbit.CapsuleID{"a", "b"}},
			{Name: "x", Spec: gangSpec(0), Members: []orbit.CapsuleID{"c"}},
		}}})
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: 1, For: time.Second}}
		free, nominated := 0, false
		for i := range 40 {
			stir(t, l, "s-0", i)
			mustPass(t, e)
			if len(nominees(t, l)) == 0 {
				free++
			}
			nominated = nominated || len(nominees(t, l)) > 0
			time.Sleep(500 * time.Millisecond)
		}
		assert.True(t, nominated)
		assert.Greater(t, free, 10, "room that stays taken is nominated for a second, and then not for a while")
	})
}

// The same where a ledger takes only as many commitments at once as the gang has members.
func TestNominationsEndOnSmallLedgers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: 8}}
		rackOf(t, l, "r", 8, 4)
		rackOf(t, l, "s", 1, 1)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
		gangOf(t, l, "g", "", 8, 4)
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: 1, For: time.Second}}
		free, nominated := 0, false
		for i := range 40 {
			stir(t, l, "s-0", i)
			mustPass(t, e)
			if len(nominees(t, l)) == 0 {
				free++
			}
			nominated = nominated || len(nominees(t, l)) > 0
			time.Sleep(500 * time.Millisecond)
		}
		assert.True(t, nominated)
		assert.Greater(t, free, 10)
	})
}

// Room that was nominated for one gang is seen by another gang of its shape, which did not fit beside it, once the nomination
// has ended: by time, whichever engine ends it.
func TestGangSeesRoomThatWasNominated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		put(t, l, "load", "r-0", spec(4, 0))
		gangOf(t, l, "large", "", 4, 2)
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: 1, For: time.Second}}
		mustPass(t, e)
		time.Sleep(time.Millisecond)
		mustPass(t, e)
		require.Len(t, nominees(t, l), 2)
		gangOf(t, l, "small", "", 2, 2)
		mustPass(t, e)
		require.Zero(t, placedOf(t, l, "small"))
		time.Sleep(time.Second)
		other := &orbit.Engine{Name: "other", Ledger: l, Navigator: &nav.Services{}}
		mustPass(t, other) // any engine ends what is over
		require.Empty(t, nominees(t, l))
		for range 2 {
			mustPass(t, e)
		}
		require.Equal(t, 2, placedOf(t, l, "small"))
	})
}

// The same where it is ended early, for another navigator's gang.
func TestGangSeesRoomThatGaveWay(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	put(t, l, "load", "r-0", batchSpec(4))
	gangOf(t, l, "first", "a", 2, 4)
	a, b := gangEngine(l, "a"), &orbit.Engine{Name: "b", Ledger: l, Navigator: &nav.Gang{}}
	for range 2 {
		mustPass(t, a)
	}
	require.Len(t, nominees(t, l), 2)
	gangOf(t, l, "second", "b", 1, 4)
	mustPass(t, b)
	require.Zero(t, placedOf(t, l, "second"))
	commit(t, l, orbit.Nominate{Gang: "first"})
	mustPass(t, b)
	require.Equal(t, 1, placedOf(t, l, "second"))
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

// No room is nominated in a domain whose nodes would not take the whole gang even if nothing ran.
func TestGangIsNotNominatedBesideDrainedNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	rackOf(t, l, "s", 1, 1)
	drained := *snapshot(t, l).Node("r-1").Node
	drained.State = orbit.Cordoned
	commit(t, l, orbit.PutNode{Node: drained})
	gangOf(t, l, "g", "", 2, 4)
	e := gangEngine(l, "")
	for i := range 4 {
		stir(t, l, "s-0", i)
		mustPass(t, e)
		require.Empty(t, nominees(t, l))
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
	e := gangEngine(l, "")
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
	e := gangEngine(l, "")
	for i := range 4 {
		mustPass(t, e)
		stirs := orbit.CapsuleID(fmt.Sprint("t", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{stirs}, Spec: spec(0, 0)}, orbit.Place{Capsule: stirs, Node: orbit.NodeID(long[:250] + "0")})
	}
	assert.Len(t, nominees(t, l), 2)
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	assert.Equal(t, 2, placedOf(t, l, long))
	assert.Empty(t, nominees(t, l))
}

// A ledger that takes short ids only takes nominations all the same.
func TestGangNominatedWithinShortIDs(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{IDBytes: 8}}
	rackOf(t, l, "r", 2, 4)
	rackOf(t, l, "s", 1, 1)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	gangOf(t, l, "g", "", 2, 4)
	e := gangEngine(l, "")
	for i := range 5 {
		stir(t, l, "s-0", i)
		mustPass(t, e)
	}
	require.Len(t, nominees(t, l), 2)
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

// A gang that loses a member it cannot do without is not nominated any more.
func TestGangThatCannotBeWholeIsNotNominated(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	rackOf(t, l, "s", 1, 1)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	gangOf(t, l, "g", "", 2, 4)
	e := gangEngine(l, "")
	for i := 0; len(nominees(t, l)) == 0; i++ {
		require.Less(t, i, 10)
		stir(t, l, "s-0", i)
		mustPass(t, e)
	}
	commit(t, l, orbit.Release{Capsule: "g-0", Final: true})
	for range 3 {
		mustPass(t, e)
		assert.Empty(t, nominees(t, l))
	}
}
