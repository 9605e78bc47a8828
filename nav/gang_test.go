package nav_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// planOf returns what a navigator plans for everything that waits, without committing it.
func planOf(t require.TestingT, l orbit.Ledger, n orbit.Navigator) (plan orbit.Plan) {
	e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (_ orbit.Plan, err error) {
		plan, err = n.Plan(ctx, view, pending)
		return orbit.Plan{}, err
	})}
	require.Empty(t, e.Pass(context.Background()).Errors)
	return plan
}

func noteOf(notes []slog.Attr, key string) int64 {
	for _, n := range notes {
		if n.Key == key {
			return n.Value.Int64()
		}
	}
	return -1
}

// It takes gangs of any module, and nothing else.
func TestGangClaims(t *testing.T) {
	var g nav.Gang
	for class, want := range map[orbit.AppClass]bool{
		orbit.LatencySensitive: false, orbit.BestEffort: false, orbit.Batch: false, orbit.GangClass: true,
	} {
		assert.Equal(t, want, g.Claims("any", class), "%v", class)
	}
}

// One proposal has all places, the bet that the gang is not placed, and one bet for each node on the sum of what is
// asked there. Nodes in use come first, idle ones stay idle.
func TestGangProposesAtOnce(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 8)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(2, 0)}, orbit.Place{Capsule: "load", Node: "r-2"})
	gangOf(t, l, "g", "", 4, 2)
	plan := planOf(t, l, &nav.Gang{})
	require.Len(t, plan.Proposals, 1)
	assert.Equal(t, []orbit.Precondition{
		orbit.GangUnplaced{Gang: "g"},
		orbit.NodeFreeOf{Node: "r-0", AtLeast: orbit.Resources{orbit.CPU: 2}},
		orbit.NodeFreeOf{Node: "r-2", AtLeast: orbit.Resources{orbit.CPU: 6}},
	}, plan.Proposals[0].If)
	assert.Len(t, plan.Proposals[0].Do, 4)
	assert.EqualValues(t, 1, noteOf(plan.Notes, "gangs.placed"))
	require.NoError(t, snapshot(t, l).Check(plan.Proposals[0]))
}

// Gangs go by the priority of their highest member, then by submission; and what one has reserved the next does
// not get.
func TestGangGoesByPriority(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	gangOf(t, l, "early", "", 1, 4)
	gangOf(t, l, "late", "", 1, 4)
	high := gangSpec(3)
	high.Priority = 1
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "high", Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "w", Spec: high, Members: []orbit.CapsuleID{"h"}}, {Name: "x", Spec: gangSpec(1), Members: []orbit.CapsuleID{"x"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	round := e.Pass(t.Context())
	require.Zero(t, round.Conflicts)
	assert.Equal(t, []int{2, 1, 0}, []int{placedOf(t, l, "high"), placedOf(t, l, "early"), placedOf(t, l, "late")})
}

// A batch that is cut in the middle of a gang places it whole all the same.
func TestGangTakesMembersThatWereNotHandedOver(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 8)
	gangOf(t, l, "g", "", 5, 2)
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}, MaxPlan: 2}
	assert.Equal(t, 1, e.Pass(t.Context()).Committed)
	assert.Equal(t, 5, placedOf(t, l, "g"))
}

// A gang that falls short is topped up on its rack, by this navigator alone: on the narrowest level that those who run
// share, wider only as far as levels are listed, anywhere only if they are preferred.
func TestGangToppedUpWhereItRuns(t *testing.T) {
	for name, c := range map[string]struct {
		levels []string
		loose  bool
		want   orbit.NodeID
		why    string
	}{
		"rack":          {levels: []string{"rack"}, why: `gang "g": runs below its minimum, lacks 1 of role "w": 2 run, 1 wait: best rack r fits 0 of 1 (2 nodes lack cpu, 1 is unschedulable)`},
		"rack or block": {levels: []string{"rack", "block"}, want: "same block"},
		"rack, loose":   {levels: []string{"rack"}, loose: true, want: "far"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			put := func(id, rack, block string, off bool) {
				commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: 4},
					Labels: map[string]string{"rack": rack, "block": block}, State: map[bool]orbit.Condition{true: orbit.Cordoned}[off]}})
			}
			for i := range 3 {
				put(fmt.Sprint("r-", i), "r", "b", false)
			}
			g := &orbit.Gang{ID: "g", Levels: c.levels, Loose: c.loose, Roles: []orbit.Role{{Name: "w", Spec: gangSpec(4), Members: []orbit.CapsuleID{"0", "1", "2"}}}}
			commit(t, l, orbit.Submit{Gang: g})
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			services := orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
			e.Pass(t.Context())
			require.Equal(t, 3, placedOf(t, l, "g"))
			if c.want == "same block" {
				put("same block", "other", "b", false)
			}
			put("far", "far", "far", false)
			lost := snapshot(t, l).Capsule("1").Node
			put(string(lost), "r", "b", true)
			commit(t, l, orbit.Release{Capsule: "1", Stopped: true})
			require.True(t, snapshot(t, l).Gang("g").Short())
			services.Pass(t.Context())
			require.Equal(t, 2, placedOf(t, l, "g"), "no other plan adds members")
			round := e.Pass(t.Context())
			require.Empty(t, round.Errors)
			if c.why != "" {
				require.Len(t, round.Unplaced, 1)
				assert.EqualError(t, round.Unplaced[0].Why, c.why)
				put(string(lost), "r", "b", false)
				c.want = lost
				round = e.Pass(t.Context())
			}
			assert.EqualValues(t, 1, noteOf(round.Notes, "gangs.topped_up"))
			assert.Equal(t, c.want, snapshot(t, l).Capsule("1").Node)
		})
	}
}

