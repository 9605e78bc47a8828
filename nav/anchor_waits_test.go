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

// waits is a spec of one group that must be near another.
func waits(group, on string) *orbit.Spec {
	s := near(group, 1)
	s.Near.Group = on
	return s
}

// whyOf returns what a pass says of one capsule.
func whyOf(r orbit.Round, id orbit.CapsuleID) error {
	for _, u := range r.Unplaced {
		if u.Capsule.ID == id {
			return u.Why
		}
	}
	return nil
}

// Groups that can never start are told so, with all that they wait for; they are parked until it comes.
func TestDeadlocksAreDiagnosed(t *testing.T) {
	for name, c := range map[string]struct {
		specs  []*orbit.Spec
		want   string
		groups []string
	}{
		"two wait for each other": {
			[]*orbit.Spec{waits("a", "b"), waits("b", "a")},
			`group "a" waits for "b", which waits for "a": none can start; let members of one of them wait for no group, or for their own group`,
			[]string{"a", "b", "a"},
		},
		"a ring behind a queue": {
			[]*orbit.Spec{waits("a", "b"), waits("b", "c"), waits("c", "d"), waits("d", "b")},
			`group "a" waits for "b", which waits for "c", which waits for "d", which waits for "b": none can start; let members of one of them wait for no group, or for their own group`,
			[]string{"a", "b", "c", "d", "b"},
		},
		"no member exists": {
			[]*orbit.Spec{waits("a", "ghost")},
			`group "a" waits for "ghost", of which nothing runs and nothing is pending; submit a member of it`,
			[]string{"a", "ghost"},
		},
		"a loner waits for a group that waits for a group without members": {
			[]*orbit.Spec{waits("", "b"), waits("b", "ghost")},
			`waits for group "b", which waits for "ghost", of which nothing runs and nothing is pending; submit a member of it`,
			[]string{"", "b", "ghost"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			racked(t, l, 2, 2, 10)
			for i, s := range c.specs {
				submit(t, l, fmt.Sprint(i), 2, s)
			}
			e := anchored(l)
			r := e.Pass(t.Context())
			why := whyOf(r, "0-0")
			require.EqualError(t, why, c.want)
			var d *nav.Deadlock
			require.ErrorAs(t, why, &d)
			assert.Equal(t, c.groups, d.Groups)
			var fit *orbit.NoFit
			require.ErrorAs(t, why, &fit)
			assert.Equal(t, 4, fit.Nodes)
			assert.Equal(t, len(c.specs), r.Parked)
			assert.Zero(t, r.Committed)

			// What was missing comes, and all run.
			last := c.groups[len(c.groups)-1]
			if c.groups[len(c.groups)-1] != "ghost" {
				last = c.specs[len(c.specs)-1].Group
			}
			submit(t, l, "last", 1, near(last, 1))
			settle(t, e)
			assert.Zero(t, snapshot(t, l).PendingCount())
		})
	}
}

// Groups that wait for one that runs, or that can start, just wait: no deadlock is seen where there is none, in
// whatever order the groups are looked at.
func TestNoDeadlockWhereThereIsNone(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 6, 10)
	submit(t, l, "ab", 1, waits("a", "b"))
	submit(t, l, "ba", 1, waits("b", "a"))
	submit(t, l, "bc", 1, waits("b", "c"))
	submit(t, l, "cd", 1, waits("c", "d"))
	submit(t, l, "cb", 1, waits("c", "b"))
	submit(t, l, "d", 2, near("d", 1))
	e := anchored(l)
	for _, r := range settle(t, e) {
		for _, u := range r.Unplaced {
			var d *nav.Deadlock
			assert.NotErrorAs(t, u.Why, &d)
		}
	}
	s := snapshot(t, l)
	assert.Zero(t, s.PendingCount())
	_, _, anchors := racksOf(s, "d")
	assert.Equal(t, 1, anchors)
}

// The self-match rule: without an anchor and without holds, and still only one starts it; a group for which others
// wait needs its anchor.
func TestSelfMatch(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 3, 10)
	commit(t, l, node("bare", 4)) // no member could follow there, but it is the emptiest
	busy := spec(0, 0)
	for n := range snapshot(t, l).Nodes() {
		if id := orbit.CapsuleID("busy-" + n.Node.ID); n.Node.ID != "bare" {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: busy}, orbit.Place{Capsule: id, Node: n.Node.ID})
		}
	}
	for i, owner := range []string{"one", "two"} {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint(i, "a")), orbit.CapsuleID(fmt.Sprint(i, "b"))}, Spec: near("g", 2), Owner: owner})
	}
	submit(t, l, "h", 3, near("h", 2))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"loner"}, Spec: waits("", "h"), Owner: "absent"})
	one := &orbit.Engine{Name: "one", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}}
	two := &orbit.Engine{Name: "two", Ledger: l, Navigator: between{&nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}, func() {
		one.Pass(context.Background())
	}}}
	r := two.Pass(t.Context())
	assert.Equal(t, 2, r.Conflicts, "one start of g, and one of h")
	for range 5 {
		r := two.Pass(t.Context())
		require.Zero(t, r.Infeasible)
		require.Empty(t, r.Errors)
	}
	s := snapshot(t, l)
	racks, placed, anchors := racksOf(s, "g")
	assert.Len(t, racks, 1)
	assert.Equal(t, 4, placed)
	assert.Zero(t, anchors)
	_, placed, anchors = racksOf(s, "h")
	assert.Equal(t, 3, placed)
	assert.Equal(t, 1, anchors)
	assert.Zero(t, s.Node("bare").Capsules)
}

