package nav_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// holdsTogether requires that a ledger which nothing has changed since the view takes all proposals of a plan in order,
// and that it takes the others, or refuses them as conflicts, if any one of them has lost. It returns how many it refuses
// so, because they rest on one that has lost.
func holdsTogether(t *rapid.T, view *orbit.View, plan orbit.Plan) (resting int) {
	for lost := -1; lost < len(plan.Proposals); lost++ {
		ledger := &orbit.MemoryLedger{}
		ledger.Reset(view.State())
		for i, p := range lose(t, ledger, plan.Proposals, lost) {
			if _, err := ledger.Propose(context.Background(), p); lost < 0 || !errors.Is(err, orbit.ErrConflict) {
				require.NoError(t, err, "proposal %d of %d, without %d", i, len(plan.Proposals), lost)
			} else {
				resting++
			}
		}
	}
	return resting
}

// lose returns the proposals without one that has lost, if there is one. As with each proposal that loses, something
// else was committed after the view, here a mark.
func lose(t *rapid.T, l orbit.Ledger, plan []orbit.Proposal, at int) []orbit.Proposal {
	if at < 0 {
		return plan
	}
	commit(t, l, orbit.Mark{Key: "others", Value: fmt.Sprint(snapshot(t, l).Revision())})
	return slices.Delete(slices.Clone(plan), at, at+1)
}

// drawGangsTogether draws a world in which a few gangs wait whose members are mostly of one group: some bring it to nodes
// on which it may then be evened out by others, and some take extras that evictions free.
func drawGangsTogether(t *rapid.T) orbit.Ledger {
	l, serial := &orbit.MemoryLedger{}, 0
	draw := func(n int, what string) int { return rapid.IntRange(0, n).Draw(t, what) }
	drawSpec := func(s *orbit.Spec) *orbit.Spec {
		drawRules(t, s)
		s.Extras = []orbit.Extra{{Name: "ip", Amount: 1}}[:draw(1, "takes an extra")]
		if draw(2, "evened") > 0 {
			s.Group, s.Groups, s.Apart, s.Even = "g", nil, nil, []orbit.Even{{Group: "g", Level: orbit.NodeKey}}[:draw(1, "by rule")]
		}
		s.Devices = orbit.DeviceRequest{}
		return s
	}
	for i := range 2 + draw(2, "nodes") {
		id := orbit.NodeID(fmt.Sprint("n", i))
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: int64(2 + draw(3, "cpu"))}, Extras: []orbit.Extra{{Name: "ip", Amount: int64(draw(2, "ips"))}}}})
		for range 1 + draw(2, "others") {
			c, s := orbit.CapsuleID(fmt.Sprint("o", serial)), drawSpec(spec(1, 0))
			serial++
			_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: s}, orbit.Place{Capsule: c, Node: id}}}) // where it fits
		}
	}
	for i := range 2 + draw(1, "gangs") {
		g := &orbit.Gang{ID: orbit.GangID(fmt.Sprint("gang", i))}
		for r := range 1 + draw(1, "roles") {
			role := orbit.Role{Name: fmt.Sprint(r), Spec: drawSpec(gangSpec(int64(1 + draw(1, "wants"))))}
			role.Spec.Priority = 1000 * int32(btoi(draw(2, "urgent") > 0))
			for m := range 1 + draw(2, "members") {
				role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint(g.ID, "-", r, "-", m)))
			}
			role.Min = draw(len(role.Members), "min")
			g.Roles = append(g.Roles, role)
		}
		drawLeast(t, g)
		commit(t, l, orbit.Submit{Gang: g})
	}
	return l
}

// Several gangs with rules about each other's groups, planned at once: the ledger takes the plan as a whole, and if it
// refuses one proposal for what others have committed, each that rests on it is a conflict too and no mistake.
func TestGangPlansHoldTogether(t *testing.T) {
	for total := range scale.Reach(t, "rests on another one", "evicts") {
		rapid.Check(t, func(t *rapid.T) {
			l, inner := drawGangsTogether(t), orbit.Navigator(&nav.Gang{})
			if rapid.Bool().Draw(t, "preempting") {
				inner = &nav.Preempting{Navigator: inner}
			}
			e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
				plan, err := inner.Plan(ctx, view, pending)
				require.NoError(t, err)
				total["rests on another one"] += holdsTogether(t, view, plan)
				for _, p := range plan.Proposals {
					total["evicts"] += btoi(slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool { _, is := do.(orbit.Evict); return is }))
				}
				return plan, nil
			})}
			require.Empty(t, e.Pass(t.Context()).Errors)
		})
	}
}

// A gang that a rule Even lets go only where another gang of the plan has gone first: if that one loses, so does this
// one, and that is no mistake of the navigator.
func TestGangRestsOnAnotherByRuleEven(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for _, n := range []orbit.NodeID{"a", "b"} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: n, Capacity: orbit.Resources{orbit.CPU: 2}}})
	}
	for i, id := range []orbit.GangID{"first", "second"} {
		s := gangSpec(int64(2 - i))
		s.Group, s.Even = "g", []orbit.Even{{Group: "g", Level: orbit.NodeKey}}[:i]
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: id, Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{orbit.CapsuleID(id), orbit.CapsuleID(id + "-more")}[:1+i]}}}})
	}
	inner := &nav.Gang{}
	e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		plan, err := inner.Plan(ctx, view, pending)
		require.Len(t, plan.Proposals, 2)
		commit(t, l, orbit.Release{Capsule: "first", Final: true})
		return plan, err
	})}
	round := e.Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Equal(t, 2, round.Conflicts)
}