// Members that have ended are not missed: whatever is lost of the others comes back, also if that is all of them.
func TestGangGoesOnWithoutMembersThatHaveEnded(t *testing.T) {
	for name, c := range map[string]struct{ ended, lost []orbit.CapsuleID }{
		"one of two left is lost":  {ended: []orbit.CapsuleID{"g-0"}, lost: []orbit.CapsuleID{"g-1"}},
		"both that are left":       {ended: []orbit.CapsuleID{"g-0"}, lost: []orbit.CapsuleID{"g-1", "g-2"}},
		"the last":                 {ended: []orbit.CapsuleID{"g-0", "g-2"}, lost: []orbit.CapsuleID{"g-1"}},
		"nothing has ended before": {lost: []orbit.CapsuleID{"g-0", "g-1", "g-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			rackOf(t, l, "r", 3, 4)
			gangOf(t, l, "g", "", 3, 4)
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			e.Pass(t.Context())
			for _, id := range c.ended {
				commit(t, l, orbit.Release{Capsule: id, Final: true})
			}
			for _, id := range c.lost {
				commit(t, l, orbit.Release{Capsule: id, Stopped: true})
			}
			e.Pass(t.Context())
			assert.Equal(t, 3-len(c.ended), placedOf(t, l, "g"))
		})
	}
}

// A gang whose last member has gone begins again, and may do so on another rack.
func TestGangBeginsAgain(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	gangOf(t, l, "g", "", 2, 4)
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	e.Pass(t.Context())
	rackOf(t, l, "s", 2, 4)
	commit(t, l, orbit.Release{Capsule: "g-0", Stopped: true}, orbit.Release{Capsule: "g-1", Stopped: true})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "load", Node: "r-0"})
	e.Pass(t.Context())
	assert.Equal(t, 2, placedOf(t, l, "g"))
	assert.Contains(t, snapshot(t, l).Capsule("g-0").Node, "s-")
}

// What keeps a gang from being planned at all is said, and nothing is placed.
func TestGangFaults(t *testing.T) {
	members := func(n int) (out []orbit.CapsuleID) {
		for i := range n {
			out = append(out, orbit.CapsuleID(fmt.Sprint("m", i)))
		}
		return out
	}
	near := gangSpec(1)
	near.Near = orbit.Near{Group: "db", Level: "rack"}
	for name, c := range map[string]struct {
		limits orbit.Limits
		gang   orbit.Gang
		do     []orbit.Commitment
		why    string
	}{
		"two owners": {gang: orbit.Gang{Roles: []orbit.Role{{Name: "w", Spec: gangSpec(1), Members: members(2)}}},
			do:  []orbit.Commitment{orbit.Assign{Capsule: "m1", Owner: "another"}},
			why: `gang "g": capsule "m0" is owned by "", capsule "m1" by "another"; a gang has one owner`},
		"two classes": {gang: orbit.Gang{Roles: []orbit.Role{{Name: "w", Spec: gangSpec(1), Members: members(1)}, {Name: "x", Spec: spec(1, 0), Members: []orbit.CapsuleID{"x"}}}},
			why: `gang "g": capsule "x" has class LatencySensitive, which another navigator may claim; give the specs of all roles the class Gang`},
		"too many commitments": {limits: orbit.Limits{Preconditions: 2}, gang: orbit.Gang{Roles: []orbit.Role{{Name: "w", Spec: gangSpec(3), Members: members(3)}}},
			why: `gang "g": placing 3 members takes 4 bets; this ledger takes 2 in one proposal`},
		"company that is not there": {gang: orbit.Gang{Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: near, Members: members(1)}}},
			why: `gang "g": best rack r fits 0 of 1 (4 nodes wait for group db, of which nothing is placed)`},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{Bounds: c.limits}
			rackOf(t, l, "r", 4, 4)
			c.gang.ID = "g"
			commit(t, l, orbit.Submit{Gang: &c.gang})
			for _, do := range c.do {
				commit(t, l, do)
			}
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			round := e.Pass(t.Context())
			require.Empty(t, round.Errors)
			require.NotEmpty(t, round.Unplaced)
			for _, u := range round.Unplaced {
				var parks *orbit.NoFit
				assert.EqualError(t, u.Why, c.why)
				assert.NotErrorAs(t, u.Why, &parks)
			}
			assert.Zero(t, placedOf(t, l, "g"))
			assert.Zero(t, round.Proposed)
		})
	}
}

