package nav_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
)

// impatient is a Patient that nominates in the first plan.
func impatient(n orbit.Navigator) *nav.Patient { return &nav.Patient{Navigator: n, After: 1} }

// put places a new capsule.
func put(t require.TestingT, l orbit.Ledger, id, on string, s *orbit.Spec) {
	n := snapshot(t, l).Node(orbit.NodeID(on))
	set, ok := n.PickDevices(s)
	require.True(t, ok)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: s},
		orbit.Place{Capsule: orbit.CapsuleID(id), Node: n.Node.ID, Devices: set})
}

// batchSpec is a task of one core.
func batchSpec(cpu int64) *orbit.Spec {
	s := spec(cpu, 0)
	s.Class = orbit.Batch
	return s
}

// nominatedFor passes until a capsule is nominated, and returns on which nodes.
func nominatedFor(t require.TestingT, l orbit.Ledger, e *orbit.Engine, id string) (on []orbit.NodeID) {
	for range 3 {
		require.Empty(t, e.Pass(context.Background()).Errors)
		if n := snapshot(t, l).Capsule(orbit.CapsuleID(id)).Nomination(); n.Lives() {
			for _, part := range n.Parts {
				on = append(on, part.Node)
			}
			return on
		}
	}
	return nil
}

// engineOf runs passes that plan again what was left out a moment ago.
func engineOf(l orbit.Ledger, n orbit.Navigator) *orbit.Engine {
	return &orbit.Engine{Name: "large", Ledger: l, Navigator: n, ParkFor: time.Nanosecond}
}

// An importer's own navigator is served as those of this package are: here one that places on the first node that fits.
func TestPatientHelpsAnyNavigator(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 4), node("b", 4))
	for i := range 8 {
		put(t, l, fmt.Sprint("t", i), string("ab"[i/4]), batchSpec(1))
	}
	e := engineOf(l, impatient(nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
		for _, c := range pending {
			for n := range view.State().Nodes() {
				if n.Fits(c.Spec) {
					plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: n.Node.ID}}})
					break
				}
			}
		}
		return plan, nil
	})))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(3, 5), Owner: "large"})
	require.Equal(t, []orbit.NodeID{"a"}, nominatedFor(t, l, e, "large"))
	rival := &orbit.Engine{Name: "small", Ledger: l, Navigator: &nav.Batch{}}
	for i := range 3 {
		require.True(t, snapshot(t, l).Capsule("large").Pending())
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("t", i)), Final: true})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("new", i))}, Spec: batchSpec(1), Owner: "small"})
		rival.Pass(t.Context())
	}
	r := e.Pass(t.Context())
	assert.Equal(t, orbit.NodeID("a"), snapshot(t, l).Capsule("large").Node)
	assert.Empty(t, r.Unplaced)
	assert.False(t, snapshot(t, l).Capsule("large").Nomination().Lives())
}

// Services do not end by themselves: the node with fewer to end is not chosen if a service has to leave it, unless there
// is no other.
func TestPatientDoesNotWaitForServices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 4), node("b", 4))
	put(t, l, "service", "a", spec(1, 0))
	for i := range 4 {
		put(t, l, fmt.Sprint("t", i), "b", batchSpec(1))
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
	require.Equal(t, []orbit.NodeID{"b"}, nominatedFor(t, l, engineOf(l, impatient(&nav.Services{})), "large"))

	l = &orbit.MemoryLedger{}
	commit(t, l, node("a", 4))
	put(t, l, "service", "a", spec(1, 0))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
	require.Equal(t, []orbit.NodeID{"a"}, nominatedFor(t, l, engineOf(l, impatient(&nav.Services{})), "large"))
}

