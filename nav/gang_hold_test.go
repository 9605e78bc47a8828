package nav_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// gangSpec asks for cpu, for a gang.
func gangSpec(cpu int64) *orbit.Spec {
	return &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
}

// gangOf submits a gang of one role with n members, named after it, that wants a rack.
func gangOf(t require.TestingT, l orbit.Ledger, id, owner string, n int, cpu int64) {
	r := orbit.Role{Name: "worker", Spec: gangSpec(cpu)}
	for i := range n {
		r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint(id, "-", i)))
	}
	commit(t, l, orbit.Submit{Owner: owner, Gang: &orbit.Gang{ID: orbit.GangID(id), Levels: []string{"rack"}, Roles: []orbit.Role{r}}})
}

// rackOf lets nodes of one rack join.
func rackOf(t require.TestingT, l orbit.Ledger, rack string, nodes int, cpu int64) {
	for i := range nodes {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint(rack, "-", i)),
			Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: map[string]string{"rack": rack}}})
	}
}

// endGang releases all members of a gang that run.
func endGang(t require.TestingT, l orbit.Ledger, id string) {
	for _, r := range snapshot(t, l).Gang(orbit.GangID(id)).Gang.Roles {
		for _, m := range r.Members {
			commit(t, l, orbit.Release{Capsule: m, Final: true})
		}
	}
}

func placedOf(t require.TestingT, l orbit.Ledger, id string) int {
	if g := snapshot(t, l).Gang(orbit.GangID(id)); g != nil {
		return g.Total()
	}
	return 0
}

func countHolds(t require.TestingT, l orbit.Ledger) (n int) {
	for range snapshot(t, l).Holds() {
		n++
	}
	return n
}

// sound checks what must hold of every state.
func sound(t require.TestingT, l orbit.Ledger) {
	s := snapshot(t, l)
	require.NoError(t, s.Verify())
	for n := range s.Nodes() {
		require.True(t, n.Used().Within(n.Node.Capacity))
	}
}

// A rack of four nodes is full of small gangs of one member that takes a node. In every pass one of them ends and
// another comes. A gang of four is placed within HoldAfter + 4 + 2 passes, one for each node that is freed;
// without holds it never is (I11).
func TestGangIsNotStarvedBySmallOnes(t *testing.T) {
	run := func(after int) (passes int) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 4, 4)
		e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: after}}
		small := 0
		another := func() {
			gangOf(t, l, fmt.Sprint("small", small), "", 1, 4)
			small++
		}
		for range 4 {
			another()
		}
		require.Equal(t, 4, e.Pass(t.Context()).Committed)
		gangOf(t, l, "large", "", 4, 4)
		another()
		another()
		for passes = 1; passes <= 60; passes++ {
			for i := range small {
				if id := fmt.Sprint("small", i); placedOf(t, l, id) == 1 {
					endGang(t, l, id)
					break
				}
			}
			another()
			round := e.Pass(t.Context())
			require.Empty(t, round.Errors)
			require.Zero(t, round.Conflicts)
			sound(t, l)
			if placedOf(t, l, "large") == 4 {
				break
			}
		}
		require.Zero(t, countHolds(t, l), "it is placed, or never had any")
		return passes
	}
	assert.LessOrEqual(t, run(0), 5+4+2)
	assert.LessOrEqual(t, run(2), 2+4+2)
	assert.Equal(t, 61, run(-1))
}

// The same against another navigator that sees every second node that is freed first: twice as many passes.
func TestGangIsNotStarvedByAnotherNavigator(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 4)
	gangs := orbit.Engine{Name: "a", Ledger: l, Navigator: &nav.Gang{}}
	others := orbit.Engine{Name: "b", Ledger: l, Navigator: &nav.Services{}}
	small := 0
	for ; small < 40; small++ {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("s", small))}, Spec: spec(4, 0)})
	}
	others.Pass(t.Context())
	gangOf(t, l, "large", "", 4, 4)
	passes := 1
	for ; placedOf(t, l, "large") == 0 && passes < 60; passes++ {
		for i := range small {
			if c := snapshot(t, l).Capsule(orbit.CapsuleID(fmt.Sprint("s", i))); c.Placed() {
				commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
				break
			}
		}
		order := []*orbit.Engine{&gangs, &others}
		if passes%2 == 0 {
			order = []*orbit.Engine{&others, &gangs}
		}
		for _, e := range order {
			require.Empty(t, e.Pass(t.Context()).Errors)
		}
		sound(t, l)
	}
	assert.LessOrEqual(t, passes, 5+2*4+2)
}

