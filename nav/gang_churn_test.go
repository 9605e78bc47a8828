package nav_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// I9: what a navigator keeps from plan to plan changes nothing. While nodes join, leave, drain, move to other racks and
// lose devices, and capsules come and go, a navigator that has lived all along plans what a new one plans.
func TestGangPlansLikeANewNavigator(t *testing.T) {
	scale.Sequential(t)
	for range 5 {
		rapid.Check(t, testGangChurn)
	}
}

func testGangChurn(t *rapid.T) {
	type step struct {
		kind, at int
		quiet    bool // no engine plans before the next step
		node     orbit.Node
		gang     *orbit.Gang
		ask      *orbit.Spec
	}
	var steps []step
	for range rapid.IntRange(5, 40).Draw(t, "steps") {
		s := step{kind: rapid.IntRange(0, 9).Draw(t, "kind"), at: rapid.IntRange(0, 7).Draw(t, "at"), quiet: rapid.Bool().Draw(t, "quiet")}
		switch {
		case s.kind < 4:
			s.node = orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", s.at)), Capacity: orbit.Resources{orbit.CPU: rapid.Int64Range(2, 9).Draw(t, "cpu"), orbit.Memory: 9},
				Labels:  map[string]string{"rack": rapid.SampledFrom([]string{"r0", "r0", "r1", "r2", ""}).Draw(t, "rack"), "block": rapid.SampledFrom([]string{"b0", "b0", "b1"}).Draw(t, "block")},
				Extras:  []orbit.Extra{{Name: "ip", Amount: rapid.Int64Range(0, 3).Draw(t, "ips")}},
				Devices: orbit.Devices{Model: "a", Count: 2, Unhealthy: orbit.DeviceSet(rapid.IntRange(0, 1).Draw(t, "ill"))}, State: map[bool]orbit.Condition{true: orbit.Cordoned}[s.kind == 3 && s.at < 2]}
		case s.kind < 6:
			s.gang = drawGang(t, true)
			for i := range s.gang.Roles {
				if rapid.IntRange(0, 2).Draw(t, "ruled") == 0 {
					ruled := *s.gang.Roles[i].Spec
					drawRules(t, &ruled)
					s.gang.Roles[i].Spec = &ruled
				}
			}
		case s.kind == 6:
			s.ask = drawAsk(t, true, orbit.Batch)
		}
		steps = append(steps, s)
	}
	l := &orbit.MemoryLedger{}
	old := &nav.Gang{}
	e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		got, err := old.Plan(ctx, view, pending)
		require.NoError(t, err)
		want, err := (&nav.Gang{}).Plan(ctx, view, pending)
		require.NoError(t, err)
		require.Equal(t, want.Proposals, got.Proposals)
		require.Len(t, got.Unplaced, len(want.Unplaced))
		for i := range got.Unplaced {
			require.Equal(t, want.Unplaced[i].Capsule, got.Unplaced[i].Capsule)
		}
		holdsTogether(t, view, got)
		if len(got.Proposals) > 1 { // one loses: what was reserved for it is free again
			got.Proposals = lose(t, l, got.Proposals, 0)
		}
		return got, nil
	})}
	try := func(do ...orbit.Commitment) { _, _ = l.Propose(context.Background(), orbit.Proposal{Do: do}) }
	for i, s := range steps {
		id := orbit.CapsuleID(fmt.Sprint("c", i))
		switch {
		case s.kind < 4:
			try(orbit.PutNode{Node: s.node})
		case s.kind < 6:
			s.gang.ID = orbit.GangID(id)
			for r := range s.gang.Roles {
				for k, m := range s.gang.Roles[r].Members {
					s.gang.Roles[r].Members[k] = id + "/" + m
				}
			}
			try(orbit.Submit{Gang: s.gang})
		case s.kind == 6:
			if n := snapshot(t, l).Node(orbit.NodeID(fmt.Sprint("n", s.at))); n != nil {
				set, _ := n.PickDevices(s.ask)
				try(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s.ask}, orbit.Place{Capsule: id, Node: n.Node.ID, Devices: set})
			}
		case s.kind == 7:
			try(orbit.RemoveNode{Node: orbit.NodeID(fmt.Sprint("n", s.at))})
		default:
			for c := range snapshot(t, l).On(orbit.NodeID(fmt.Sprint("n", s.at))) {
				try(orbit.Release{Capsule: c.ID, Final: s.kind == 8})
			}
		}
		if !s.quiet {
			require.Empty(t, e.Pass(context.Background()).Errors)
		}
	}
	require.NoError(t, snapshot(t, l).Verify())
}

// A node that joins and leaves between two passes leaves a place in the tables in which no plan has ever seen a
// node.
func TestGangNodeThatCameAndWent(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "a", 1, 1)
	rackOf(t, l, "b", 2, 1)
	gangOf(t, l, "g", "", 3, 1)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	mustPass(t, e)
	rackOf(t, l, "c", 1, 1)
	commit(t, l, orbit.RemoveNode{Node: "c-0"})
	moved := *snapshot(t, l).Node("a-0").Node
	moved.Labels = map[string]string{"rack": "b"}
	commit(t, l, orbit.PutNode{Node: moved})
	mustPass(t, e)
	assert.Equal(t, 3, placedOf(t, l, "g"))
}

