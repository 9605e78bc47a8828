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

// nominees returns for what room is nominated, and where.
func nominees(t require.TestingT, l orbit.Ledger) (out []string) {
	for n := range snapshot(t, l).Nominations() {
		for _, part := range n.Parts {
			out = append(out, string(n.Gang)+string(n.Capsule)+" on "+string(part.Node))
		}
	}
	return out
}

// gangEngine is an engine that nominates each gang for which it finds no room in two plans.
func gangEngine(l orbit.Ledger, name string) *orbit.Engine {
	return &orbit.Engine{Name: name, Ledger: l, Navigator: impatient(&nav.Gang{})}
}

// A rack of four nodes is full of small gangs of one member that takes a node. In every pass one of them ends and
// another comes. A gang of four is placed within 2 + 4 + 2 passes: it is nominated in the second, and one node is freed in each.
// Without a Patient it never is (I11).
func TestGangIsNotStarvedBySmallOnes(t *testing.T) {
	run := func(n orbit.Navigator) (passes int) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 4, 4)
		e := orbit.Engine{Ledger: l, Navigator: n}
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
		return passes
	}
	assert.LessOrEqual(t, run(impatient(&nav.Gang{})), 2+4+2)
	assert.Equal(t, 61, run(&nav.Gang{}))
}

// The same against another navigator that sees every second node that is freed first: no later, because what is nominated is
// kept from it too.
func TestGangIsNotStarvedByAnotherNavigator(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 4, 4)
	gangs := gangEngine(l, "a")
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
		order := []*orbit.Engine{gangs, &others}
		if passes%2 == 0 {
			order = []*orbit.Engine{&others, gangs}
		}
		for _, e := range order {
			require.Empty(t, e.Pass(t.Context()).Errors)
		}
		sound(t, l)
	}
	assert.LessOrEqual(t, passes, 2+4+2)
}

// SCENARIOS 17: two gangs of four, each of which could be nominated for half of a rack of four nodes. Once the rack is free,
// one of them is placed within 2 passes of each navigator, and when that has ended the other within 2 more; with one
// navigator and with two, for every order of nominating and of freeing nodes. No state on the way has part of a gang
// placed, and nothing is nominated at the end.
func TestGangsWithHalfEachAreResolved(t *testing.T) {
	for range 5 {
		rapid.Check(t, testGangsWithHalfEach)
	}
}

func testGangsWithHalfEach(t *rapid.T) {
	two := rapid.Bool().Draw(t, "two navigators")
	racks := rapid.IntRange(1, 2).Draw(t, "racks")
	after := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{-1, 1, time.Hour}), 2, 2).Draw(t, "after")
	share := rapid.SampledFrom([]int{10, 50, 100}).Draw(t, "share")
	steps := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 40).Draw(t, "steps")
	last := rapid.IntRange(0, 1).Draw(t, "last")

	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: share}}
	var loads []orbit.CapsuleID
	for r := range racks {
		rackOf(t, l, fmt.Sprint("r", r), 4, 4)
		for i := range 4 {
			id := orbit.CapsuleID(fmt.Sprint("load", r, i))
			loads = append(loads, id)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: batchSpec(4)},
				orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("r", r, "-", i))})
		}
	}
	engines := []*orbit.Engine{{Name: "a", Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: after[0]}}}
	owners := []string{"a", "a"}
	if two {
		engines = append(engines, &orbit.Engine{Name: "b", Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: after[1]}})
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
	require.Empty(t, nominees(t, l))
}

// Of two gangs that want the same nodes the one that was nominated first has them: the other one, whose navigator looks
// first, leaves them free, although each node comes free while only the other one looks.
func TestGangGivesWayToTheOneBeforeIt(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	rackOf(t, l, "r", 2, 4)
	for i := range 2 {
		put(t, l, fmt.Sprint("load", i), fmt.Sprint("r-", i), batchSpec(4))
	}
	rackOf(t, l, "s", 2, 1)
	gangOf(t, l, "first", "a", 2, 4)
	gangOf(t, l, "second", "b", 2, 4)
	a, b := gangEngine(l, "a"), gangEngine(l, "b")
	for range 2 {
		mustPass(t, a)
	}
	for range 2 {
		mustPass(t, b)
	}
	require.Contains(t, nominees(t, l), "first on r-0")
	for i := range 2 {
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("load", i)), Final: true})
		for range 2 {
			mustPass(t, b)
		}
		require.Zero(t, placedOf(t, l, "second"))
	}
	mustPass(t, a)
	require.Equal(t, 2, placedOf(t, l, "first"))
	require.NotContains(t, fmt.Sprint(nominees(t, l)), "first")
}