// A member that a running gang lacks waits for room as a capsule does: in the domain of the others, though less would have to be
// freed elsewhere.
func TestPatientCompletesRunningGangs(t *testing.T) {
	l := &orbit.MemoryLedger{}
	rackOf(t, l, "r", 3, 2)
	rackOf(t, l, "other", 1, 2)
	gangOf(t, l, "g", "large", 3, 2)
	e := engineOf(l, impatient(&nav.Gang{}))
	require.Empty(t, e.Pass(t.Context()).Errors)
	lost := snapshot(t, l).Capsule("g-0")
	require.True(t, lost.Placed())
	commit(t, l, orbit.Release{Capsule: lost.ID, Stopped: true})
	put(t, l, "t0", string(lost.Node), batchSpec(1))
	put(t, l, "t1", string(lost.Node), batchSpec(1))
	put(t, l, "elsewhere", "other-0", batchSpec(1))
	require.Equal(t, []orbit.NodeID{lost.Node}, nominatedFor(t, l, e, "g-0"))
	rival := &orbit.Engine{Name: "small", Ledger: l, Navigator: &nav.Batch{}}
	for i := range 2 {
		require.True(t, snapshot(t, l).Capsule("g-0").Pending())
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("t", i)), Final: true})
		for k := range 3 { // one fits elsewhere
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("new", i, k))}, Spec: batchSpec(1), Owner: "small"})
		}
		rival.Pass(t.Context())
	}
	require.Empty(t, e.Pass(t.Context()).Errors)
	assert.Equal(t, lost.Node, snapshot(t, l).Capsule("g-0").Node)
	assert.Empty(t, nominees(t, l))
}

// A nomination on a node that is cordoned is ended, and made anew elsewhere.
func TestPatientLeavesBrokenNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 4), node("b", 4))
	put(t, l, "t0", "a", batchSpec(1))
	put(t, l, "t1", "b", batchSpec(4))
	e := engineOf(l, impatient(&nav.Services{}))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
	require.Equal(t, []orbit.NodeID{"a"}, nominatedFor(t, l, e, "large"))
	cordoned := node("a", 4)
	cordoned.Node.State = orbit.Cordoned
	commit(t, l, cordoned)
	e.Pass(t.Context()) // ends it
	require.Equal(t, []orbit.NodeID{"b"}, nominatedFor(t, l, e, "large"))
	commit(t, l, orbit.Release{Capsule: "t1", Final: true})
	e.Pass(t.Context())
	assert.Equal(t, orbit.NodeID("b"), snapshot(t, l).Capsule("large").Node)
}

// A nomination is renewed before it ends, and moves to where fewer have to end by then.
func TestPatientRenewsAndMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 4), node("b", 4))
		put(t, l, "t0", "a", batchSpec(2))
		put(t, l, "t1", "b", batchSpec(2))
		put(t, l, "t2", "b", batchSpec(1))
		p := impatient(&nav.Services{})
		p.For = 100 * time.Millisecond
		e := engineOf(l, p)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
		e.Pass(t.Context())
		time.Sleep(time.Millisecond) // in a bubble a pass takes no time, and large has to wait some
		require.Equal(t, []orbit.NodeID{"a"}, nominatedFor(t, l, e, "large"))
		first := snapshot(t, l).Capsule("large").Nomination()
		e.Pass(t.Context())
		assert.Equal(t, first.Made, snapshot(t, l).Capsule("large").Nomination().Made, "not before half of its time")
		time.Sleep(60 * time.Millisecond)
		e.Pass(t.Context())
		second := snapshot(t, l).Capsule("large").Nomination()
		require.True(t, second.Lives())
		assert.Greater(t, second.Made, first.Made)
		assert.Equal(t, first.First, second.First)
		assert.Equal(t, orbit.NodeID("a"), second.Parts[0].Node)
		commit(t, l, orbit.Release{Capsule: "t1", Final: true}) // of b less has to be freed now
		time.Sleep(60 * time.Millisecond)
		e.Pass(t.Context())
		third := snapshot(t, l).Capsule("large").Nomination()
		require.True(t, third.Lives())
		assert.Equal(t, orbit.NodeID("b"), third.Parts[0].Node)
	})
}

// A capsule whose proposals are lost again and again is kept from its navigator for one plan, and nominated.
func TestPatientCountsLostProposals(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 4))
	services, thieves := &nav.Services{}, 0
	thief := func() orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprint("thief", thieves)) }
	e := engineOf(l, &nav.Patient{Conflicts: 3, After: time.Hour, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		thieves++ // one comes between the view and the proposal
		_, _ = l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{thief()}, Spec: batchSpec(1), Owner: "small"}, orbit.Place{Capsule: thief(), Node: "a"},
		}})
		return services.Plan(ctx, view, pending)
	})})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
	lost := 0
	for range 20 {
		lost += e.Pass(t.Context()).Conflicts
		if c := snapshot(t, l).Capsule(thief()); c != nil && c.Placed() {
			commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
		}
	}
	assert.True(t, snapshot(t, l).Capsule("large").Placed())
	assert.Equal(t, 3, lost)
}

