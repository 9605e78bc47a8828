package nav_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// puzzle submits a gang that fills two nodes of 10, as 5+3+2 and 4+3+3. Seating shape after shape, in any of the orders
// that are tried, does not find it: it takes a search.
func puzzle(t require.TestingT, l orbit.Ledger, id string) {
	g := &orbit.Gang{ID: orbit.GangID(id), Levels: []string{"rack"}}
	for _, role := range []struct {
		cpu int64
		n   int
	}{{3, 3}, {5, 1}, {2, 1}, {4, 1}} {
		r := orbit.Role{Name: fmt.Sprint("takes", role.cpu), Spec: gangSpec(role.cpu)}
		for i := range role.n {
			r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprintf("%s-%d-%d", id, role.cpu, i)))
		}
		g.Roles = append(g.Roles, r)
	}
	commit(t, l, orbit.Submit{Gang: g})
}

// Steps of search are counted, however many there may be.
func TestGangSearchesAsLongAsItMay(t *testing.T) {
	for search, placed := range map[int]int{-1: 0, 1: 0, 0: 6, math.MaxInt / 50: 6, math.MaxInt/50 + 1: 6, math.MaxInt: 6} {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 10)
		puzzle(t, l, "g")
		mustPass(t, &orbit.Engine{Ledger: l, Navigator: &nav.Gang{Search: search}})
		assert.Equal(t, placed, placedOf(t, l, "g"), "%d steps", search)
	}
}

// holdsHalf is a world in which a gang waits for one of two nodes of a rack and has room held on the other one.
func holdsHalf(t require.TestingT, submit func(*orbit.MemoryLedger)) (*orbit.MemoryLedger, *orbit.Engine) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 10)
	rackOf(t, l, "s", 1, 1)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(9, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	submit(l)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	for i := range 3 {
		stir(t, l, "s-0", i)
		mustPass(t, e)
	}
	require.Equal(t, 1, countHolds(t, l))
	return l, e
}

// A search that was cut short has not found out that a gang can never fit: what is held for it stays.
func TestGangKeepsHoldsWhereItDoesNotKnow(t *testing.T) {
	l, _ := holdsHalf(t, func(l *orbit.MemoryLedger) { puzzle(t, l, "g") })
	hasty := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1, Search: 1}}
	for i := range 3 {
		stir(t, l, "s-0", 10+i)
		mustPass(t, hasty)
		require.Equal(t, 1, countHolds(t, l))
	}
}

// Gangs that could never fit anywhere, though there is room for some of them everywhere, as many as a plan looks at and
// more, do not cost the gang behind them what is
// held for it.
func TestGangKeepsHoldsBehindHopelessOnes(t *testing.T) {
	l, e := holdsHalf(t, func(l *orbit.MemoryLedger) { gangOf(t, l, "holder", "", 2, 10) })
	for g := range 9 {
		s := gangSpec(1)
		s.Priority = 1
		r := orbit.Role{Name: "worker", Spec: s}
		for i := range 30 {
			r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint("never", g, "-", i)))
		}
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(fmt.Sprint("never", g)), Levels: []string{"rack"}, Roles: []orbit.Role{r}}})
	}
	for i := range 12 {
		stir(t, l, "s-0", 10+i)
		mustPass(t, e)
		require.Equal(t, 1, countHolds(t, l), "plan %d", i)
	}
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	assert.Equal(t, 2, placedOf(t, l, "holder"))
}

// A gang is placed in one proposal, which also releases what is held for it: no more is held than leaves room for the
// places, whatever a ledger takes at once.
func TestGangHoldsLeaveRoomForItsPlaces(t *testing.T) {
	for commitments := 6; commitments <= 13; commitments++ {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: commitments}}
		rackOf(t, l, "r", 6, 4)
		rackOf(t, l, "s", 1, 1)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
		gangOf(t, l, "g", "", 6, 4)
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
		for i := range 5 {
			stir(t, l, "s-0", i)
			mustPass(t, e)
			require.LessOrEqual(t, countHolds(t, l)+6, max(6, commitments))
		}
		require.Equal(t, min(5, commitments-6), countHolds(t, l), "%d commitments", commitments)
		commit(t, l, orbit.Release{Capsule: "load", Final: true})
		mustPass(t, e)
		require.Equal(t, 6, placedOf(t, l, "g"), "%d commitments", commitments)
		require.Zero(t, countHolds(t, l))
	}
}

// What is held grows in one proposal too, which releases what was held before.
func TestGangHoldsGrowWithinTheLimits(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: 8}}
	rackOf(t, l, "s", 1, 1)
	commit(t, l, rackNode("large", "r", 10))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(10, 0)}, orbit.Place{Capsule: "load", Node: "large"})
	small := orbit.Role{Name: "small", Spec: gangSpec(1), Min: 1}
	for i := range 7 {
		id := orbit.CapsuleID(fmt.Sprint("load", i))
		commit(t, l, rackNode(fmt.Sprint("n", i), "r", 1))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(1, 0)}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("n", i))})
		small.Members = append(small.Members, orbit.CapsuleID(fmt.Sprint("small-", i)))
	}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "large", Spec: gangSpec(10), Members: []orbit.CapsuleID{"large-0"}}, small}}})
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	stir(t, l, "s-0", 0)
	mustPass(t, e)
	for i := range 7 {
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("load", i)), Final: true})
		stir(t, l, "s-0", 1+i)
		mustPass(t, e)
	}
	assert.Equal(t, 4, countHolds(t, l))
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	assert.Equal(t, 4, placedOf(t, l, "g"), "as many as a proposal takes beside the releases")
}
