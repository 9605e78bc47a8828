package nav_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// planned returns the first plan of a navigator on a ledger, without proposing it.
func planned(ctx context.Context, l orbit.Ledger, n orbit.Navigator) (plan orbit.Plan, err error) {
	e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		plan, err = n.Plan(ctx, view, pending)
		return orbit.Plan{}, nil
	})}
	e.Pass(context.Background())
	return plan, err
}

func TestAnchorClaimsWhatItsNavigatorClaims(t *testing.T) {
	a := &nav.Anchor{Navigator: &nav.Services{}}
	assert.True(t, a.Claims("m", orbit.BestEffort))
	assert.False(t, a.Claims("m", orbit.Batch))
	a = &nav.Anchor{}
	assert.True(t, a.Claims("m", orbit.BestEffort), "or nobody would hear of the error")
	_, err := a.Plan(t.Context(), nil, nil)
	require.ErrorContains(t, err, "Anchor.Navigator is nil")
}

// The same view gives the same plan, whatever the order of Go's maps: groups of several shapes, levels and racks that
// are all alike.
func TestAnchorPlansAreDeterministic(t *testing.T) { synctest.Test(t, deterministic) }

func deterministic(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for r := range 8 {
		for i := range 3 {
			n := rackNode(fmt.Sprintf("r%dn%d", r, i), fmt.Sprint("r", r), 20)
			n.Node.Labels["zone"] = fmt.Sprint("z", r/2)
			commit(t, l, n)
		}
	}
	for g := range 6 {
		for k := range 3 {
			s := near(fmt.Sprint("g", g), int64(1+k))
			s.Module = fmt.Sprint("m", k)
			if k == 2 {
				s.Near.Level = "zone"
			}
			submit(t, l, fmt.Sprintf("g%d-%d", g, k), 3, s)
		}
	}
	submit(t, l, "s", 20, spec(3, 0))
	text := func() string {
		plan, err := planned(t.Context(), l, &nav.Anchor{Navigator: &nav.Services{}})
		require.NoError(t, err)
		return fmt.Sprintf("%+v\n%+v", plan.Proposals, plan.Notes)
	}
	want := text()
	require.Contains(t, want, "anchors=6")
	for range 20 {
		require.Equal(t, want, text())
	}
	anchored(l).Pass(t.Context())
	a, first := &nav.Anchor{Navigator: &nav.Services{}}, ""
	for range 3 { // one that plans again, though nothing has changed
		plan, err := planned(t.Context(), l, a)
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(plan.Notes), "fromHolds=48")
		text := fmt.Sprintf("%+v", plan.Proposals)
		require.Equal(t, cmp.Or(first, text), text)
		first = text
	}
}

// It ends when its context does, with what it has.
func TestAnchorEndsWithItsContext(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 4, 2, 10)
	for g := range 4 {
		submit(t, l, fmt.Sprint("g", g), 3, near(fmt.Sprint("g", g), 2))
	}
	submit(t, l, "s", 1, spec(1, 0))
	ctx, cancel := context.WithCancel(t.Context())
	left := 2
	a := &nav.Anchor{Navigator: &nav.Services{}, Filter: func(n *orbit.NodeState, _ *orbit.Report, s *orbit.Spec) string {
		if s.Group == "g2" {
			cancel()
		}
		return ""
	}}
	plan, err := planned(ctx, l, a)
	require.ErrorIs(t, err, context.Canceled)
	anchors := 0
	for _, p := range plan.Proposals {
		for _, do := range p.Do {
			if place, ok := do.(orbit.Place); ok && place.Note == nav.AnchorNote {
				anchors++
			}
		}
	}
	assert.GreaterOrEqual(t, anchors, left)
	assert.Less(t, anchors, 4)
	assert.Len(t, plan.Proposals, anchors+1, "and the service")
	plan, err = planned(ctx, l, a)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, plan.Proposals)
}

