package nav_test

import (
	"context"
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

func holdsOf(s *orbit.State) (n int) {
	for range s.Holds() {
		n++
	}
	return n
}

// A population with an Anchor in it: from Submit to the last member no time goes by, and nothing else is left.
func TestAnchorsInAPopulation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		racked(t, l, 2, 3, 10)
		p := orbit.Population{Engines: []*orbit.Engine{anchored(l)}, OnError: func(err error) { assert.NoError(t, err) }}
		go func() { assert.NoError(t, p.Run(t.Context())) }()
		time.Sleep(time.Hour)
		submit(t, l, "g", 12, near("g", 2))
		synctest.Wait()
		racks, placed, _ := racksOf(snapshot(t, l), "g")
		assert.Equal(t, 12, placed)
		assert.Len(t, racks, 1)
		assert.Zero(t, holdsOf(snapshot(t, l)))
	})
}

// Room that is held for another navigator's members is kept from Services until HoldFor has passed. After that, every
// navigator may use it.
func TestHeldRoomEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		racked(t, l, 1, 1, 10)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"mine"}, Spec: near("g", 2)})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"theirs"}, Spec: near("g", 6), Owner: "absent"})
		a := &nav.Anchor{Navigator: &nav.Services{}, HoldFor: time.Minute}
		e := &orbit.Engine{Ledger: l, Navigator: a}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = e.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, 1, holdsOf(snapshot(t, l)))
		submit(t, l, "s", 1, spec(5, 0))
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		assert.Equal(t, 1, holdsOf(snapshot(t, l)))
		assert.True(t, snapshot(t, l).Capsule("s-0").Pending())
		time.Sleep(2)
		synctest.Wait()
		assert.Zero(t, holdsOf(snapshot(t, l)))
		assert.True(t, snapshot(t, l).Capsule("s-0").Placed())
	})
}

// After any sequence of changes to groups and nodes, no hold is left once HoldFor has passed without a change.
func TestHoldsAlwaysEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, holdsEnd) })
}

func holdsEnd(t *rapid.T) {
	w := newWorld(t)
	for range rapid.IntRange(1, 4).Draw(t, "submits") {
		w.submit(t)
	}
	for range rapid.IntRange(1, 20).Draw(t, "steps") {
		rapid.SampledFrom([]func(*rapid.T){w.submit, w.pass, w.pass, w.upset, func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
		}}).Draw(t, "step")(t)
	}
	for h := range snapshot(t, w.ledger).Holds() {
		require.LessOrEqual(t, time.Until(h.Ends), 30*time.Second)
	}
	time.Sleep(30 * time.Second)
	w.engines[len(w.engines)-1].Pass(context.Background()) // of plain Services
	require.Zero(t, holdsOf(snapshot(t, w.ledger)))
	audit(t, w.ledger)
}

// The next plan releases the holds that no member will use: members were withdrawn or placed elsewhere, or the whole
// group is gone.
func TestLeftoversAreReleased(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 2, 20)
	submit(t, l, "g", 5, near("g", 2))
	submit(t, l, "s", 1, spec(1, 0))
	e := anchored(l)
	e.Pass(t.Context())
	require.Equal(t, 4, holdsOf(snapshot(t, l)))
	commit(t, l, orbit.Release{Capsule: "g-4", Final: true}, orbit.Place{Capsule: "g-3", Node: "r0n0"})
	r := e.Pass(t.Context())
	assert.Contains(t, fmt.Sprint(r.Notes), "fromHolds=2")
	assert.Contains(t, fmt.Sprint(r.Notes), "released=2")
	assert.Zero(t, holdsOf(snapshot(t, l)))

	submit(t, l, "h", 5, near("h", 2))
	e.Pass(t.Context())
	require.Equal(t, 4, holdsOf(snapshot(t, l)))
	for i := range 5 {
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("h-", i)), Final: true})
	}
	submit(t, l, "more", 1, spec(1, 0))
	assert.Contains(t, fmt.Sprint(e.Pass(t.Context()).Notes), "released=4")
	assert.Zero(t, holdsOf(snapshot(t, l)))
}

// A node of the rack is drained half way: the holds on it are released, and the members that they served are placed
// wherever else the rack has room.
func TestDrainedNodeOfTheRack(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 3, 8)
	submit(t, l, "g", 8, near("g", 2))
	e := anchored(l)
	e.MaxPlan = 3
	e.Pass(t.Context())
	anchor, other := orbit.NodeID(""), orbit.NodeID("")
	for c := range snapshot(t, l).Capsules() {
		if c.Placed() {
			anchor = c.Node
		}
	}
	for h := range snapshot(t, l).Holds() {
		if h.Node != anchor {
			other = h.Node
		}
	}
	require.NotEmpty(t, other)
	put := *snapshot(t, l).Node(other).Node
	put.State = orbit.Cordoned
	commit(t, l, orbit.PutNode{Node: put})
	settle(t, e)
	s := snapshot(t, l)
	_, placed, _ := racksOf(s, "g")
	assert.Equal(t, 8, placed)
	assert.Zero(t, s.Node(other).Capsules)
	assert.Zero(t, holdsOf(s))
}