// A member with company goes where the company is. If that has left meanwhile, the ledger refuses the plan as a conflict.
func TestGangStaysNear(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	rackOf(t, l, "s", 2, 8)
	db := spec(1, 0)
	db.Group = "db"
	near := gangSpec(4)
	near.Near = orbit.Near{Group: "db", Level: "rack"}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: near, Members: []orbit.CapsuleID{"0", "1"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	require.Len(t, e.Pass(t.Context()).Unplaced, 2)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"db"}, Spec: db}, orbit.Place{Capsule: "db", Node: "s-1"})
	plan := planOf(t, l, &nav.Gang{})
	require.Len(t, plan.Proposals, 1)
	left := &orbit.MemoryLedger{Start: snapshot(t, l)}
	commit(t, left, orbit.Release{Capsule: "db", Final: true})
	_, err := left.Propose(t.Context(), plan.Proposals[0])
	require.ErrorIs(t, err, orbit.ErrConflict)
	e.Pass(t.Context())
	assert.Equal(t, orbit.NodeID("s-0"), snapshot(t, l).Capsule("0").Node, "where nothing has changed but that company came near")
	assert.Equal(t, orbit.NodeID("s-1"), snapshot(t, l).Capsule("1").Node)
}

// Hostile values (I14): the largest numbers, nothing asked for, capacity that shrank below use, no labels.
func TestGangTakesHostileValues(t *testing.T) {
	l := &orbit.MemoryLedger{}
	huge := orbit.Resources{orbit.CPU: math.MaxInt64, orbit.Memory: math.MaxInt64}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "huge", Capacity: huge, Labels: map[string]string{"rack": "r"}}},
		orbit.PutNode{Node: orbit.Node{ID: "zero", Labels: map[string]string{"rack": "r"}}},
		orbit.PutNode{Node: orbit.Node{ID: "bare", Capacity: huge}},
		orbit.PutNode{Node: orbit.Node{ID: "shrunk", Capacity: huge, Labels: map[string]string{"rack": "s"}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: huge}}},
		orbit.Place{Capsule: "load", Node: "shrunk"})
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "shrunk", Labels: map[string]string{"rack": "s"}}})
	gangOf(t, l, "half", "", 2, math.MaxInt64/2)
	gangOf(t, l, "all", "", 1, math.MaxInt64)
	gangOf(t, l, "two", "", 2, math.MaxInt64)
	gangOf(t, l, "nothing", "", 100, 0)
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	for range 3 {
		round := e.Pass(t.Context())
		require.Empty(t, round.Errors)
		require.Zero(t, round.Conflicts)
	}
	assert.Equal(t, []int{2, 0, 0, 100}, []int{placedOf(t, l, "half"), placedOf(t, l, "all"), placedOf(t, l, "two"), placedOf(t, l, "nothing")})
	require.NoError(t, snapshot(t, l).Verify())
}

// SCENARIOS 26: sixteen halves fit on eight devices at once, a seventeenth does not.
func TestGangSixteenHalves(t *testing.T) {
	half := gangSpec(0)
	half.Devices = orbit.DeviceRequest{Count: 1, Milli: 500}
	for n, want := range map[int]int{16: 16, 17: 0} {
		l := &orbit.MemoryLedger{}
		for i := range 2 {
			commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Labels: map[string]string{"rack": "r"}, Devices: orbit.Devices{Model: "a", Count: 4}}})
		}
		g := &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "half", Spec: half}}}
		for i := range n {
			g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprint(i)))
		}
		commit(t, l, orbit.Submit{Gang: g})
		e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
		require.Empty(t, e.Pass(t.Context()).Errors)
		assert.Equal(t, want, placedOf(t, l, "g"))
		sound(t, l)
	}
}