// Nominations end (SCENARIOS 25): a gang that waits for a node on which a service stays has the other one for For, and then
// the gang that waits behind it gets that node. It is nominated again after as much time, and then after twice as much. A
// gang that is withdrawn leaves no nomination behind.
func TestNominationsOfGangsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
		rackOf(t, l, "r", 2, 4)
		put(t, l, "stays", "r-0", spec(4, 0))
		p := &nav.Patient{Navigator: &nav.Gang{}, After: 1, For: time.Minute}
		e := &orbit.Engine{Ledger: l, Navigator: p}
		gangOf(t, l, "large", "", 2, 4)
		hogged := func() bool { return snapshot(t, l).Gang("large").Nomination.Lives() }
		live := func(limit time.Duration) (lived time.Duration) {
			for !hogged() {
				require.Less(t, lived, limit)
				time.Sleep(time.Second)
				lived += time.Second
				mustPass(t, e)
			}
			return lived
		}
		mustPass(t, e)
		live(2 * time.Second)
		small := gangSpec(4)
		small.Priority = -1
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "small", Roles: []orbit.Role{{Name: "w", Spec: small, Members: []orbit.CapsuleID{"small-0"}}}}})
		why := e.Pass(t.Context()).Unplaced
		require.Len(t, why, 3)
		assert.ErrorContains(t, why[0].Why, "room is nominated for it until")
		for range 58 {
			time.Sleep(time.Second)
			mustPass(t, e)
			require.True(t, hogged())
			require.Zero(t, placedOf(t, l, "small"))
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			mustPass(t, e)
		}
		require.False(t, hogged(), "nothing has ended there, so it is not renewed")
		require.Equal(t, 1, placedOf(t, l, "small"))

		endGang(t, l, "small")
		assert.InDelta(t, time.Minute, live(2*time.Minute), float64(3*time.Second))
		for hogged() {
			time.Sleep(time.Second)
			mustPass(t, e)
		}
		assert.InDelta(t, 2*time.Minute, live(3*time.Minute), float64(3*time.Second))
		endGang(t, l, "large")
		require.Empty(t, nominees(t, l))
	})
}

// A nomination that counts on services is renewed while less and less has to be freed.
func TestNominationIsRenewedWhileServicesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
		rackOf(t, l, "r", 3, 4)
		for i := range 3 {
			put(t, l, fmt.Sprint("service", i), fmt.Sprint("r-", i), spec(4, 0))
		}
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: 1, For: time.Minute}}
		gangOf(t, l, "large", "", 3, 4)
		for i := range 3 {
			for range 40 {
				time.Sleep(time.Second)
				mustPass(t, e)
			}
			require.True(t, snapshot(t, l).Gang("large").Nomination.Lives())
			commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("service", i)), Final: true})
		}
		mustPass(t, e)
		require.Equal(t, 3, placedOf(t, l, "large"))
	})
}

// A gang is nominated where it can come to fit, not in a domain that could never take it, though most is free there now; of
// two gangs the first.
func TestGangIsNominatedWhereItCanComeToFit(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for _, rack := range []string{"r", "s"} {
		rackOf(t, l, rack, 3, 4)
		for i := range 3 {
			put(t, l, fmt.Sprint("load-", rack, i), fmt.Sprint(rack, "-", i), batchSpec(4))
		}
	}
	rackOf(t, l, "small", 2, 4)
	gangOf(t, l, "first", "", 3, 4)
	gangOf(t, l, "second", "", 3, 4)
	commit(t, l, orbit.Release{Capsule: "load-s0", Final: true})
	e := gangEngine(l, "")
	for range 4 {
		mustPass(t, e)
		for _, at := range nominees(t, l) {
			require.Contains(t, []string{"first on s-0", "first on s-1", "first on s-2"}, at)
		}
	}
	require.Len(t, nominees(t, l), 3, "the share is too small for the second")
	for _, id := range []orbit.CapsuleID{"load-s1", "load-s2"} {
		require.Zero(t, placedOf(t, l, "first"))
		commit(t, l, orbit.Release{Capsule: id, Final: true})
		mustPass(t, e)
	}
	require.Equal(t, 3, placedOf(t, l, "first"))
}