// Where members go within a domain: on the fullest nodes first; what those do not take goes on the idle node that it
// fits tightest, and the other idle ones stay idle.
func TestGangKeepsDomainsUseful(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for id, cpu := range map[string]int64{"idle-a": 9, "idle-b": 7, "idle-c": 5, "half": 8, "full": 8} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: map[string]string{"rack": "r"}}})
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "a", Node: "half"},
		orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: spec(6, 0)}, orbit.Place{Capsule: "b", Node: "full"})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	gangOf(t, l, "small", "", 2, 1)
	e.Pass(t.Context())
	for _, id := range []orbit.CapsuleID{"small-0", "small-1"} {
		assert.Equal(t, orbit.NodeID("full"), snapshot(t, l).Capsule(id).Node)
	}
	gangOf(t, l, "large", "", 5, 2)
	e.Pass(t.Context())
	on := map[orbit.NodeID]int{}
	for i := range 5 {
		on[snapshot(t, l).Capsule(orbit.CapsuleID(fmt.Sprint("large-", i))).Node]++
	}
	assert.Equal(t, map[orbit.NodeID]int{"half": 2, "idle-b": 3}, on)
}

// Two roles that ask for the same get each its minimum before any gets more.
func TestGangRolesAlikeGetTheirMinimum(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 3, 1)
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "a", Spec: gangSpec(1), Members: []orbit.CapsuleID{"a0", "a1", "a2"}, Min: 1},
		{Name: "b", Spec: gangSpec(1), Members: []orbit.CapsuleID{"b0", "b1"}, Min: 2}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	round := e.Pass(t.Context())
	require.Empty(t, round.Errors)
	assert.Equal(t, []int{1, 2}, snapshot(t, l).Gang("g").Placed)
	require.Len(t, round.Unplaced, 2)
	assert.EqualError(t, round.Unplaced[0].Why, `gang "g": 3 of 5 waiting members are placed, no room was found for more in rack r`)
}

// What a wider level adds to a top-up is more than what the narrower one has taken already.
func TestGangTopUpGoesWider(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 2)
	rackOf(t, l, "s", 1, 1)
	for n := range snapshot(t, l).Nodes() {
		again := *n.Node
		again.Labels = map[string]string{"rack": n.Node.Labels["rack"], "block": "b"}
		commit(t, l, orbit.PutNode{Node: again})
	}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack", "block"}, Roles: []orbit.Role{
		{Name: "w", Spec: gangSpec(1), Members: []orbit.CapsuleID{"0", "1", "2", "3"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	e.Pass(t.Context())
	require.Equal(t, 4, placedOf(t, l, "g"))
	commit(t, l, orbit.Release{Capsule: "0", Stopped: true}, orbit.Release{Capsule: "1", Stopped: true})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(1, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	round := e.Pass(t.Context())
	require.Empty(t, round.Errors)
	assert.Equal(t, 4, placedOf(t, l, "g"))
	assert.Equal(t, []orbit.NodeID{"r-0", "s-0"}, []orbit.NodeID{snapshot(t, l).Capsule("0").Node, snapshot(t, l).Capsule("1").Node})
}

// Where those who run have come to be on different racks there is no rack to top the gang up in.
func TestGangTopUpWithoutASharedDomain(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 3, 1)
	gangOf(t, l, "g", "", 3, 1)
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	e.Pass(t.Context())
	moved := *snapshot(t, l).Node("r-0").Node
	moved.Labels = map[string]string{"rack": "s"}
	commit(t, l, orbit.PutNode{Node: moved})
	commit(t, l, orbit.Release{Capsule: "g-2", Stopped: true})
	round := e.Pass(t.Context())
	require.Len(t, round.Unplaced, 1)
	assert.EqualError(t, round.Unplaced[0].Why, `gang "g": runs below its minimum, lacks 1 of role "worker": 2 run, 1 wait: those that run share no domain of its levels`)
}

// A member whose record is gone is not mistaken for a stranger that has taken its id.
func TestGangMemberIDUsedAgain(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{Terminal: 1}}
	rackOf(t, l, "r", 1, 4)
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: gangSpec(1), Members: []orbit.CapsuleID{"0", "1"}, Min: 1}}}})
	commit(t, l, orbit.Release{Capsule: "0", Final: true})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x", "y"}, Spec: spec(1, 0)}, orbit.Release{Capsule: "x", Final: true}, orbit.Release{Capsule: "y", Final: true})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"0"}, Spec: gangSpec(1), Owner: "stranger"})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	require.Empty(t, e.Pass(t.Context()).Unplaced)
	assert.True(t, snapshot(t, l).Capsule("1").Placed())
	assert.False(t, snapshot(t, l).Capsule("0").Placed())
}
