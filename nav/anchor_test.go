package nav_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// racked lets nodes of so much CPU join, named r<rack>n<i>, in racks r0, r1, ...
func racked(t require.TestingT, l orbit.Ledger, racks, each int, cpu int64) {
	for r := range racks {
		for i := range each {
			commit(t, l, rackNode(fmt.Sprintf("r%dn%d", r, i), fmt.Sprint("r", r), cpu))
		}
	}
}

func rackNode(id, rack string, cpu int64) orbit.PutNode {
	n := node(id, cpu)
	n.Node.Labels = map[string]string{"rack": rack}
	return n
}

// near is a spec of the group that must be in a rack with one of it.
func near(group string, cpu int64) *orbit.Spec {
	s := spec(cpu, 0)
	s.Module, s.Group, s.Near = group, group, orbit.Near{Group: group, Level: "rack"}
	return s
}

// submit adds n capsules named after the module of the spec, or the prefix.
func submit(t require.TestingT, l orbit.Ledger, prefix string, n int, s *orbit.Spec) {
	var ids []orbit.CapsuleID
	for i := range n {
		ids = append(ids, orbit.CapsuleID(fmt.Sprintf("%s-%d", prefix, i)))
	}
	commit(t, l, orbit.Submit{IDs: ids, Spec: s})
}

// settle passes until nothing moves any more, and returns the rounds.
func settle(t require.TestingT, e *orbit.Engine) (rounds []orbit.Round) {
	for range 100 {
		r := e.Pass(context.Background())
		rounds = append(rounds, r)
		require.Empty(t, r.Errors)
		if r.Committed == 0 {
			return rounds
		}
	}
	require.Fail(t, "it does not settle")
	return nil
}

// racksOf says in which racks the group runs, and how many of it, and how many of them are anchors.
func racksOf(s *orbit.State, group string) (racks map[string]int, placed, anchors int) {
	racks = map[string]int{}
	for c := range s.Capsules() {
		if c.Spec.Group == group && c.Placed() {
			racks[s.Node(c.Node).Node.Labels["rack"]]++
			placed++
			if c.Note() == nav.AnchorNote {
				anchors++
			}
		}
	}
	return racks, placed, anchors
}

// The bootstrap deadlock: each member waits for a member that runs, so none ever does.
func TestGroupsNeverStartByAffinityAlone(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 3, 4, 10)
	submit(t, l, "train", 8, near("train", 2))
	submit(t, l, "web", 8, spec(1, 0))
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
	rounds := settle(t, e)
	for range 20 {
		rounds = append(rounds, e.Pass(t.Context()))
	}
	_, placed, _ := racksOf(snapshot(t, l), "train")
	assert.Zero(t, placed, "nothing of the group is ever placed")
	assert.Equal(t, 8, snapshot(t, l).PendingCount())
	require.ErrorContains(t, rounds[0].Unplaced[0].Why, "0 of 12 nodes fit: 12 wait for group train, of which nothing is placed")
}

// The cure: one anchor, and the others follow it into its rack.
func TestAnchorStartsGroups(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 3, 4, 10)
	submit(t, l, "train", 8, near("train", 2))
	submit(t, l, "db", 10, near("db", 2))
	submit(t, l, "web", 8, spec(1, 0))
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
	for _, r := range settle(t, e) {
		t.Log(r, r.Notes)
		assert.Zero(t, r.Infeasible+r.Conflicts)
	}
	s := snapshot(t, l)
	for group, size := range map[string]int{"train": 8, "db": 10} {
		racks, placed, anchors := racksOf(s, group)
		assert.Equal(t, size, placed, group)
		assert.Equal(t, 1, anchors, group)
		assert.Len(t, racks, 1, group)
	}
	assert.Zero(t, s.PendingCount())
	for h := range s.Holds() {
		assert.Fail(t, "a hold is left", "%v", h)
	}
	require.NoError(t, s.Verify())
}

// A group that is one of several of its members starts as any other, and those that are in it by the way are company.
func TestAnchorStartsOneOfSeveralGroups(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 3, 4, 10)
	members := near("train", 2)
	members.Group, members.Groups = "all", []string{"web", "train"}
	submit(t, l, "train", 8, members)
	settle(t, &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}})
	racks, placed, anchors := racksOf(snapshot(t, l), "train")
	require.Len(t, racks, 1)
	require.Equal(t, []int{8, 1}, []int{placed, anchors})
	submit(t, l, "web", 2, near("web", 1)) // of which the members above are company
	settle(t, &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}})
	web, placed, anchors := racksOf(snapshot(t, l), "web")
	require.Equal(t, []int{2, 0}, []int{placed, anchors})
	for rack := range web {
		require.Contains(t, racks, rack)
	}
}

// A member that has to be near another group, too, starts its group only where that rule permits it: not in a tighter
// rack, in which a member that another engine places would find room. Where no node permits it, nothing starts.
func TestAnchorNearOtherGroups(t *testing.T) {
	for _, there := range []bool{true, false} {
		t.Run(fmt.Sprint("the other group runs: ", there), func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, rackNode("tight", "r0", 5), rackNode("wide", "r1", 8), rackNode("store", "r1", 1))
			if there {
				store := spec(1, 0)
				store.Group = "store"
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"store"}, Spec: store}, orbit.Place{Capsule: "store", Node: "store"})
			}
			web := near("web", 2)
			web.Nears = []orbit.Near{{Group: "store", Level: "rack"}}
			submit(t, l, "web", 2, web)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: near("web", 1), Owner: "another engine"})
			settle(t, &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}})
			want := map[string]int{}
			if there {
				want["r1"] = 2
			}
			racks, _, _ := racksOf(snapshot(t, l), "web")
			assert.Equal(t, want, racks)
		})
	}
}

// A group whose members wait for it by several levels starts by self-match, and with an anchor if a member waits for
// another group, too.
func TestSelfMatchBySeveralLevels(t *testing.T) {
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprint("a member waits for another group: ", other), func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			n := rackNode("n", "r0", 8)
			n.Node.Labels["row"] = "row0"
			commit(t, l, n, rackNode("no row", "r1", 4))
			web := near("web", 2)
			web.Nears = []orbit.Near{{Group: "web", Level: "row"}}
			submit(t, l, "web", 2, web)
			if other {
				also := web.Clone()
				also.Nears = append(also.Nears, orbit.Near{Group: "store", Level: "rack"})
				submit(t, l, "also", 1, also)
			}
			settle(t, &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}})
			racks, _, anchors := racksOf(snapshot(t, l), "web")
			assert.Equal(t, map[string]int{"r0": 2}, racks)
			assert.Equal(t, other, anchors == 1)
		})
	}
}
