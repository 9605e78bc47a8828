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

// nominatesHalf is a world in which a gang waits for one of two nodes of a rack, and is nominated on both.
func nominatesHalf(t require.TestingT, submit func(*orbit.MemoryLedger)) (*orbit.MemoryLedger, *orbit.Engine) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 10)
	rackOf(t, l, "s", 1, 1)
	put(t, l, "load", "r-0", batchSpec(9))
	submit(l)
	e := gangEngine(l, "")
	for range 3 {
		mustPass(t, e)
	}
	require.Len(t, nominees(t, l), 2)
	return l, e
}

// A gang of several shapes is nominated wherever a search finds that it could go, though seating member after member finds
// no way; and placed there.
func TestGangIsNominatedWhereItTakesASearch(t *testing.T) {
	l, e := nominatesHalf(t, func(l *orbit.MemoryLedger) { puzzle(t, l, "g") })
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"thief"}, Spec: batchSpec(4)})
	mustPass(t, &orbit.Engine{Ledger: l, Navigator: &nav.Batch{}})
	require.True(t, snapshot(t, l).Capsule("thief").Pending())
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	assert.Equal(t, 6, placedOf(t, l, "g"))
}

// Gangs that could never fit anywhere, though there is room for some of them everywhere, as many as a plan looks at and
// more, do not cost the gang behind them its nomination.
func TestGangIsNominatedBehindHopelessOnes(t *testing.T) {
	l, e := nominatesHalf(t, func(l *orbit.MemoryLedger) { gangOf(t, l, "waits", "", 2, 10) })
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
		require.Len(t, nominees(t, l), 2, "plan %d", i)
	}
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	mustPass(t, e)
	assert.Equal(t, 2, placedOf(t, l, "waits"))
}

// A gang is nominated for its minimum and placed whole, in one proposal each, also on a ledger that takes no more at once.
func TestNominatedGangsWithinTheLimits(t *testing.T) {
	for commitments := 7; commitments <= 9; commitments++ {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: commitments}}
		rackOf(t, l, "r", 7, 4)
		put(t, l, "load", "r-0", batchSpec(4))
		put(t, l, "more", "r-1", batchSpec(4))
		r := orbit.Role{Name: "worker", Spec: gangSpec(4), Min: 6}
		for i := range 7 {
			r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint("g-", i)))
		}
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{r}}})
		e := gangEngine(l, "")
		for range 3 {
			mustPass(t, e)
		}
		require.Len(t, nominees(t, l), 6, "its minimum")
		commit(t, l, orbit.Release{Capsule: "load", Final: true}, orbit.Release{Capsule: "more", Final: true})
		mustPass(t, e)
		require.Equal(t, 7, placedOf(t, l, "g"), "%d commitments", commitments)
		require.Empty(t, nominees(t, l))
	}
}