// SCENARIOS 17: two gangs of four, each of which could hold half of a rack of four nodes. Once the rack is free, one of
// them is placed within 2 passes of each navigator, and when that has ended the other within 2 more; with one navigator
// and with two, for every order of holding and of freeing nodes. No state on the way has part of a gang placed, and no
// hold is left at the end.
func TestGangsWithHalfEachAreResolved(t *testing.T) {
	for range 5 {
		rapid.Check(t, testGangsWithHalfEach)
	}
}

func testGangsWithHalfEach(t *rapid.T) {
	two := rapid.Bool().Draw(t, "two navigators")
	racks := rapid.IntRange(1, 2).Draw(t, "racks")
	after := rapid.SliceOfN(rapid.IntRange(1, 4), 2, 2).Draw(t, "after")
	steps := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 40).Draw(t, "steps")
	last := rapid.IntRange(0, 1).Draw(t, "last")

	l := &orbit.MemoryLedger{}
	var loads []orbit.CapsuleID
	for r := range racks {
		rackOf(t, l, fmt.Sprint("r", r), 4, 4)
		for i := range 4 {
			id := orbit.CapsuleID(fmt.Sprint("load", r, i))
			loads = append(loads, id)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(4, 0)},
				orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("r", r, "-", i))})
		}
	}
	engines := []*orbit.Engine{{Name: "a", Ledger: l, Navigator: &nav.Gang{HoldAfter: after[0]}}}
	owners := []string{"a", "a"}
	if two {
		engines = append(engines, &orbit.Engine{Name: "b", Ledger: l, Navigator: &nav.Gang{HoldAfter: after[1]}})
		owners[1] = "b"
	}
	gangOf(t, l, "g0", owners[0], 4, 4)
	gangOf(t, l, "g1", owners[1], 4, 4)
	pass := func(e *orbit.Engine) {
		round := e.Pass(t.Context())
		require.Empty(t, round.Errors)
		sound(t, l)
	}
	placed := func() (out []string) {
		for _, id := range []string{"g0", "g1"} {
			if placedOf(t, l, id) == 4 {
				out = append(out, id)
			}
		}
		return out
	}
	free := func(i int) {
		commit(t, l, orbit.Release{Capsule: loads[i], Final: true})
		loads = append(loads[:i], loads[i+1:]...)
	}
	for k, step := range steps {
		switch {
		case step < 4:
			pass(engines[step%len(engines)])
		case len(loads) > 0:
			free(k % len(loads))
		}
	}
	for len(loads) > 0 {
		free(0)
	}
	both := func() {
		for range 2 {
			pass(engines[last%len(engines)])
			pass(engines[(last+1)%len(engines)])
		}
	}
	both()
	first := placed()
	require.NotEmpty(t, first, "neither is placed on a free rack")
	if racks == 2 {
		require.Len(t, first, 2)
	}
	if len(first) == 1 {
		endGang(t, l, first[0])
		both()
		require.NotEqual(t, first, placed())
		require.Len(t, placed(), 1)
	}
	require.Zero(t, countHolds(t, l))
}