// What the wrapped navigator says is handed on: its error, its notes, and proposals of any kind. Members of gangs go
// there, whatever they want to be near, and get no anchor.
func TestAnchorHandsOn(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 2, 10)
	role := near("g", 1)
	role.Module = "gang"
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "gang", Roles: []orbit.Role{{Name: "r", Spec: role, Members: []orbit.CapsuleID{"m"}}}}})
	class := near("g", 1)
	class.Class = orbit.GangClass
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "class", Roles: []orbit.Role{{Name: "r", Spec: class, Members: []orbit.CapsuleID{"n"}}}}, Owner: "them"})
	submit(t, l, "g", 2, near("g", 1))
	oops := errors.New("oops")
	var seen []orbit.CapsuleID
	plan, err := planned(t.Context(), l, &nav.Anchor{Navigator: nav.Func(func(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		for _, c := range pending {
			seen = append(seen, c.ID)
		}
		return orbit.Plan{Notes: []slog.Attr{slog.Int("inner", 7)}, Proposals: []orbit.Proposal{{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}}}}, oops
	})})
	require.ErrorIs(t, err, oops)
	assert.Equal(t, []orbit.CapsuleID{"m"}, seen)
	assert.Len(t, plan.Proposals, 2, "an anchor, and what is handed on")
	assert.Contains(t, fmt.Sprint(plan.Notes), "inner=7")
	assert.Len(t, plan.Proposals[0].Do, 2+1+1, "a mark, the anchor, and room for g-1 and for m, whose class does not say that it is a gang's")
	for _, do := range plan.Proposals[0].Do {
		if place, ok := do.(orbit.Place); ok {
			assert.Equal(t, orbit.CapsuleID("g-0"), place.Capsule)
		}
	}
}

// Among equals the anchor goes first, and what no longer fits beside it is left out and comes again; what is of
// higher priority goes before the anchor.
func TestAnchorAndWrappedPlanShareTheRoom(t *testing.T) {
	for priority, want := range map[int32]string{0: "g-0", 1: "s-0"} {
		l := &orbit.MemoryLedger{}
		commit(t, l, rackNode("n", "r", 10))
		submit(t, l, "s", 1, spec(6, priority))
		submit(t, l, "g", 1, near("g", 6))
		e := anchored(l)
		r := e.Pass(t.Context())
		assert.Zero(t, r.Conflicts+r.Infeasible)
		assert.True(t, snapshot(t, l).Capsule(orbit.CapsuleID(want)).Placed(), "priority %d", priority)
		require.Len(t, r.Unplaced, 1)
		if priority == 0 {
			require.ErrorContains(t, r.Unplaced[0].Why, `its place on node "n" does not fit beside groups that start in this plan`)
			commit(t, l, rackNode("more", "", 10))
			settle(t, e)
			assert.True(t, snapshot(t, l).Capsule("s-0").Placed())
		}
	}
}

// A proposal that is left out takes nothing from those that come after it.
func TestWhatIsLeftOutTakesNoRoom(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 10), node("m", 3))
	submit(t, l, "g", 1, near("g", 6))
	submit(t, l, "large", 1, spec(6, 0))
	small := spec(4, 0)
	small.Module = "small"
	submit(t, l, "small", 1, small)
	r := anchored(l).Pass(t.Context())
	assert.Contains(t, fmt.Sprint(r.Notes), "leftOut=1")
	assert.Equal(t, orbit.NodeID("n"), snapshot(t, l).Capsule("small-0").Node)
}

// A launcher waits for no group, and its workers wait for the launcher. The group needs no anchor, and the plan that
// places the launcher places no anchor.
func TestLaunchersStartTheirGroups(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 3, 10)
	launcher := spec(1, 0)
	launcher.Group = "g"
	submit(t, l, "workers", 6, near("g", 2))
	submit(t, l, "launcher", 1, launcher)
	e := anchored(l)
	settle(t, e)
	racks, placed, anchors := racksOf(snapshot(t, l), "g")
	assert.Len(t, racks, 1)
	assert.Equal(t, 7, placed)
	assert.Zero(t, anchors)
}

// A plan takes nothing from the next one on the same view: its proposals may all be lost.
func TestAnchorPlansTwice(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 10)
	submit(t, l, "g", 8, near("g", 2))
	submit(t, l, "s", 3, spec(3, 0))
	a := &nav.Anchor{Navigator: &nav.Services{}}
	e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		first, err := a.Plan(ctx, view, pending)
		require.NoError(t, err)
		second, err := a.Plan(ctx, view, pending)
		assert.Equal(t, first.Proposals, second.Proposals)
		assert.Equal(t, first.Unplaced, second.Unplaced)
		return second, err
	})}
	require.Empty(t, e.Pass(t.Context()).Errors)
	require.Empty(t, e.Pass(t.Context()).Errors)
	assert.Zero(t, snapshot(t, l).PendingCount())
}