// What is nominated for a gang that is withdrawn is free at once, and so it is for the gang behind it.
func TestGangWithdrawnIsNotNominated(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	put(t, l, "stays", "r-0", batchSpec(4))
	gangOf(t, l, "large", "", 2, 4)
	e := gangEngine(l, "")
	for range 2 {
		mustPass(t, e)
	}
	require.Len(t, nominees(t, l), 2)
	gangOf(t, l, "other", "", 1, 4)
	mustPass(t, e)
	require.Zero(t, placedOf(t, l, "other"))
	commit(t, l, orbit.Release{Capsule: "large-0", Final: true}, orbit.Release{Capsule: "large-1", Final: true})
	require.Empty(t, nominees(t, l))
	mustPass(t, e)
	require.Equal(t, 1, placedOf(t, l, "other"))
}

// While nothing moves, a gang is nominated once, and nothing is proposed after that.
func TestGangIsNominatedOnceWhereNothingMoves(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 2, 4)
	put(t, l, "stays", "r-0", batchSpec(4))
	e := gangEngine(l, "")
	gangOf(t, l, "large", "", 2, 4)
	proposed := 0
	for range 10 {
		proposed += e.Pass(t.Context()).Proposed
	}
	require.Equal(t, 1, proposed)
}

// A nomination whose end has come is its engine's to end; the gang is placed all the same, and nothing conflicts.
func TestGangWhoseNominationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		put(t, l, "stays", "r-0", spec(4, 0))
		e := gangEngine(l, "")
		gangOf(t, l, "large", "", 2, 4)
		mustPass(t, e)
		time.Sleep(time.Second)
		mustPass(t, e)
		require.Len(t, nominees(t, l), 2)
		time.Sleep(2 * time.Minute)
		commit(t, l, orbit.Release{Capsule: "stays", Final: true})
		require.Zero(t, mustPass(t, e).Conflicts)
		require.Zero(t, mustPass(t, e).Conflicts)
		require.Equal(t, 2, placedOf(t, l, "large"))
	})
}

// A navigator that starts anew finds what the one before it nominated, and places the gang there, with a Patient or without.
func TestNominationsOutliveTheirNavigator(t *testing.T) {
	for _, next := range []orbit.Navigator{&nav.Gang{}, &nav.Patient{Navigator: &nav.Gang{}}} {
		l := &orbit.MemoryLedger{}
		rackOf(t, l, "r", 2, 4)
		put(t, l, "stays", "r-0", batchSpec(4))
		e := gangEngine(l, "")
		gangOf(t, l, "large", "", 2, 4)
		for range 2 {
			mustPass(t, e)
		}
		require.Len(t, nominees(t, l), 2)
		commit(t, l, orbit.Release{Capsule: "stays", Final: true})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"thief"}, Spec: batchSpec(1)})
		mustPass(t, &orbit.Engine{Ledger: l, Navigator: &nav.Batch{}})
		require.True(t, snapshot(t, l).Capsule("thief").Pending())
		round := mustPass(t, &orbit.Engine{Ledger: l, Navigator: next})
		require.Zero(t, round.Conflicts)
		require.Equal(t, 2, placedOf(t, l, "large"))
	}
}

// Room that is nominated on what is lost meanwhile is no room (SCENARIOS 14): an instance that fails, and a node that
// drains. The nomination moves away from there, and the node can leave.
func TestGangNominatedOnWhatIsLost(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	set := func(id string, d orbit.Devices, off bool) {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Labels: map[string]string{"rack": "r"}, Devices: d, State: map[bool]orbit.Condition{true: orbit.Cordoned}[off]}})
	}
	for i := range 4 {
		set(fmt.Sprint("r-", i), orbit.Devices{Model: "a", Count: 1}, false)
	}
	one := gangSpec(0)
	one.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	load := batchSpec(0)
	load.Devices = one.Devices
	put(t, l, "load2", "r-2", load)
	put(t, l, "load3", "r-3", load)
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: one, Members: []orbit.CapsuleID{"0", "1", "2"}}}}})
	e := gangEngine(l, "")
	for range 2 {
		mustPass(t, e)
	}
	require.ElementsMatch(t, []string{"g on r-0", "g on r-1", "g on r-2"}, nominees(t, l))
	set("r-0", orbit.Devices{Model: "a", Count: 1, Unhealthy: 1}, false)
	for range 2 {
		mustPass(t, e)
	}
	require.ElementsMatch(t, []string{"g on r-1", "g on r-2", "g on r-3"}, nominees(t, l))
	set("r-0", orbit.Devices{Model: "a", Count: 1}, false)
	set("r-1", orbit.Devices{Model: "a", Count: 1}, true)
	for range 2 {
		mustPass(t, e)
	}
	require.NotContains(t, nominees(t, l), "g on r-1")
	commit(t, l, orbit.RemoveNode{Node: "r-1"})
	commit(t, l, orbit.Release{Capsule: "load2", Final: true})
	require.Zero(t, placedOf(t, l, "g"))
	commit(t, l, orbit.Release{Capsule: "load3", Final: true})
	mustPass(t, e)
	require.Equal(t, 3, placedOf(t, l, "g"))
	require.Empty(t, nominees(t, l))
}