// Two gangs that hold half of a rack each, by the book: the later one holds the first node, the earlier one, which
// has more patience, the second. The later one gives way in its next pass, and the earlier one has both.
func TestGangGivesWayToTheOneBeforeIt(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	for i := range 2 {
		id := orbit.CapsuleID(fmt.Sprint("load", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(4, 0)}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("r-", i))})
	}
	gangOf(t, l, "first", "a", 2, 4)
	gangOf(t, l, "second", "b", 2, 4)
	a := orbit.Engine{Name: "a", Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	b := orbit.Engine{Name: "b", Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	a.Pass(t.Context())
	b.Pass(t.Context())
	holders := func() (out []string) {
		for h := range snapshot(t, l).Holds() {
			out = append(out, h.For+" on "+string(h.Node))
		}
		return out
	}
	commit(t, l, orbit.Release{Capsule: "load0", Final: true})
	b.Pass(t.Context())
	require.Equal(t, []string{"second on r-0"}, holders())
	commit(t, l, orbit.Release{Capsule: "load1", Final: true})
	a.Pass(t.Context())
	require.ElementsMatch(t, []string{"second on r-0", "first on r-1"}, holders())
	b.Pass(t.Context())
	require.Equal(t, []string{"first on r-1"}, holders())
	a.Pass(t.Context())
	require.Equal(t, 2, placedOf(t, l, "first"))
	require.Empty(t, holders())
}

// Holds end (SCENARIOS 25): a gang that waits for a node which never comes free holds the other one for HoldFor, and
// then the gang that waits behind it gets that node. A gang that is withdrawn leaves no hold behind for longer than
// that.
func TestGangHoldsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"stays", "goes"}, Spec: spec(4, 0)},
			orbit.Place{Capsule: "stays", Node: "r-0"}, orbit.Place{Capsule: "goes", Node: "r-1"})
		e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1, HoldFor: time.Minute}}
		gangOf(t, l, "large", "", 2, 4)
		e.Pass(t.Context())
		commit(t, l, orbit.Release{Capsule: "goes", Final: true})
		round := e.Pass(t.Context())
		require.Equal(t, 1, round.Committed)
		require.Equal(t, 1, countHolds(t, l))
		for h := range snapshot(t, l).Holds() {
			assert.Equal(t, "large", h.For)
			assert.Equal(t, time.Minute, time.Until(h.Ends))
			assert.Equal(t, orbit.Resources{orbit.CPU: 4}, h.Room)
		}
		gangOf(t, l, "small", "", 1, 4)
		why := e.Pass(t.Context()).Unplaced
		require.Len(t, why, 3)
		assert.ErrorContains(t, why[0].Why, "room for 1 is held until")
		time.Sleep(59 * time.Second)
		e.Pass(t.Context())
		require.Equal(t, 1, countHolds(t, l), "it does not grow, so its end does not move")
		time.Sleep(time.Second)
		for range 2 {
			e.Pass(t.Context())
		}
		require.Zero(t, countHolds(t, l))
		require.Equal(t, 1, placedOf(t, l, "small"))

		// It has held in vain once, and waits for two plans with something going on until it may again.
		endGang(t, l, "small")
		require.Zero(t, countHolds(t, l))
		for i := 0; i < 3 && countHolds(t, l) == 0; i++ {
			id := orbit.CapsuleID(fmt.Sprint("stir", i))
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(1, 0)}, orbit.Place{Capsule: id, Node: "r-1"})
			commit(t, l, orbit.Release{Capsule: id, Final: true})
			e.Pass(t.Context())
		}
		require.Equal(t, 1, countHolds(t, l))
		endGang(t, l, "large")
		time.Sleep(time.Minute)
		e.Pass(t.Context())
		require.Zero(t, countHolds(t, l))
	})
}

// One gang of a navigator holds at a time, the first; not in a domain that could never take it, though most is free
// there now.
func TestGangHoldsForOneWhereItCanComeToFit(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for _, rack := range []string{"r", "s"} {
		rackOf(t, l, rack, 3, 4)
		for i := range 3 {
			id := orbit.CapsuleID(fmt.Sprint("load-", rack, i))
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(4, 0)}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint(rack, "-", i))})
		}
	}
	rackOf(t, l, "small", 2, 4)
	gangOf(t, l, "first", "", 3, 4)
	gangOf(t, l, "second", "", 3, 4)
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	stir := func(i int) {
		id := orbit.CapsuleID(fmt.Sprint("stir", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(0, 0)}, orbit.Place{Capsule: id, Node: "r-1"}, orbit.Release{Capsule: id, Final: true})
		require.Empty(t, e.Pass(t.Context()).Errors)
	}
	for i := range 3 {
		stir(i)
		require.Zero(t, countHolds(t, l), "what is free on the small rack is of no use")
	}
	commit(t, l, orbit.Release{Capsule: "load-r0", Final: true}, orbit.Release{Capsule: "load-s0", Final: true})
	for i := range 3 {
		stir(3 + i)
		require.Equal(t, 1, countHolds(t, l))
		for h := range snapshot(t, l).Holds() {
			require.Equal(t, "first on r-0", h.For+" on "+string(h.Node))
		}
	}
}