// Members that want to be near their group at several levels: the anchor chooses at the narrowest, so that all
// follow.
func TestAnchorOfAGroupWithSeveralLevels(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for r := range 4 {
		n := rackNode(fmt.Sprint("n", r), fmt.Sprint("r", r), int64(6+2*(r%2)))
		n.Node.Labels["zone"] = fmt.Sprint("z", r/2)
		commit(t, l, n)
	}
	wide := near("g", 2)
	wide.Near.Level, wide.Module, wide.Priority = "zone", "wide", 1
	submit(t, l, "wide", 1, wide)
	submit(t, l, "g", 3, near("g", 2))
	e := anchored(l)
	e.Pass(t.Context())
	assert.Equal(t, orbit.NodeID("n1"), snapshot(t, l).Capsule("wide-0").Node, "racks of 6 take three of them")
	settle(t, e)
	assert.Zero(t, snapshot(t, l).PendingCount())
}

// A filter keeps anchors and holds away from nodes, and is quoted where none is left.
func TestAnchorFilter(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 10)
	submit(t, l, "g", 4, near("g", 4))
	placement := &place.Indexed{Filter: func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
		if n.Node.Labels["rack"] == "r0" {
			return "are not liked"
		}
		return ""
	}}
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{Placement: placement}, Filter: placement.Filter}}
	settle(t, e)
	racks, placed, _ := racksOf(snapshot(t, l), "g")
	assert.Equal(t, map[string]int{"r1": 4}, racks)
	assert.Equal(t, 4, placed)
	submit(t, l, "h", 1, near("h", 4))
	r := e.Pass(t.Context())
	require.ErrorContains(t, r.Unplaced[0].Why, "2 are not liked, 2 host another group")
}

// Every group that fits is complete in the end, with batches of any size: room for all groups in racks of their own.
func TestGroupsThatFitAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		groups := rapid.IntRange(1, 5).Draw(t, "groups")
		racked(t, l, groups, 3, 12)
		sizes := map[string]int{}
		for g := range groups {
			group := fmt.Sprint("g", g)
			for k := range rapid.IntRange(1, 3).Draw(t, "shapes") {
				s := near(group, rapid.SampledFrom([]int64{1, 2, 3, 4}).Draw(t, "cpu"))
				s.Module, s.Priority = fmt.Sprint("m", k), rapid.Int32Range(0, 2).Draw(t, "priority")
				n := rapid.IntRange(1, 3).Draw(t, "members")
				submit(t, l, fmt.Sprintf("%s-%d", group, k), n, s)
				sizes[group] += n
			}
		}
		e := anchored(l)
		e.MaxPlan = rapid.IntRange(1, 10).Draw(t, "most")
		for range 60 {
			r := e.Pass(context.Background())
			require.Zero(t, r.Conflicts+r.Infeasible)
		}
		for group, size := range sizes {
			racks, placed, anchors := racksOf(snapshot(t, l), group)
			require.Equal(t, size, placed, group)
			require.Equal(t, 1, anchors)
			require.Len(t, racks, 1)
		}
		require.Zero(t, holdsOf(snapshot(t, l)))
		require.Equal(t, groups, audit(t, l))
	})
}

// Ledgers that take little at once: fewer holds, shorter notes, and groups that start all the same.
func TestAnchorsWithinTheLimitsOfTheLedger(t *testing.T) {
	for held, limits := range map[int]orbit.Limits{
		0: {IDBytes: 40}, 2: {Commitments: 4, ValueBytes: 3}, 1: {Preconditions: 3}, 3: {Preconditions: 4}, // a mark, the anchor's node, and two for one more
	} {
		l := &orbit.MemoryLedger{Bounds: limits}
		for i := range 4 {
			commit(t, l, rackNode(fmt.Sprint("n", i), "r", 4))
		}
		submit(t, l, "g", 8, near("g", 2))
		e := anchored(l)
		assert.Zero(t, e.Pass(t.Context()).Invalid)
		assert.Equal(t, held, holdsOf(snapshot(t, l)))
		settle(t, e)
		assert.Zero(t, snapshot(t, l).PendingCount())
	}
}

// A class that the wrapped navigator has no room for because of a proposal that is left out is not put aside: it fits.
func TestOmittedPlacementsParkNoCapsule(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 9))
	submit(t, l, "g", 1, near("g", 4))
	large, small := spec(8, 0), spec(5, 0)
	small.Module = "small"
	submit(t, l, "large", 1, large)
	submit(t, l, "small", 1, small)
	e := anchored(l)
	r := e.Pass(t.Context())
	require.Contains(t, fmt.Sprint(r.Notes), "leftOut=1")
	require.Zero(t, r.Parked)
	e.Pass(t.Context())
	assert.True(t, snapshot(t, l).Capsule("small-0").Placed())
	assert.Equal(t, 1, e.Pass(t.Context()).Parked, "large fits nowhere")
}