// While the plan places what is nominated, that can neither be ended nor counted on to end. Work of higher rank is nominated all
// the same, or it would come back from being parked in such a pass again, and so for ever.
func TestPatientNominatesAfterThoseItServes(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	commit(t, l, node("a", 2))
	put(t, l, "t0", "a", batchSpec(1))
	put(t, l, "t1", "a", batchSpec(1))
	const after = 20 * time.Millisecond
	e := engineOf(l, &nav.Patient{Navigator: &nav.Batch{}, After: after})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"small"}, Spec: batchSpec(1), Owner: "large"})
	e.Pass(t.Context())
	time.Sleep(after)
	require.Equal(t, []orbit.NodeID{"a"}, nominatedFor(t, l, e, "small"))
	large := batchSpec(2)
	large.Priority = 5
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: large, Owner: "large"})
	e.Pass(t.Context()) // is the first that leaves it out
	time.Sleep(after)
	commit(t, l, orbit.Release{Capsule: "t0", Final: true})
	e.Pass(t.Context())
	require.True(t, snapshot(t, l).Capsule("small").Placed())
	assert.True(t, snapshot(t, l).Capsule("large").Nomination().Lives())
}

// A gang whose nominated room is free is not kept from it by proposals for more, of which others are always faster: after one
// that was lost it is placed in that room, with its minimum.
func TestPatientKeepsToNominatedRoomAfterALoss(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	commit(t, l, node("a", 2), node("b", 2))
	put(t, l, "t0", "a", batchSpec(2))
	put(t, l, "t1", "b", batchSpec(2))
	commit(t, l, orbit.Submit{Owner: "g", Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{
		{Name: "worker", Spec: gangSpec(2), Members: []orbit.CapsuleID{"g-0", "g-1"}, Min: 1}}}})
	e := engineOf(l, impatient(&nav.Gang{}))
	e.Name = "g"
	for range 3 { // the first leaves it out
		e.Pass(t.Context())
	}
	n := snapshot(t, l).Gang("g").Nomination
	require.True(t, n.Lives())
	mine, other := orbit.CapsuleID("t0"), orbit.NodeID("b")
	if n.Parts[0].Node == "b" {
		mine, other = "t1", "a"
	}
	commit(t, l, orbit.Release{Capsule: mine, Final: true})
	inner, thieves := e.Navigator, 0
	thief := func() orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprint("thief", thieves)) }
	for c := range snapshot(t, l).On(other) {
		commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
	}
	e.Navigator = between{inner, func() {
		thieves++
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{thief()}, Spec: batchSpec(2), Owner: "small"}, orbit.Place{Capsule: thief(), Node: other})
	}}
	for passes := 1; snapshot(t, l).Gang("g").Total() == 0; passes++ {
		require.LessOrEqual(t, passes, 2, "it waits beside its own room")
		e.Pass(t.Context())
		commit(t, l, orbit.Release{Capsule: thief(), Final: true})
	}
}

// Two gangs that each could have half of the nodes do not wait for each other.
func TestTwoPatientGangs(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 4 {
		commit(t, l, node(fmt.Sprint("n", i), 2))
		put(t, l, fmt.Sprint("t", i), fmt.Sprint("n", i), batchSpec(2))
	}
	var engines []*orbit.Engine
	for _, id := range []string{"g", "h"} {
		r := orbit.Role{Name: "worker", Spec: gangSpec(2)}
		for i := range 3 {
			r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint(id, "-", i)))
		}
		commit(t, l, orbit.Submit{Owner: id, Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{r}}})
		e := engineOf(l, impatient(&nav.Gang{}))
		e.Name = id
		engines = append(engines, e)
	}
	for i := range 4 {
		for range 3 {
			for _, e := range engines {
				require.Empty(t, e.Pass(t.Context()).Errors)
			}
		}
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("t", i)), Final: true})
	}
	for range 3 {
		for _, e := range engines {
			require.Empty(t, e.Pass(t.Context()).Errors)
		}
	}
	assert.Equal(t, 3, placedOf(t, l, "g")+placedOf(t, l, "h"), "one of them runs")
	sound(t, l)
}