// The anchor's node is lost: nothing of the group runs, so it starts again elsewhere, and what was held for it in the
// old rack is released first.
func TestAnchorIsLost(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 8)
	submit(t, l, "g", 6, near("g", 2))
	e := anchored(l)
	e.MaxPlan = 1
	e.Pass(t.Context())
	require.Equal(t, 5, holdsOf(snapshot(t, l)))
	for n := range snapshot(t, l).Nodes() {
		if n.Node.Labels["rack"] == "r0" {
			put := *n.Node
			put.State = orbit.Cordoned
			commit(t, l, orbit.PutNode{Node: put})
		}
	}
	commit(t, l, orbit.Release{Capsule: "g-0", Stopped: true})
	settle(t, e)
	racks, placed, anchors := racksOf(snapshot(t, l), "g")
	assert.Equal(t, map[string]int{"r1": 6}, racks)
	assert.Equal(t, 6, placed)
	assert.Equal(t, 1, anchors)
	assert.Equal(t, 2, audit(t, l))
}

// Though its old rack is full of what is held for it, the group that starts again sees the room there.
func TestGroupStartsAgainWhereItsRoomWas(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 2, 8)
	commit(t, l, rackNode("r1n0", "r1", 8))
	submit(t, l, "g", 6, near("g", 2))
	e := anchored(l)
	e.MaxPlan = 1
	e.Pass(t.Context())
	commit(t, l, orbit.Release{Capsule: "g-0", Stopped: true})
	settle(t, e)
	racks, _, _ := racksOf(snapshot(t, l), "g")
	assert.Equal(t, map[string]int{"r0": 6}, racks)
}

// With HoldFor below zero nothing is held, and the group starts all the same.
func TestAnchorWithoutHolds(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 8)
	submit(t, l, "g", 6, near("g", 2))
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, HoldFor: -1}}
	e.Pass(t.Context())
	assert.Zero(t, holdsOf(snapshot(t, l)))
	settle(t, e)
	racks, placed, _ := racksOf(snapshot(t, l), "g")
	assert.Len(t, racks, 1)
	assert.Equal(t, 6, placed)
}

// A node on which room is held shrinks below its usage: no member can take the place of a hold there, so the hold is
// released, and its member is placed wherever else the rack has room.
func TestNodeOfTheRackShrinks(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("a", "r", 6))
	submit(t, l, "g", 3, near("g", 2))
	e := anchored(l)
	e.Pass(t.Context())
	require.Equal(t, 2, holdsOf(snapshot(t, l)))
	commit(t, l, rackNode("a", "r", 5), rackNode("b", "r", 100))
	for _, r := range settle(t, e) {
		assert.Zero(t, r.Conflicts+r.Infeasible)
	}
	s := snapshot(t, l)
	assert.Zero(t, s.PendingCount())
	assert.Zero(t, holdsOf(s))
	assert.Positive(t, s.Node("b").Capsules)
	require.NoError(t, s.Verify())
}

// Room is held for members that the Anchor places, and not for those of other engines, who could not use the hold: they
// follow their group at once.
func TestAnchorHoldsNothingForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		mine, others := near("g", 1), near("g", 1)
		others.Class = orbit.Batch
		commit(t, l, rackNode("n", "r1", 4))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a0", "a1"}, Spec: mine}, orbit.Submit{IDs: []orbit.CapsuleID{"b0", "b1"}, Spec: others})
		ctx, stop := context.WithCancel(t.Context())
		population := orbit.Population{Engines: []*orbit.Engine{
			{Name: "services", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}},
			{Name: "batch", Ledger: l, Navigator: &nav.Batch{}},
		}}
		done := make(chan error, 1)
		go func() { done <- population.Run(ctx) }()
		time.Sleep(5 * time.Second)
		require.Zero(t, snapshot(t, l).PendingCount(), "of a group that fits")
		require.Zero(t, holdsOf(snapshot(t, l)))
		stop()
		require.NoError(t, <-done)
	})
}

// What finds no room beside holds that the same plan releases is planned again, and not put aside.
func TestReleasedHoldsParkNoCapsule(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 1, 1, 20)
	submit(t, l, "g", 5, near("g", 2))
	e := anchored(l)
	e.Pass(t.Context())
	require.Equal(t, 4, holdsOf(snapshot(t, l)))
	for i := range 5 {
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("g-", i)), Final: true})
	}
	submit(t, l, "large", 1, spec(20, 0))
	r := e.Pass(t.Context())
	require.Contains(t, fmt.Sprint(r.Notes), "released=4")
	require.Len(t, r.Unplaced, 1)
	var nofit *orbit.NoFit
	require.NotErrorAs(t, r.Unplaced[0].Why, &nofit)
	require.Zero(t, r.Parked)
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
}