// Devices that are nominated go to the gang that they are nominated for, and to no other work.
func TestGangIsNominatedForDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 2 {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("r-", i)), Labels: map[string]string{"rack": "r"},
			Capacity: orbit.Resources{orbit.CPU: 100}, Devices: orbit.Devices{Model: "a", Count: 2}}})
	}
	half := gangSpec(0)
	half.Devices = orbit.DeviceRequest{Count: 1, Milli: 500}
	whole := batchSpec(0)
	whole.Devices = orbit.DeviceRequest{Count: 2, Milli: 1000}
	put(t, l, "load0", "r-0", whole)
	put(t, l, "load1", "r-1", whole)
	g := &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "half", Spec: half}}}
	for i := range 8 {
		g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprint("g", i)))
	}
	commit(t, l, orbit.Submit{Gang: g})
	e := gangEngine(l, "")
	for range 2 {
		mustPass(t, e)
	}
	require.Len(t, nominees(t, l), 2)
	commit(t, l, orbit.Release{Capsule: "load0", Final: true})
	small := batchSpec(0)
	small.Devices = orbit.DeviceRequest{Count: 1, Milli: 10}
	require.Zero(t, snapshot(t, l).Node("r-0").DevicesFor(small), "each instance is nominated twice by half")
	commit(t, l, orbit.Release{Capsule: "load1", Final: true})
	mustPass(t, e)
	require.Equal(t, 8, placedOf(t, l, "g"))
	require.Empty(t, nominees(t, l))
	sound(t, l)
}

// Members of which a node takes only one, by a rule or for an extra, are nominated for nodes of their own, and placed
// there.
func TestGangOfRulesIsNominatedForEnoughNodes(t *testing.T) {
	for name, rule := range map[string]func(*orbit.Spec){
		"apart": func(s *orbit.Spec) { s.Group, s.Apart = "g", []orbit.Apart{{Group: "g", Level: orbit.NodeKey}} },
		"extra": func(s *orbit.Spec) { s.Extras = []orbit.Extra{{Name: "licence", Amount: 1}} },
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
			for i := range 3 {
				id := fmt.Sprint("n", i)
				commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: 8}, Extras: []orbit.Extra{{Name: "licence", Amount: 1}}}})
				put(t, l, "load-"+id, id, batchSpec(8))
			}
			s := gangSpec(2)
			rule(s)
			commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{"g-0", "g-1"}}}}})
			e := gangEngine(l, "")
			for range 3 {
				mustPass(t, e)
			}
			require.Len(t, nominees(t, l), 2)
			for i := range 3 {
				commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("load-n", i)), Final: true})
			}
			mustPass(t, e)
			require.Equal(t, 2, placedOf(t, l, "g"))
		})
	}
}

// A gang for which there is room and no quota says which queue lacks how much.
func TestGangSaysWhichQuotaItLacks(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 100), orbit.PutQueue{Queue: orbit.Queue{ID: "all", Nominal: map[string]int64{"cpu": 4}}}, orbit.PutQueue{Queue: orbit.Queue{ID: "ml", Parent: "all"}})
	s := spec(2, 0)
	s.Class, s.Queue = orbit.GangClass, "ml"
	members := []orbit.CapsuleID{"g-0", "g-1", "g-2"}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Members: members, Spec: s}}}})
	round := (&orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context())
	require.Empty(t, round.Errors)
	require.ErrorContains(t, round.Unplaced[0].Why, `anywhere fits 2 of 3; queue "ml" lacks 0.002 cores at queue "all"`)
	commit(t, l, orbit.PutQueue{Queue: orbit.Queue{ID: "all", Nominal: map[string]int64{"cpu": 6}}})
	(&orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context())
	require.Equal(t, 3, placedOf(t, l, "g"))
}