// A later gang does not begin to hold where one before it does.
func TestGangHoldsNothingInTheWay(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 3, 4)
	for i := range 3 {
		id := orbit.CapsuleID(fmt.Sprint("load", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(4, 0)}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("r-", i))})
	}
	gangOf(t, l, "first", "a", 3, 4)
	gangOf(t, l, "second", "b", 3, 4)
	a := orbit.Engine{Name: "a", Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	b := orbit.Engine{Name: "b", Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	a.Pass(t.Context())
	b.Pass(t.Context())
	commit(t, l, orbit.Release{Capsule: "load0", Final: true})
	a.Pass(t.Context())
	commit(t, l, orbit.Release{Capsule: "load1", Final: true})
	for range 3 {
		require.Zero(t, b.Pass(t.Context()).Proposed)
	}
	for h := range snapshot(t, l).Holds() {
		require.Equal(t, "first", h.For)
	}
	require.Equal(t, 1, countHolds(t, l))
}

// What is held for a gang that is withdrawn is released in the next pass in which there is anything to plan.
func TestGangWithdrawnHoldsNothing(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"stays", "goes"}, Spec: spec(4, 0)},
		orbit.Place{Capsule: "stays", Node: "r-0"}, orbit.Place{Capsule: "goes", Node: "r-1"})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	gangOf(t, l, "large", "", 2, 4)
	e.Pass(t.Context())
	commit(t, l, orbit.Release{Capsule: "goes", Final: true})
	e.Pass(t.Context())
	require.Equal(t, 1, countHolds(t, l))
	endGang(t, l, "large")
	gangOf(t, l, "other", "", 2, 4) // too new to have anything held for it
	e.Pass(t.Context())
	require.Zero(t, countHolds(t, l))
}

// A gang makes no holds while no capsule is placed or ends: no other work takes the capacity that it waits for.
func TestGangHoldsNothingWhereNothingMoves(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"stays"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "stays", Node: "r-0"})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	gangOf(t, l, "large", "", 2, 4)
	for range 10 {
		require.Zero(t, e.Pass(t.Context()).Proposed)
	}
}

// A hold whose end has come is its engine's to release, not the gang's to convert: nothing conflicts.
func TestGangLeavesEndedHoldsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"stays", "goes"}, Spec: spec(4, 0)},
			orbit.Place{Capsule: "stays", Node: "r-0"}, orbit.Place{Capsule: "goes", Node: "r-1"})
		e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
		gangOf(t, l, "large", "", 2, 4)
		e.Pass(t.Context())
		commit(t, l, orbit.Release{Capsule: "goes", Final: true})
		e.Pass(t.Context())
		require.Equal(t, 1, countHolds(t, l))
		time.Sleep(30 * time.Second)
		commit(t, l, orbit.Release{Capsule: "stays", Final: true})
		require.Zero(t, e.Pass(t.Context()).Conflicts)
		require.Zero(t, e.Pass(t.Context()).Conflicts)
		require.Equal(t, 2, placedOf(t, l, "large"))
	})
}

// A navigator that starts anew finds what the one before it held, and places the gang there.
func TestGangHoldsOutliveTheirNavigator(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"stays", "goes"}, Spec: spec(4, 0)},
		orbit.Place{Capsule: "stays", Node: "r-0"}, orbit.Place{Capsule: "goes", Node: "r-1"})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	gangOf(t, l, "large", "", 2, 4)
	e.Pass(t.Context())
	commit(t, l, orbit.Release{Capsule: "goes", Final: true})
	e.Pass(t.Context())
	require.Equal(t, 1, countHolds(t, l))
	commit(t, l, orbit.Release{Capsule: "stays", Final: true})
	e = orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: -1}}
	round := e.Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Zero(t, round.Conflicts)
	require.Equal(t, 2, placedOf(t, l, "large"))
	require.Zero(t, countHolds(t, l))
}

