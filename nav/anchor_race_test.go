package nav_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// run lets engines pass, each in a goroutine of its own, until nothing is pending or all have passed often enough.
func run(t *testing.T, l *orbit.MemoryLedger, passes int, engines ...*orbit.Engine) {
	var all sync.WaitGroup
	for _, e := range engines {
		all.Go(func() {
			for range passes {
				if r := e.Pass(context.Background()); len(r.Errors) > 0 || r.Infeasible > 0 {
					t.Error(r, r.Errors)
				}
				if s, _ := l.Snapshot(context.Background()); s.PendingCount() == 0 {
					return
				}
			}
		})
	}
	all.Wait()
}

// Two Anchors, each with half of every group, race for one ledger, and Services race with both for the same racks:
// every group is complete in one rack, with one anchor.
func TestAnchorsRace(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 12, 5, 20)
	const groups, size = 10, 14
	for g := range groups {
		s := near(fmt.Sprint("g", g), 4)
		for half, owner := range []string{"one", "two"} {
			var ids []orbit.CapsuleID
			for i := range size / 2 {
				ids = append(ids, orbit.CapsuleID(fmt.Sprintf("g%d-%d-%d", g, half, i)))
			}
			commit(t, l, orbit.Submit{IDs: ids, Spec: s, Owner: owner})
		}
	}
	for i := range 20 {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("s", i))}, Spec: spec(int64(1+i%7), 0), Owner: "three"})
	}
	engine := func(name string, n orbit.Navigator) *orbit.Engine {
		return &orbit.Engine{Name: name, Ledger: l, Navigator: n, MaxPlan: 30}
	}
	run(t, l, 300, engine("one", &nav.Anchor{Navigator: &nav.Services{}}), engine("two", &nav.Anchor{Navigator: &nav.Services{}}),
		engine("three", &nav.Services{}))
	s := snapshot(t, l)
	for g := range groups {
		racks, placed, anchors := racksOf(s, fmt.Sprint("g", g))
		assert.Len(t, racks, 1)
		assert.Equal(t, size, placed)
		assert.Equal(t, 1, anchors)
	}
	assert.Equal(t, groups, audit(t, l))
}

// Services fill racks while groups start in them: nothing is oversubscribed, and what is held for a group cannot be
// taken from it.
func TestAnchorsAmongServicesThatFillTheRacks(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 6, 4, 10)
	for g := range 3 {
		submit(t, l, fmt.Sprint("g", g), 8, near(fmt.Sprint("g", g), 4))
	}
	for i := range 300 {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("s", i))}, Spec: spec(int64(1+i%3), 0), Owner: "fill"})
	}
	run(t, l, 60, anchored(l), &orbit.Engine{Name: "fill", Ledger: l, Navigator: &nav.Services{}, MaxPlan: 10})
	audit(t, l)
}

// elsewhere returns an Anchor that places nothing in rack r0, where others would.
func elsewhere() *nav.Anchor {
	return &nav.Anchor{Navigator: &nav.Services{}, Filter: func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
		if n.Node.Labels["rack"] == "r0" {
			return "are not liked"
		}
		return ""
	}}
}

// Stale by exactly one other Anchor: both plan the same group on the same view, in different racks, one wins, the
// other sees a conflict and nothing else.
func TestAnchorsOnOneView(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 10)
	for i, owner := range []string{"one", "two"} {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint(i, "a")), orbit.CapsuleID(fmt.Sprint(i, "b"))}, Spec: near("g", 2), Owner: owner})
	}
	one := &orbit.Engine{Name: "one", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
	two := &orbit.Engine{Name: "two", Ledger: l, Navigator: between{elsewhere(), func() {
		assert.Equal(t, 1, one.Pass(t.Context()).Committed)
	}}}
	r := two.Pass(t.Context())
	assert.Equal(t, 1, r.Conflicts)
	assert.Zero(t, r.Infeasible+r.Committed)
	assert.Empty(t, r.Errors)
	assert.Equal(t, 1, audit(t, l))
}

// Another group comes to the anchor's node between plan and commit: the bet on the node is lost, though there would be
// room for both.
func TestAnchorsNodeIsStillFreshWhenItCommits(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 100))
	submit(t, l, "g", 3, near("g", 2))
	other := spec(1, 0)
	other.Group = "other"
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"o"}, Spec: other, Owner: "absent"})
	a := &nav.Anchor{Navigator: &nav.Services{}}
	once := sync.OnceFunc(func() { commit(t, l, orbit.Place{Capsule: "o", Node: "n"}) })
	e := &orbit.Engine{Ledger: l, Navigator: between{a, once}}
	r := e.Pass(t.Context())
	assert.Equal(t, 1, r.Conflicts)
	assert.Zero(t, r.Committed)
	settle(t, e)
	_, placed, _ := racksOf(snapshot(t, l), "g")
	assert.Zero(t, placed)
	assert.Zero(t, audit(t, l))
}

// The node moves to another rack between plan and commit: members would have followed its label, away from the room
// that is held. The bet is lost, for the anchor's node and for the others.
func TestAnchorsRackIsStillTheSameWhenItCommits(t *testing.T) {
	for _, moves := range []string{"a", "b"} {
		l := &orbit.MemoryLedger{}
		commit(t, l, rackNode("a", "r", 3), rackNode("b", "r", 4))
		submit(t, l, "g", 3, near("g", 2))
		once := sync.OnceFunc(func() { commit(t, l, rackNode(moves, "elsewhere", 4)) })
		e := &orbit.Engine{Ledger: l, Navigator: between{&nav.Anchor{Navigator: &nav.Services{}}, once}}
		r := e.Pass(t.Context())
		assert.Equal(t, 1, r.Conflicts, "%s moves", moves)
		settle(t, e)
		audit(t, l)
	}
}