// Where a capsule is nominated is compared with a look at every node: on no other one that its work can leave by itself would
// fewer capsules have to end, or as many that hold less.
func TestPatientChoosesTheSoonest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
		nodes := rapid.IntRange(1, 5).Draw(t, "nodes")
		for i := range nodes {
			n := node(fmt.Sprint("n", i), rapid.Int64Range(1, 6).Draw(t, "cpu"))
			n.Node.Devices = orbit.Devices{Model: "g", Count: rapid.IntRange(0, 2).Draw(t, "devices")}
			commit(t, l, n)
		}
		draw := func(class orbit.AppClass) *orbit.Spec {
			s := spec(rapid.Int64Range(1, 5).Draw(t, "ask"), 0)
			s.Class = class
			if rapid.Bool().Draw(t, "device") {
				s.Devices = orbit.DeviceRequest{Count: rapid.IntRange(1, 2).Draw(t, "count"), Milli: 500}
			}
			return s
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "load") {
			s := draw(rapid.SampledFrom([]orbit.AppClass{orbit.Batch, orbit.LatencySensitive}).Draw(t, "class"))
			on := snapshot(t, l).Node(orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "on"))))
			if on.Fits(s) {
				put(t, l, fmt.Sprint("load", i), string(on.Node.ID), s)
			}
		}
		large := draw(orbit.LatencySensitive)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: large, Owner: "large"})
		on := nominatedFor(t, l, engineOf(l, impatient(&nav.Services{})), "large")
		s := snapshot(t, l)
		if s.Capsule("large").Placed() {
			return
		}
		var best orbit.NodeID
		for _, stays := range []bool{true, false} {
			least := -1.0
			for n := range s.Nodes() {
				if short, can := shortage(s, n, large, stays); can && (least < 0 || short < least-1e-12) {
					best, least = n.Node.ID, short
				}
			}
			if best != "" {
				break
			}
		}
		if best == "" {
			assert.Empty(t, on)
		} else {
			assert.Equal(t, []orbit.NodeID{best}, on)
		}
	})
}

// shortage is what speaks against a node for a capsule of one kind of device and cpu: how many of its capsules have to end, were
// they all alike, and a millionth of what is missing. It also reports whether the capsule could come to fit; stays: what is no
// batch work does not leave.
func shortage(s *orbit.State, n *orbit.NodeState, spec *orbit.Spec, stays bool) (rating float64, can bool) {
	cpu := n.Node.Capacity[orbit.CPU]
	var kept [2]int
	for c := range s.On(n.Node.ID) {
		if stays && c.Spec.Class != orbit.Batch {
			cpu -= c.Spec.Envelope.Reservation[orbit.CPU]
			for i := range kept {
				if c.Devices.Has(i) {
					kept[i] += c.Spec.Devices.Milli
				}
			}
		}
	}
	var devices []float64
	usedDevices := 0.0
	for i := range n.Node.Devices.Count {
		usedDevices += float64(1000 - n.DeviceFree(i))
		if 1000-kept[i] >= spec.Devices.Milli {
			devices = append(devices, float64(max(0, spec.Devices.Milli-n.DeviceFree(i))))
		}
	}
	want := spec.Envelope.Reservation[orbit.CPU]
	if want > cpu || spec.Devices.Count > len(devices) {
		return 0, false
	}
	slices.Sort(devices)
	shortDevices := 0.0
	for _, short := range devices[:spec.Devices.Count] {
		shortDevices += short
	}
	used, short := float64(n.Used()[orbit.CPU]), float64(max(0, want-n.Free()[orbit.CPU]))
	ends := 0.0
	if short > 0 {
		ends = float64(n.Capsules) * short / used
	}
	if shortDevices > 0 {
		ends = max(ends, float64(n.Capsules)*shortDevices/usedDevices)
	}
	return ends + (short/float64(n.Node.Capacity[orbit.CPU])+shortDevices/1000)/(1<<20), true
}

// Room that one capsule holds becomes free at once, and more of it than what many hold is free when the first of these has ended.
func TestPatientFreesWhatFewHold(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	commit(t, l, node("many", 9), node("one", 8))
	for i := range 8 {
		put(t, l, fmt.Sprint("task", i), "many", batchSpec(1))
	}
	put(t, l, "whole", "one", batchSpec(8))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(8, 0), Owner: "large"})
	require.Equal(t, []orbit.NodeID{"one"}, nominatedFor(t, l, engineOf(l, impatient(&nav.Services{})), "large"))
}