// A first member that fits nowhere is explained as itself, and its class is parked.
func TestSelfMatchThatFitsNowhere(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 1, 10)
	submit(t, l, "g", 3, near("g", 11))
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}}
	r := e.Pass(t.Context())
	require.Len(t, r.Unplaced, 3)
	for _, u := range r.Unplaced {
		assert.Same(t, snapshot(t, l).Capsule(u.Capsule.ID).Spec, u.Capsule.Spec)
	}
	assert.Equal(t, 1, r.Parked)
}

// A first member that fits nowhere does not block its group: the group starts once, with a member of another spec, also
// if the wrapped navigator places several at once.
func TestSelfMatchStartsWithWhatFits(t *testing.T) {
	for name, inner := range map[string]orbit.Navigator{"one by one": &nav.Services{}, "at once": together{&nav.Services{}}} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			racked(t, l, 3, 1, 9)
			for i, cpu := range []int64{10, 2, 3, 4} {
				s := near("g", cpu)
				s.Module = fmt.Sprint("m", i)
				submit(t, l, s.Module, 2, s)
			}
			e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: inner, SelfMatch: true}}
			r := e.Pass(t.Context())
			assert.Contains(t, fmt.Sprint(r.Notes), map[string]string{"one by one": "leftOut=2", "at once": "leftOut=1"}[name])
			_, placed, anchors := racksOf(snapshot(t, l), "g")
			assert.Equal(t, 1, placed)
			assert.Zero(t, anchors)
			require.Len(t, r.Unplaced, 7)
			for _, r := range settle(t, e) {
				assert.Zero(t, r.Conflicts+r.Infeasible)
			}
			s := snapshot(t, l)
			racks, placed, _ := racksOf(s, "g")
			assert.Len(t, racks, 1)
			assert.Equal(t, 3, placed, "2 + 2 + 3, or 4 + 3 + 2")
			assert.True(t, s.Capsule("m0-0").Pending())
		})
	}
}

// A first member whose placement is left out beside an anchor is not parked: it is planned again.
func TestSelfMatchThatIsLeftOut(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 8))
	submit(t, l, "self", 2, near("self", 4))
	submit(t, l, "g", 1, near("g", 5))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"loner"}, Spec: waits("", "g"), Owner: "absent"}) // g needs an anchor
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}}
	r := e.Pass(t.Context())
	require.Contains(t, fmt.Sprint(r.Notes), "anchors=1")
	require.Contains(t, fmt.Sprint(r.Notes), "leftOut=1")
	require.Zero(t, r.Parked)
	assert.Equal(t, 1, e.Pass(t.Context()).Parked, "now it fits nowhere")
}

// together is a navigator whose plans are one proposal each.
type together struct{ orbit.Navigator }

func (n together) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := n.Navigator.Plan(ctx, view, pending)
	var all orbit.Proposal
	for _, p := range plan.Proposals {
		all.Do, all.If = append(all.Do, p.Do...), append(all.If, p.If...)
	}
	if plan.Proposals = nil; len(all.Do) > 0 {
		plan.Proposals = []orbit.Proposal{all}
	}
	return plan, err
}

// A node would take a group's first member by self-match, except that another capsule waits for the group too. The
// members are not parked then: that capsule may be withdrawn, which frees no node and would not wake them.
func TestSelfMatchOnceNoOtherWaits(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 9))
	other := spec(1, 0)
	other.Group = "other"
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"o"}, Spec: other}, orbit.Place{Capsule: "o", Node: "n"})
	submit(t, l, "g", 2, near("g", 2))
	large := near("g", 9)
	large.Module = "large"
	submit(t, l, "large", 1, large)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"loner"}, Spec: waits("", "g"), Owner: "absent"})
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}}
	r := e.Pass(t.Context())
	require.ErrorContains(t, whyOf(r, "g-0"), `group "g" has no node for its anchor: 0 of 1 nodes fit: 1 host another group`)
	assert.Equal(t, 1, r.Parked, "large fits nowhere, whichever capsules wait")
	commit(t, l, orbit.Release{Capsule: "loner", Final: true})
	settle(t, e)
	assert.Equal(t, 1, snapshot(t, l).PendingCount())
}

// To start groups by self-match, as many nodes are looked at on 50 racks as on 5, because the wrapped navigator's index
// keeps what it knows for specs of first members too.
func TestSelfMatchEffortIsFlat(t *testing.T) {
	effort := func(racks int) (rated, scanned int64) {
		l := &orbit.MemoryLedger{}
		racked(t, l, racks, 40, 64)
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}}
		for g := range 20 {
			s := near(fmt.Sprint("g", g), 2)
			submit(t, l, s.Group, 4, s)
			r := e.Pass(t.Context())
			require.Positive(t, r.Committed)
			for _, note := range r.Notes {
				switch note.Key {
				case "rated":
					rated += note.Value.Int64()
				case "scanned":
					scanned += note.Value.Int64()
				}
			}
		}
		return rated, scanned
	}
	few, scanned := effort(5)
	require.Zero(t, scanned)
	many, scanned := effort(50)
	require.Zero(t, scanned)
	assert.LessOrEqual(t, many, 2*few)
}

// A spec that is shared is the ledger's own, and one that no ledger takes is not shared.
func TestSpecShare(t *testing.T) {
	l := &orbit.MemoryLedger{}
	s := near("share", 3)
	shared, err := s.Share()
	require.NoError(t, err)
	assert.True(t, shared.Shared())
	assert.NotSame(t, s, shared)
	submit(t, l, "c", 1, s)
	assert.Same(t, shared, snapshot(t, l).Capsule("c-0").Spec)
	again, err := shared.Share()
	require.NoError(t, err)
	assert.Same(t, shared, again)
	s.Near.Level = ""
	_, err = s.Share()
	assert.ErrorIs(t, err, orbit.ErrInvalid)
}