// The group stops between plan and commit: a member with room held for it is not placed there alone.
func TestMembersFollowOnlyAGroupThatRuns(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 2, 10)
	submit(t, l, "g", 3, near("g", 2))
	anchored(l).Pass(t.Context())
	once := sync.OnceFunc(func() { commit(t, l, orbit.Release{Capsule: "g-0", Final: true}) })
	e := &orbit.Engine{Ledger: l, Navigator: between{&nav.Anchor{Navigator: &nav.Services{}}, once}}
	r := e.Pass(t.Context())
	assert.Equal(t, 2, r.Conflicts)
	settle(t, e)
	assert.Equal(t, 2, audit(t, l))
	assert.Zero(t, snapshot(t, l).PendingCount())
}

// A node on which room is held moves to another rack: no member is placed on it there.
func TestHeldRoomThatMovesAway(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 3, 4)
	submit(t, l, "g", 4, near("g", 2))
	e := anchored(l)
	e.Pass(t.Context())
	for h := range snapshot(t, l).Holds() {
		if h.Node != snapshot(t, l).Capsule("g-0").Node {
			commit(t, l, rackNode(string(h.Node), "elsewhere", 4))
			break
		}
	}
	for _, r := range settle(t, e) {
		assert.Zero(t, r.Conflicts+r.Infeasible)
	}
	racks, placed, _ := racksOf(snapshot(t, l), "g")
	assert.Equal(t, map[string]int{"r0": 4}, racks)
	assert.Equal(t, 4, placed)
}

// ABA: the group is placed, released for good, and submitted again under its names. A plan from before is lost; one
// from after starts the group again.
func TestAnchorOfAGroupThatIsSubmittedAgain(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{Terminal: 1}}
	racked(t, l, 2, 2, 10)
	again := func() { submit(t, l, "g", 3, near("g", 2)) }
	again()
	first := anchored(l)
	stale := &orbit.Engine{Name: "stale", Ledger: l, Navigator: between{elsewhere(), sync.OnceFunc(func() {
		settle(t, first)
		for _, id := range []orbit.CapsuleID{"g-0", "g-1", "g-2"} {
			commit(t, l, orbit.Release{Capsule: id, Final: true})
		}
		dummy := spec(0, 0)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"dummy"}, Spec: dummy})
		commit(t, l, orbit.Release{Capsule: "dummy", Final: true}) // so that the records of the others are dropped
		again()
		s := snapshot(t, l)
		require.Equal(t, 3, s.PendingCount())
		for n := range s.Nodes() { // the world looks as it did
			require.Zero(t, n.Used())
		}
	})}}
	r := stale.Pass(t.Context())
	assert.Equal(t, 1, r.Conflicts)
	assert.Zero(t, r.Committed+r.Infeasible)
	settle(t, stale)
	racks, placed, anchors := racksOf(snapshot(t, l), "g")
	assert.Len(t, racks, 1)
	assert.Equal(t, 3, placed)
	assert.Equal(t, 1, anchors)
	assert.Equal(t, 2, audit(t, l), "one for each life of the group")
}

// Two groups whose fences are one mark start one after the other.
func TestAnchorsOfGroupsThatShareAMark(t *testing.T) {
	scale.Long(t)
	l := &orbit.MemoryLedger{}
	racked(t, l, 3, 2, 10)
	a, b := sameMark(t)
	submit(t, l, "a", 3, near(a, 2))
	submit(t, l, "b", 3, near(b, 2))
	e := anchored(l)
	r := e.Pass(t.Context())
	assert.Equal(t, 1, r.Committed)
	assert.Zero(t, r.Conflicts)
	assert.ErrorContains(t, r.Unplaced[len(r.Unplaced)-1].Why, "shares mark")
	settle(t, e)
	assert.Zero(t, snapshot(t, l).PendingCount())
	assert.Equal(t, 2, audit(t, l))
}

// sameMark finds two groups with one fence, by anchoring until a mark has risen twice.
func sameMark(t *testing.T) (a, b string) {
	l := &orbit.MemoryLedger{}
	by := map[string]string{}
	for i := range 4000 {
		id, group := fmt.Sprint("n", i), fmt.Sprint("group-", i)
		commit(t, l, rackNode(id, id, 1))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: near(group, 1)})
	}
	e := anchored(l)
	e.MaxPlan = 1
	seen := 0
	for range 4000 {
		e.Pass(t.Context())
		count := 0
		for key, value := range snapshot(t, l).Marks("plan/anchor/") {
			count++
			was := by[key]
			if by[key] = value; was != "" && was != value {
				var ca, cb string
				_, err := fmt.Sscan(was, &a, &ca)
				require.NoError(t, err)
				_, err = fmt.Sscan(value, &b, &cb)
				require.NoError(t, err)
				return a, b
			}
		}
		seen = max(seen, count)
	}
	require.Fail(t, "no two groups share a mark", "%d marks", seen)
	return "", ""
}