// A plan that leaves nothing out for long looks at no node. The first nomination of a spec looks at each node twice, a later
// one at what has changed, and a plan in which it stands at none.
func TestPatientCost(t *testing.T) {
	looks := func(t *testing.T, nodes int) (waiting, first, standing, later int) {
		l := &orbit.MemoryLedger{}
		for i := range nodes {
			commit(t, l, node(fmt.Sprintf("n%04d", i), 4))
			put(t, l, fmt.Sprint("t", i), fmt.Sprintf("n%04d", i), batchSpec(1))
		}
		p := &nav.Patient{Navigator: &nav.Services{}, After: 50 * time.Millisecond}
		e := engineOf(l, p)
		pass := func() (looked int) {
			for _, note := range mustPass(t, e).Notes {
				if note.Key == "nodesLooked" {
					looked = int(note.Value.Int64())
				}
			}
			return looked
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
		waiting = pass()
		time.Sleep(60 * time.Millisecond)
		first = pass()
		require.True(t, snapshot(t, l).Capsule("large").Nomination().Lives())
		standing = pass()
		commit(t, l, orbit.Nominate{Capsule: "large"})
		for i := range 10 {
			commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("t", i)), Final: true})
			put(t, l, fmt.Sprint("u", i), fmt.Sprintf("n%04d", i), batchSpec(2))
		}
		later = pass()
		require.Equal(t, orbit.NodeID("n0010"), snapshot(t, l).Capsule("large").Nomination().Parts[0].Node)
		return waiting, first, standing, later
	}
	for _, nodes := range []int{100, 1000} {
		synctest.Test(t, func(t *testing.T) { // a slow machine waits as long as a fast one
			waiting, first, standing, later := looks(t, nodes)
			assert.Zero(t, waiting)
			assert.Equal(t, 2*nodes+1, first)
			assert.Zero(t, standing)
			assert.LessOrEqual(t, later, 40)
		})
	}
}

// A Patient without a navigator says so.
func TestPatientNeedsANavigator(t *testing.T) {
	p := &nav.Patient{}
	assert.True(t, p.Claims("", orbit.Batch), "or nobody would hear of the error")
	_, err := p.Plan(t.Context(), nil, nil)
	assert.ErrorContains(t, err, "Patient.Navigator is nil")
}

// A gang is nominated in one domain, and placed there when all of it is free.
func TestPatientKeepsGangsInOneDomain(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 4)
	put(t, l, "t0", "r0n1", batchSpec(3))
	put(t, l, "t1", "r1n1", batchSpec(2))
	gangOf(t, l, "g", "large", 2, 4)
	e := engineOf(l, impatient(&nav.Gang{}))
	for range 3 {
		require.Empty(t, e.Pass(t.Context()).Errors)
	}
	n := snapshot(t, l).Gang("g").Nomination
	require.True(t, n.Lives())
	assert.Equal(t, []orbit.NodeID{"r1n0", "r1n1"}, []orbit.NodeID{n.Parts[0].Node, n.Parts[1].Node})
	commit(t, l, orbit.Release{Capsule: "t1", Final: true})
	r := e.Pass(t.Context())
	assert.Equal(t, 2, placedOf(t, l, "g"))
	assert.Empty(t, r.Unplaced)
}

// Device instances count as other room does.
func TestPatientFreesTheFewestDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	half := batchSpec(1)
	half.Devices = orbit.DeviceRequest{Count: 1, Milli: 500}
	whole := batchSpec(1)
	whole.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	for _, id := range []string{"a", "b"} {
		n := node(id, 4)
		n.Node.Devices = orbit.Devices{Model: "g", Count: 1}
		commit(t, l, n)
	}
	put(t, l, "t0", "a", whole)
	put(t, l, "t1", "b", half)
	large := spec(1, 5)
	large.Devices = whole.Devices
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: large, Owner: "large"})
	e := engineOf(l, impatient(&nav.Services{}))
	require.Equal(t, []orbit.NodeID{"b"}, nominatedFor(t, l, e, "large"))
	commit(t, l, orbit.Release{Capsule: "t1", Final: true})
	e.Pass(t.Context())
	assert.Equal(t, orbit.DeviceSet(1), snapshot(t, l).Capsule("large").Devices)
}