// Room that is held on what is lost meanwhile is no room (SCENARIOS 14): an instance that fails, and a node that drains.
// The hold moves away from there without gaining time, and the node can leave.
func TestGangHoldsOnWhatIsLost(t *testing.T) {
	l := &orbit.MemoryLedger{}
	put := func(id string, d orbit.Devices, off bool) {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Labels: map[string]string{"rack": "r"}, Devices: d, State: map[bool]orbit.Condition{true: orbit.Cordoned}[off]}})
	}
	for i := range 3 {
		put(fmt.Sprint("r-", i), orbit.Devices{Model: "a", Count: 1}, false)
	}
	one := gangSpec(0)
	one.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	load := spec(0, 0)
	load.Devices = one.Devices
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: load}, orbit.Place{Capsule: "load", Node: "r-2", Devices: 1})
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: one, Members: []orbit.CapsuleID{"0", "1", "2"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	e.Pass(t.Context())
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"stir"}, Spec: spec(0, 0)}, orbit.Place{Capsule: "stir", Node: "r-0"})
	e.Pass(t.Context())
	require.Equal(t, 2, countHolds(t, l))
	put("r-0", orbit.Devices{Model: "a", Count: 1, Unhealthy: 1}, false)
	commit(t, l, orbit.Release{Capsule: "load", Final: true})
	for range 3 {
		round := e.Pass(t.Context())
		require.Empty(t, round.Errors)
		require.Zero(t, round.Conflicts)
		require.Zero(t, placedOf(t, l, "g"))
	}
	put("r-0", orbit.Devices{Model: "a", Count: 1}, false)
	require.Empty(t, e.Pass(t.Context()).Errors)
	require.Equal(t, 3, placedOf(t, l, "g"))
	require.Zero(t, countHolds(t, l))
}

// A node with a hold that drains is left alone by the hold in the next pass.
func TestGangHoldsLeaveDrainedNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 4)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "a", Node: "r-2"}, orbit.Place{Capsule: "b", Node: "r-3"})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	gangOf(t, l, "g", "", 3, 4)
	e.Pass(t.Context())
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"stir"}, Spec: spec(0, 0)}, orbit.Place{Capsule: "stir", Node: "r-0"}, orbit.Release{Capsule: "stir", Final: true})
	e.Pass(t.Context())
	require.Equal(t, 2, countHolds(t, l))
	drained := *snapshot(t, l).Node("r-0").Node
	drained.State = orbit.Cordoned
	commit(t, l, orbit.PutNode{Node: drained})
	require.Empty(t, e.Pass(t.Context()).Errors)
	require.Equal(t, 1, countHolds(t, l))
	commit(t, l, orbit.RemoveNode{Node: "r-0"})
}

// Held devices go to the gang that they are held for, and to no other work.
func TestGangHoldsDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 2 {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("r-", i)), Labels: map[string]string{"rack": "r"},
			Capacity: orbit.Resources{orbit.CPU: 100}, Devices: orbit.Devices{Model: "a", Count: 2}}})
	}
	half := gangSpec(0)
	half.Devices = orbit.DeviceRequest{Count: 1, Milli: 500}
	whole := spec(0, 0)
	whole.Devices = orbit.DeviceRequest{Count: 2, Milli: 1000}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load0", "load1"}, Spec: whole},
		orbit.Place{Capsule: "load0", Node: "r-0", Devices: 3}, orbit.Place{Capsule: "load1", Node: "r-1", Devices: 3})
	g := &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "half", Spec: half}}}
	for i := range 8 {
		g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprint("g", i)))
	}
	commit(t, l, orbit.Submit{Gang: g})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{HoldAfter: 1}}
	e.Pass(t.Context())
	commit(t, l, orbit.Release{Capsule: "load0", Final: true})
	e.Pass(t.Context())
	require.Equal(t, 2, countHolds(t, l), "each instance is held twice by half")
	for i := range 2 {
		require.Zero(t, snapshot(t, l).Node("r-0").DeviceFree(i))
	}
	commit(t, l, orbit.Release{Capsule: "load1", Final: true})
	round := e.Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Equal(t, 8, placedOf(t, l, "g"))
	require.Zero(t, countHolds(t, l))
	sound(t, l)
}
