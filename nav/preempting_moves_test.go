package nav_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// fullOfWeb returns a ledger of two nodes that are full of four movable capsules each, and one that is empty.
func fullOfWeb(t require.TestingT, change func(*orbit.Spec)) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n0", 4), node("n1", 4), node("n2", 4))
	web := spec(1, 0)
	web.Groups = []string{"web"}
	change(web)
	for i := range 8 {
		id := orbit.CapsuleID(fmt.Sprint("w", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: web}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("n", i/4))})
	}
	return l
}

func movable(s *orbit.Spec) { s.Movable = true }

// daemonOn returns a spec of a priority that fits on one node only.
func daemonOn(id string, priority int32) *orbit.Spec {
	s := spec(1, 0)
	s.Priority, s.Require = priority, []orbit.Predicate{{Key: orbit.NodeKey, Op: "In", Values: []string{id}}}
	return s
}

// movesIn counts the moves since a revision, and the evictions for others.
func movesIn(t require.TestingT, l orbit.Ledger, after orbit.Revision) (moved, evicted int) {
	changes, err := l.Changes(t.(*testing.T).Context(), after)
	require.NoError(t, err)
	for _, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok {
			if e.For == "" && e.ForGang == "" {
				moved++
			} else {
				evicted++
			}
		}
	}
	return moved, evicted
}

// A daemon whose node is full of movable work is placed at any priority: one capsule of each full node moves to the
// empty one, and none is evicted.
func TestPreemptingMovesForADaemon(t *testing.T) {
	for _, priority := range []int32{0, 10} {
		l := fullOfWeb(t, movable)
		for i := range 3 {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("d", i))}, Spec: daemonOn(fmt.Sprint("n", i), priority)})
		}
		before := snapshot(t, l).Revision()
		runOut(t, 4, &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}})
		s := snapshot(t, l)
		for i := range 3 {
			require.Equal(t, orbit.NodeID(fmt.Sprint("n", i)), s.Capsule(orbit.CapsuleID(fmt.Sprint("d", i))).Node)
		}
		for i := range 8 {
			require.True(t, s.Capsule(orbit.CapsuleID(fmt.Sprint("w", i))).Placed())
		}
		moved, evicted := movesIn(t, l, before)
		require.Equal(t, []int{2, 0}, []int{moved, evicted})
	}
}

// Nothing moves without consent, nor beyond Moves, nor from where a budget keeps it; then work of lower priority is evicted
// as ever, unless Victims forbids that too.
func TestPreemptingMovesOnlyWhatMayMove(t *testing.T) {
	for _, c := range []struct {
		name           string
		spec           func(*orbit.Spec)
		budget         *orbit.Budget
		by             nav.Preempting
		moved, evicted int
	}{
		{"consents", movable, nil, nav.Preempting{}, 1, 0},
		{"does not consent", func(*orbit.Spec) {}, nil, nav.Preempting{}, 0, 1},
		{"a budget covers it", func(*orbit.Spec) {}, &orbit.Budget{ID: "b", Group: "web", Expected: 8, Missing: 1}, nav.Preempting{}, 1, 0},
		{"a budget keeps it", movable, &orbit.Budget{ID: "b", Group: "web", Expected: 8}, nav.Preempting{}, 0, 0},
		{"no moves", movable, nil, nav.Preempting{Moves: -1}, 0, 1},
		{"no moves, no victims", movable, nil, nav.Preempting{Moves: -1, Victims: -1}, 0, 0},
		{"moves, no victims", movable, nil, nav.Preempting{Victims: -1}, 1, 0},
		{"never", movable, nil, nav.Preempting{Never: func(*orbit.Capsule) bool { return true }}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := fullOfWeb(t, c.spec)
			if c.budget != nil {
				commit(t, l, orbit.PutBudget{Budget: *c.budget})
			}
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"d"}, Spec: daemonOn("n0", 10)})
			before := snapshot(t, l).Revision()
			c.by.Navigator = &nav.Services{}
			e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &c.by}
			require.Empty(t, e.Pass(t.Context()).Errors)
			moved, evicted := movesIn(t, l, before)
			require.Equal(t, []int{c.moved, c.evicted}, []int{moved, evicted})
			require.Equal(t, moved+evicted > 0, snapshot(t, l).Capsule("d").Placed())
		})
	}
}

// A plan moves no more than Moves says; the next one goes on.
func TestPreemptingMovesSoManyAPlan(t *testing.T) {
	l := fullOfWeb(t, movable)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"d0"}, Spec: daemonOn("n0", 0)}, orbit.Submit{IDs: []orbit.CapsuleID{"d1"}, Spec: daemonOn("n1", 0)})
	before := snapshot(t, l).Revision()
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}, Moves: 1}}
	for want := range 2 {
		e.Pass(t.Context())
		moved, _ := movesIn(t, l, before)
		require.Equal(t, want+1, moved)
	}
}

// A gang that fits in no rack, because movable work lies in crumbs over all racks, is placed whole in one of them.
func TestPreemptingMovesForAGang(t *testing.T) {
	l := &orbit.MemoryLedger{}
	crumb := spec(3, 0)
	crumb.Movable = true
	for rack := range 3 {
		for i := range 4 {
			id := fmt.Sprint("r", rack, "n", i)
			n := node(id, 8)
			n.Node.Labels = map[string]string{"rack": fmt.Sprint("r", rack)}
			c := orbit.CapsuleID("c" + id)
			commit(t, l, n, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: crumb}, orbit.Place{Capsule: c, Node: orbit.NodeID(id)})
		}
	}
	g := &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "r", Min: 4, Spec: spec(6, 0)}}}
	g.Roles[0].Spec.Class = orbit.GangClass
	for i := range 4 {
		g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprint("g", i)))
	}
	commit(t, l, orbit.Submit{Gang: g})
	before := snapshot(t, l).Revision()
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}
	runOut(t, 3, e)
	s, racks := snapshot(t, l), map[string]bool{}
	for m := range s.Members("g") {
		require.True(t, m.Placed(), m.ID)
		racks[s.Node(m.Node).Node.Labels["rack"]] = true
	}
	require.Len(t, racks, 1)
	moved, evicted := movesIn(t, l, before)
	require.Equal(t, []int{4, 0}, []int{moved, evicted})
}

// Two engines that make room on the same nodes at once place everything, move nothing twice, and stop.
func TestPreemptingMovesRaceAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fullOfWeb(t, movable)
		for i := range 4 {
			s := daemonOn(fmt.Sprint("n", i%2), 0)
			s.Module = fmt.Sprint("e", i/2)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("d", i))}, Spec: s, Owner: s.Module})
		}
		before := snapshot(t, l).Revision()
		for i := range 2 {
			go func() {
				e := &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: slow{l, 20 * time.Millisecond}, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
				_ = e.Run(t.Context())
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s := snapshot(t, l)
		for c := range s.Capsules() {
			require.True(t, c.Placed(), c.ID)
		}
		moved, evicted := movesIn(t, l, before)
		require.Equal(t, []int{4, 0}, []int{moved, evicted})
	})
}