// What is nominated for one that ranks higher is not counted on. Of two that are due, the one of higher priority is first,
// and the other follows in the next plan although its class would be parked. A nomination that has waited ranks higher.
func TestPatientNominatesInTurn(t *testing.T) {
	scale.Long(t)
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	commit(t, l, node("a", 4), node("b", 4))
	put(t, l, "t0", "a", batchSpec(1))
	put(t, l, "t1", "b", batchSpec(2))
	e := engineOf(l, impatient(&nav.Services{}))
	e.ParkFor = 200 * time.Millisecond
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: spec(4, 5), Owner: "large"},
		orbit.Submit{IDs: []orbit.CapsuleID{"high"}, Spec: spec(4, 6), Owner: "large"})
	e.Pass(t.Context())
	time.Sleep(210 * time.Millisecond)
	e.Pass(t.Context())
	s := snapshot(t, l)
	require.True(t, s.Capsule("high").Nomination().Lives())
	require.False(t, s.Capsule("low").Nomination().Lives())
	e.Pass(t.Context())
	s = snapshot(t, l)
	require.True(t, s.Capsule("low").Nomination().Lives())
	assert.Equal(t, orbit.NodeID("a"), s.Capsule("high").Nomination().Parts[0].Node)
	assert.Equal(t, orbit.NodeID("b"), s.Capsule("low").Nomination().Parts[0].Node)
	assert.Equal(t, int32(6+s.Limits().NominationAging), s.Capsule("high").Nomination().Rank)
}

// What says when it was submitted has waited since then, and is nominated by the first plan that leaves it out. What does not say
// it, says a time that is still to come, or ran meanwhile, has waited since that plan.
func TestPatientCountsFromSubmission(t *testing.T) {
	minuteAgo := orbit.Instant(time.Now().Add(-time.Minute).UnixNano())
	for name, c := range map[string]struct {
		at      orbit.Instant
		ran, is bool
	}{
		"submitted a minute ago":              {at: minuteAgo, is: true},
		"does not say":                        {},
		"submitted tomorrow":                  {at: minuteAgo + orbit.Instant(24*time.Hour)},
		"submitted a minute ago, and has run": {at: minuteAgo, ran: true},
	} {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 4))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large", At: c.at})
		if c.ran {
			commit(t, l, orbit.Place{Capsule: "large", Node: "a", At: c.at})
			commit(t, l, orbit.Release{Capsule: "large", Stopped: true})
		}
		put(t, l, "small", "a", batchSpec(1))
		engineOf(l, &nav.Patient{Navigator: &nav.Services{}}).Pass(t.Context())
		assert.Equal(t, c.is, snapshot(t, l).Capsule("large").Nomination().Lives(), name)
	}
}

// What the wrapped navigator places in the same plan is not counted twice, and where it has placed, Patient does not; and a
// filter holds when a nomination is served, too.
func TestPatientBesideThePlan(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 4))
	put(t, l, "t0", "a", batchSpec(4))
	p := impatient(&nav.Services{})
	closed := false
	p.Filter = func(*orbit.NodeState, *orbit.Report, *orbit.Spec) string {
		if closed {
			return "are closed"
		}
		return ""
	}
	p.Unaged = true
	asLarge := p.Navigator
	p.Navigator = nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		var others []*orbit.Capsule
		for _, c := range pending {
			if c.ID != "large" {
				others = append(others, c)
			}
		}
		return asLarge.Plan(ctx, view, others)
	})
	e := engineOf(l, p)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
	require.Equal(t, []orbit.NodeID{"a"}, nominatedFor(t, l, e, "large"))
	assert.Equal(t, int32(5), snapshot(t, l).Capsule("large").Nomination().Rank)
	commit(t, l, orbit.Release{Capsule: "t0", Final: true})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: spec(1, 9), Owner: "large"})
	r := e.Pass(t.Context())
	assert.Zero(t, r.Conflicts+r.Infeasible)
	assert.True(t, snapshot(t, l).Capsule("urgent").Placed())
	commit(t, l, orbit.Release{Capsule: "urgent", Final: true})
	closed = true
	e.Pass(t.Context())
	assert.True(t, snapshot(t, l).Capsule("large").Pending())
	closed = false
	e.Pass(t.Context())
	assert.True(t, snapshot(t, l).Capsule("large").Placed())
}

// Of two nodes of which as much has to be freed, a renewal stays on the one that is nominated.
func TestPatientStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 4), node("b", 4))
		put(t, l, "t0", "a", batchSpec(1))
		put(t, l, "t1", "a", batchSpec(1))
		put(t, l, "t2", "b", batchSpec(1))
		p := impatient(&nav.Services{})
		p.For = 40 * time.Millisecond
		e := engineOf(l, p)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
		e.Pass(t.Context())
		time.Sleep(time.Millisecond) // in a bubble a pass takes no time, and large has to wait some
		require.Equal(t, []orbit.NodeID{"b"}, nominatedFor(t, l, e, "large"))
		made := snapshot(t, l).Capsule("large").Nomination().Made
		commit(t, l, orbit.Release{Capsule: "t0", Final: true})
		time.Sleep(25 * time.Millisecond)
		e.Pass(t.Context())
		n := snapshot(t, l).Capsule("large").Nomination()
		require.True(t, n.Lives())
		assert.Greater(t, n.Made, made)
		assert.Equal(t, orbit.NodeID("b"), n.Parts[0].Node)
	})
}