// Same views, same plans: two navigators that see the same ledger go the same way, nominations and all.
func TestGangIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		one, other := w.ledger(t), w.ledger(t)
		a := gangEngine(one, "")
		b := gangEngine(other, "")
		for i := range 4 {
			x, y := a.Pass(t.Context()), b.Pass(t.Context())
			require.Equal(t, fmt.Sprint(x.Notes, x.Committed), fmt.Sprint(y.Notes, y.Committed))
			for _, l := range []orbit.Ledger{one, other} {
				id := orbit.CapsuleID(fmt.Sprint("stir", i))
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(0, 0)}, orbit.Place{Capsule: id, Node: pickNode(t, l)}, orbit.Release{Capsule: id, Final: true})
			}
		}
		p, q := snapshot(t, one), snapshot(t, other)
		for c := range p.Capsules() {
			require.Equal(t, c.Node, q.Capsule(c.ID).Node)
			require.Equal(t, c.Devices, q.Capsule(c.ID).Devices)
		}
		require.Equal(t, nominees(t, one), nominees(t, other))
	})
}

// pickNode makes sure that there is a node that takes work.
func pickNode(t require.TestingT, l orbit.Ledger) orbit.NodeID {
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "stirred"}})
	return "stirred"
}

// It ends with its context: at once if that has ended already, and in the middle of a search.
func TestGangEndsWithItsContext(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	gangOf(t, l, "g", "", 2, 4)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	plan, err := (&nav.Gang{}).Plan(ended, viewOf(t, l), snapshot(t, l).Pending())
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, plan.Proposals)

	hard := &orbit.MemoryLedger{}
	for i := range 40 {
		commit(t, hard, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 100, orbit.Memory: 100, orbit.Disk: 100}}})
	}
	g := &orbit.Gang{ID: "hard"}
	for r := range 8 {
		role := orbit.Role{Name: fmt.Sprint(r), Spec: gangSpec(int64(23 + 3*r))}
		role.Spec.Envelope.Reservation[orbit.Memory] = int64(61 - 5*r)
		role.Spec.Envelope.Reservation[orbit.Disk] = int64(17 + r*r%29)
		for i := range 13 {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint(r, "-", i)))
		}
		g.Roles = append(g.Roles, role)
	}
	commit(t, hard, orbit.Submit{Gang: g})
	ctx := &endsAfter{Context: t.Context(), left: 20}
	plan, err = (&nav.Gang{Search: 1 << 40}).Plan(ctx, viewOf(t, hard), snapshot(t, hard).Pending())
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, plan.Proposals)
	for _, note := range plan.Notes {
		if note.Key == "search.steps" {
			require.Positive(t, note.Value.Int64(), "it ends while it searches")
		}
	}
}

// endsAfter is a context that has ended when it has been asked so often.
type endsAfter struct {
	context.Context
	left int
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A gang that found no room is not tried again until a node has gained room for one of its members; and it is
// tried then.
func TestGangRemembersThatItDidNotFit(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: spec(3, 0)}, orbit.Place{Capsule: "a", Node: "r-0"}, orbit.Place{Capsule: "b", Node: "r-1"})
	g := &orbit.Gang{ID: "g", Levels: []string{"rack"}}
	for r, cpu := range []int64{2, 3} {
		g.Roles = append(g.Roles, orbit.Role{Name: fmt.Sprint(r), Spec: gangSpec(cpu), Members: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("g", r))}})
	}
	commit(t, l, orbit.Submit{Gang: g})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	first := e.Pass(t.Context()).Unplaced
	require.Len(t, first, 2)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec(1, 0)}, orbit.Place{Capsule: "c", Node: "r-0"})
	again := e.Pass(t.Context()).Unplaced
	assert.Same(t, first[0].Why, again[0].Why, "it is not tried")
	commit(t, l, orbit.Release{Capsule: "a", Final: true})
	assert.NotSame(t, first[0].Why, e.Pass(t.Context()).Unplaced[0].Why, "it is tried, and still does not fit")
	commit(t, l, orbit.Release{Capsule: "b", Final: true})
	e.Pass(t.Context())
	assert.Equal(t, 2, placedOf(t, l, "g"))
}
