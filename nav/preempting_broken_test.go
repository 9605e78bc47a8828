package nav_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// crewOf submits a gang that wants a rack, and places its members on nodes.
func crewOf(t *testing.T, l orbit.Ledger, id string, priority int32, least int, on ...orbit.NodeID) {
	s := gangSpec(4)
	s.Priority = priority
	r, do := orbit.Role{Name: "w", Spec: s, Min: least}, []orbit.Commitment{}
	for i, n := range on {
		r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint(id, i)))
		do = append(do, orbit.Place{Capsule: r.Members[i], Node: n})
	}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Levels: []string{"rack"}, Roles: []orbit.Role{r}}})
	commit(t, l, do...)
}

// fillOn places a capsule of this priority that takes all of a node.
func fillOn(t *testing.T, l orbit.Ledger, n string, priority int32) {
	put(t, l, "fill-"+n, n, spec(4, priority))
}

// For what a broken gang lacks, others are evicted in the domain where it runs, by the rules of priority; for members
// beyond its minimums nobody is.
func TestPreemptingForABrokenGang(t *testing.T) {
	for name, c := range map[string]struct {
		priority, fill int32
		least          int
		evicted        string
	}{
		"of higher priority":    {priority: 9, fill: 1, evicted: "r-1"},
		"of equal priority":     {priority: 1, fill: 1},
		"at its minimum anyway": {priority: 9, fill: 1, least: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			rackOf(t, l, "r", 2, 4)
			rackOf(t, l, "s", 1, 4)
			crewOf(t, l, "g", c.priority, c.least, "r-0", "r-1")
			commit(t, l, orbit.Release{Capsule: "g1", Stopped: true})
			fillOn(t, l, "r-1", c.fill)
			fillOn(t, l, "s-0", 0) // a better victim, but the gang does not run there
			round := mustPass(t, &orbit.Engine{Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}})
			s := snapshot(t, l)
			require.True(t, s.Capsule("fill-s-0").Placed())
			require.Equal(t, c.evicted == "", s.Capsule("fill-r-1").Placed())
			require.Equal(t, orbit.NodeID(c.evicted), s.Capsule("g1").Node)
			if c.evicted == "" {
				require.Len(t, round.Unplaced, 1)
			}
		})
	}
}

// Of two broken gangs that hold what the other lacks, the one that was submitted first evicts the other whole, at once.
func TestPreemptingReplacesABrokenGang(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 4)
	crewOf(t, l, "z", 1, 0, "r-0", "r-1")
	crewOf(t, l, "a", 1, 0, "r-2", "r-3")
	loseNode(t, l, "r-1")
	loseNode(t, l, "r-3")
	mustPass(t, &orbit.Engine{Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}})
	require.Equal(t, 2, placedOf(t, l, "z"))
	require.Zero(t, placedOf(t, l, "a"))
}

// A broken gang gets the victims that a plan may have, before a capsule of its priority that has waited longer.
func TestPreemptingServesBrokenGangsFirst(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	s := spec(4, 9)
	s.Class = orbit.GangClass
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "older", Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{"older"}}}}})
	crewOf(t, l, "g", 9, 0, "r-0", "r-1")
	commit(t, l, orbit.Release{Capsule: "g1", Stopped: true})
	fillOn(t, l, "r-1", 0)
	mustPass(t, &orbit.Engine{Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}, Victims: 1}})
	require.Equal(t, 2, placedOf(t, l, "g"))
	require.Zero(t, placedOf(t, l, "older"))
}

// Beside short-lived small work the eviction for a broken gang is lost once. Then room is nominated for one
// member after the other, and their evictions are not lost.
func TestPreemptingNominatesForABrokenGang(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 3, 4)
	crewOf(t, l, "g", 9, 0, "r-0", "r-1", "r-2")
	commit(t, l, orbit.Release{Capsule: "g1", Stopped: true})
	commit(t, l, orbit.Release{Capsule: "g2", Stopped: true})
	small := 0
	churn := func() { // what ran on two nodes has ended, and others run there
		for _, n := range []orbit.NodeID{"r-1", "r-2"} {
			for c := range snapshot(t, l).On(n) {
				if c.Gang() == "" {
					commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
				}
			}
			id := orbit.CapsuleID(fmt.Sprint("small-", small))
			small++
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(4, 0), Owner: "others"})
			_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: n}}}) // unless it is nominated
		}
	}
	churn()
	p := &nav.Preempting{Navigator: &nav.Gang{}}
	e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		plan, err := p.Plan(ctx, view, pending)
		churn()
		return plan, err
	})}
	for range 6 {
		require.Empty(t, e.Pass(t.Context()).Errors)
	}
	require.Equal(t, 3, placedOf(t, l, "g"))
}

// A Patient nominates room for what a broken gang lacks, before it does so for work of equal priority that has waited
// longer.
func TestPatientNominatesForBrokenGangsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		s := gangSpec(4)
		s.Priority = 1
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "older", Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{"older"}}}}})
		crewOf(t, l, "g", 1, 0, "r-0", "r-1")
		e := orbit.Engine{Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: time.Second}}
		mustPass(t, &e)
		time.Sleep(time.Second / 2)
		commit(t, l, orbit.Release{Capsule: "g1", Stopped: true})
		fillOn(t, l, "r-1", 1)
		mustPass(t, &e)
		time.Sleep(time.Second)
		mustPass(t, &e)
		require.True(t, snapshot(t, l).Capsule("g1").Nomination().Lives())
		require.False(t, snapshot(t, l).Gang("older").Nomination.Lives())
	})
}