// A gang does not plan on room that is nominated for others, whatever is free there.
func TestGangsLeaveNominatedRoom(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 4))
	put(t, l, "t0", "a", batchSpec(1))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(2, 5), Owner: "large"},
		orbit.Nominate{Capsule: "large", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{{Node: "a", Room: orbit.Resources{orbit.CPU: 2}}}})
	r := orbit.Role{Name: "worker", Spec: gangSpec(1), Members: []orbit.CapsuleID{"g-0", "g-1"}}
	commit(t, l, orbit.Submit{Owner: "gangs", Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{r}}})
	e := engineOf(l, &nav.Gang{})
	e.Name = "gangs"
	require.Empty(t, e.Pass(t.Context()).Errors)
	assert.Zero(t, placedOf(t, l, "g"))
	commit(t, l, orbit.Release{Capsule: "t0", Final: true})
	require.Empty(t, e.Pass(t.Context()).Errors)
	assert.Equal(t, 2, placedOf(t, l, "g"))
	sound(t, l)
}

// What a Patient wraps keeps the rules of navigators. Nothing waits long enough to be nominated: the worlds of the suite place
// work of their own, which what is nominated would keep out.
func TestPatientKeepsTheRulesOfNavigators(t *testing.T) {
	scale.Long(t)
	for name, build := range map[string]func() orbit.Navigator{
		"services": func() orbit.Navigator { return &nav.Services{} },
		"batch":    func() orbit.Navigator { return &nav.Batch{} },
		"gang":     func() orbit.Navigator { return &nav.Gang{} },
		"anchor":   func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}} },
	} {
		t.Run(name, func(t *testing.T) {
			navtest.Suite{Worlds: scale.Of(12, 200)}.Run(t, func() orbit.Navigator { return &nav.Patient{Navigator: build()} })
		})
	}
}

// BenchmarkPatient is a pass in which a capsule is nominated, beside one in which nothing has waited long, on nodes that each
// run ten tasks.
func BenchmarkPatient(b *testing.B) {
	for _, nodes := range []int{100, 1_000, 10_000} {
		for _, after := range []time.Duration{1, time.Hour} {
			name := map[bool]string{true: "nominates", false: "waits"}[after == 1]
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				l := &orbit.MemoryLedger{}
				for i := range nodes {
					n := node(fmt.Sprint("n", i), 10)
					do := []orbit.Commitment{n}
					for k := range 10 {
						c := orbit.CapsuleID(fmt.Sprint("t", i, "-", k))
						do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: batchSpec(1)}, orbit.Place{Capsule: c, Node: n.Node.ID})
					}
					commit(b, l, do...)
				}
				commit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
				e := engineOf(l, &nav.Patient{Navigator: &nav.Services{}, After: after})
				e.Pass(context.Background())
				for b.Loop() {
					e.Pass(context.Background())
					if after == 1 {
						b.StopTimer()
						commit(b, l, orbit.Nominate{Capsule: "large"})
						b.StartTimer()
					}
				}
			})
		}
	}
}

// Where one engine is alone, all that its Patient plans is committed, whatever waits, comes and ends. (A nomination that is
// ended in the same pass because its time is over may cost a conflict; here none is.)
func TestPatientPlansCommit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: rapid.SampledFrom([]int{10, 50, 100}).Draw(t, "share")}}
		racked(t, l, 2, 2, 4)
		inner := rapid.SampledFrom([]orbit.Navigator{&nav.Services{}, &nav.Batch{}, &nav.Gang{}}).Draw(t, "navigator")
		p := impatient(inner)
		e := engineOf(l, p)
		next := 0
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			next++
			switch cpu := rapid.Int64Range(1, 4).Draw(t, "cpu"); rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				s := spec(cpu, int32(rapid.IntRange(0, 2).Draw(t, "priority")))
				s.Class = rapid.SampledFrom([]orbit.AppClass{orbit.LatencySensitive, orbit.Batch}).Draw(t, "class")
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", next))}, Spec: s, Owner: "large"})
			case 1:
				gangOf(t, l, fmt.Sprint("g", next), "large", rapid.IntRange(1, 3).Draw(t, "members"), cpu)
			case 2:
				for c := range snapshot(t, l).Capsules() {
					if c.Placed() && c.Gang() == "" && rapid.Bool().Draw(t, "ends") {
						commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
					}
				}
			}
			r := e.Pass(context.Background())
			require.Empty(t, r.Errors)
			require.Zero(t, r.Conflicts+r.Infeasible+r.Invalid, "%v", r)
		}
		sound(t, l)
	})
}

// A capsule that cannot be nominated, because it starts from a template or because no more may be nominated, is not kept from its navigator
// for longer than a plan, however many proposals for it were lost.
func TestPatientHandsBackWhatItCannotNominate(t *testing.T) {
	for _, template := range []string{"t", ""} {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 1}}
		commit(t, l, node("a", 4), node("b", 1))
		s := spec(4, 5)
		s.Start.Template = template
		if template == "" { // another one has all that may be nominated
			other := spec(1, 100)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: other, Owner: "other"}, orbit.Nominate{
				Capsule: "other", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{{Node: "b", Room: orbit.Resources{orbit.CPU: 1}}}})
		}
		services, plans := &nav.Services{}, 0
		e := engineOf(l, &nav.Patient{Conflicts: 3, After: 1, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			if plans++; plans <= 3 { // one comes between the view and the proposal, and ends at once
				id := orbit.CapsuleID(fmt.Sprint("thief", plans))
				_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
					orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: batchSpec(1), Owner: "small"}, orbit.Place{Capsule: id, Node: "a"}}})
				require.NoError(t, err)
			}
			return services.Plan(ctx, view, pending)
		})})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: s, Owner: "large"})
		for range 3 {
			require.Equal(t, 1, e.Pass(t.Context()).Conflicts)
			commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("thief", plans)), Final: true})
		}
		for range 3 {
			e.Pass(t.Context())
		}
		assert.True(t, snapshot(t, l).Capsule("large").Placed(), "template %q", template)
	}
}

// joined is a ledger in which a member joins a gang just before the gang is nominated for the first time.
type joined struct {
	*orbit.MemoryLedger
	join func()
}

func (l *joined) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	for _, p := range batch {
		if _, nominates := p.Do[0].(orbit.Nominate); nominates && l.join != nil {
			l.join()
			l.join = nil
		}
	}
	return l.MemoryLedger.ProposeBatch(ctx, batch)
}

func (l *joined) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	out := l.ProposeBatch(ctx, []orbit.Proposal{p})
	return out[0].Revision, out[0].Err
}

// TestPatientNominatesAnewForWhoJoins: a member joins a gang while room is nominated for the others. The nomination is too small then: it is made
// anew for all, and what it was made for is not placed alone.
func TestPatientNominatesAnewForWhoJoins(t *testing.T) {
	l := &joined{MemoryLedger: &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}}
	cores := func(n int64) orbit.Envelope { return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n}} }
	gang := func(member orbit.CapsuleID) *orbit.Gang {
		return &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: &orbit.Spec{Class: orbit.GangClass, Envelope: cores(4)}, Members: []orbit.CapsuleID{member}}}}
	}
	l.join = func() { commit(t, l, orbit.Submit{Gang: gang("g2"), Join: true}) }
	commit(t, l, orbit.Submit{Gang: gang("g1"), At: ago(time.Hour)}, orbit.Submit{IDs: []orbit.CapsuleID{"x", "y"}, Spec: &orbit.Spec{Envelope: cores(1)}})
	for x, n := range map[orbit.CapsuleID]orbit.NodeID{"x": "a", "y": "b"} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: n, Capacity: orbit.Resources{orbit.CPU: 4}}}, orbit.Place{Capsule: x, Node: n})
	}
	e := &orbit.Engine{Name: "gang", Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: time.Nanosecond}}
	for _, ends := range []orbit.CapsuleID{"", "x", "y"} {
		if ends != "" {
			commit(t, l, orbit.Release{Capsule: ends, Final: true})
		}
		for range 2 {
			require.Empty(t, e.Pass(context.Background()).Errors)
		}
		require.Equal(t, ends == "y", snapshot(t, l).Capsule("g1").Placed() && snapshot(t, l).Capsule("g2").Placed())
	}
}
