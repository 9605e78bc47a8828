package nav_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// What one group takes in a plan is gone for the next: the rack that it leaves nearly full is the tightest then.
func TestSecondGroupOfAPlanSeesTheFirst(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("r0", "r0", 20), rackNode("r1large", "r1", 25), rackNode("r1small", "r1", 5))
	submit(t, l, "a", 4, near("a", 6))
	submit(t, l, "b", 2, near("b", 2))
	r := anchored(l).Pass(t.Context())
	assert.Contains(t, fmt.Sprint(r.Notes), "anchors=2")
	assert.Equal(t, orbit.NodeID("r1small"), snapshot(t, l).Capsule("b-0").Node)
}

// Where the whole does not fit, the anchor is one of a spec with which most of it does.
func TestAnchorThatLetsMostFollow(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("r0", "r0", 10), rackNode("r1", "r1", 3))
	large, small := near("g", 10), near("g", 1)
	large.Priority, small.Module = 1, "small"
	submit(t, l, "large", 1, large)
	submit(t, l, "small", 5, small)
	r := anchored(l).Pass(t.Context())
	assert.Contains(t, fmt.Sprint(r.Notes), `no rack takes all 6 members; "r0" takes most: 5`)
	assert.Equal(t, orbit.NodeID("r0"), snapshot(t, l).Capsule("small-0").Node)
}

// Members that are hard to seat go first.
func TestHardMembersAreSeatedFirst(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("a", "r", 6), rackNode("b", "r", 6), rackNode("c", "r", 6))
	large, small := near("g", 4), near("g", 2)
	small.Priority, small.Module = 1, "small"
	submit(t, l, "small", 3, small)
	submit(t, l, "large", 3, large)
	e := anchored(l)
	r := e.Pass(t.Context())
	assert.NotContains(t, fmt.Sprint(r.Notes), "short")
	settle(t, e)
	assert.Zero(t, snapshot(t, l).PendingCount())
}

// Room is held on nodes that groups have a part in already, so that fresh ones are left for other anchors.
func TestHoldsLeaveFreshNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("claimed", "r", 20), rackNode("n1", "r", 10), rackNode("n2", "r", 10))
	other := spec(1, 0)
	other.Group = "other"
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"o"}, Spec: other}, orbit.Place{Capsule: "o", Node: "claimed"})
	submit(t, l, "g", 3, near("g", 4))
	anchored(l).Pass(t.Context())
	on := map[orbit.NodeID]int{}
	for h := range snapshot(t, l).Holds() {
		on[h.Node]++
	}
	assert.Equal(t, map[orbit.NodeID]int{"n1": 1, "claimed": 1}, on)
	assert.Equal(t, orbit.NodeID("n1"), snapshot(t, l).Capsule("g-0").Node)
}

// Where levels do not nest, room is held only where each member may follow the anchor at its own level.
func TestHoldsFollowTheAnchorAtEachLevel(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 3 {
		n := rackNode(fmt.Sprint("n", i), fmt.Sprint("r", i/2), 4)
		n.Node.Labels["zone"] = fmt.Sprint("z", i)
		commit(t, l, n)
	}
	n := rackNode("n3", "r2", 1)
	n.Node.Labels["zone"] = "z2"
	commit(t, l, n)
	wide := near("g", 1)
	wide.Near.Level, wide.Module = "zone", "wide"
	narrow := near("g", 2)
	narrow.Priority = 1
	submit(t, l, "narrow", 3, narrow)
	submit(t, l, "wide", 3, wide)
	e := anchored(l)
	e.Pass(t.Context())
	s := snapshot(t, l)
	var home *orbit.Node
	for c := range s.Capsules() {
		if c.Placed() {
			home = s.Node(c.Node).Node
		}
	}
	require.Positive(t, holdsOf(s))
	for h := range s.Holds() {
		if h.Room[orbit.CPU] == 1 {
			assert.Equal(t, home.Labels["zone"], s.Node(h.Node).Node.Labels["zone"])
		}
	}
	for _, r := range settle(t, e) {
		assert.Zero(t, r.Conflicts+r.Infeasible)
	}
}

// Sums of what is free do not wrap.
func TestRacksOfHugeNodes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("a", "r", math.MaxInt64), rackNode("b", "r", math.MaxInt64))
	submit(t, l, "g", 2, near("g", math.MaxInt64))
	e := anchored(l)
	settle(t, e)
	assert.Zero(t, snapshot(t, l).PendingCount())
}

// Devices are those that a node would choose, of a model that is asked for, and no two members share what one needs.
func TestAnchorsWithDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	wrong, right := rackNode("a", "r", 4), rackNode("b", "r", 8)
	wrong.Node.Devices = orbit.Devices{Model: "T4", Count: 4}
	right.Node.Devices = orbit.Devices{Model: "A100", Count: 3}
	commit(t, l, wrong, right)
	loose := spec(0, 0)
	loose.Devices = orbit.DeviceRequest{Count: 1, Milli: 300}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: loose}, orbit.Place{Capsule: "x", Node: "b", Devices: 1 << 1})
	s := near("g", 1)
	s.Devices = orbit.DeviceRequest{Count: 1, Milli: 600, Models: []string{"A100", "H100"}}
	submit(t, l, "g", 3, s)
	want, ok := snapshot(t, l).Node("b").PickDevices(s)
	require.True(t, ok)
	e := anchored(l)
	e.Pass(t.Context())
	c := snapshot(t, l).Capsule("g-0")
	assert.Equal(t, orbit.NodeID("b"), c.Node)
	assert.Equal(t, want, c.Devices)
	require.Equal(t, 2, holdsOf(snapshot(t, l)))

	sick := right // an instance on which room is held
	sick.Node.Devices.Unhealthy = 1 << 2
	commit(t, l, sick)
	for _, r := range settle(t, e) {
		assert.Zero(t, r.Conflicts+r.Infeasible)
	}
	assert.Equal(t, 1, snapshot(t, l).PendingCount())
	commit(t, l, right)
	settle(t, e)
	assert.Zero(t, snapshot(t, l).PendingCount())
	require.NoError(t, snapshot(t, l).Verify())
}

// The anchor's rack is one from which most can follow, each at its own level: those that want only its zone find room
// in other racks of that.
func TestAnchorLetsMostFollowAtTheirLevels(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for r, cpu := range []int64{12, 8, 6, 8, 6} { // r0 in z0, r1 and r2 in z1, r3 in no rack but in z1, r4 in z2
		n := rackNode(fmt.Sprint("n", r), fmt.Sprint("r", r), cpu)
		n.Node.Labels["zone"] = []string{"z0", "z1", "z1", "z1", "z2"}[r]
		if r == 3 {
			delete(n.Node.Labels, "rack")
		}
		commit(t, l, n)
	}
	wide := near("g", 4)
	wide.Near.Level, wide.Module = "zone", "wide"
	submit(t, l, "wide", 3, wide)
	submit(t, l, "narrow", 4, near("g", 2))
	e := anchored(l)
	r := e.Pass(t.Context())
	assert.NotContains(t, fmt.Sprint(r.Notes), "short")
	assert.Equal(t, 6, holdsOf(snapshot(t, l)))
	for _, r := range settle(t, e) {
		assert.Zero(t, r.Conflicts+r.Infeasible)
	}
	assert.Zero(t, snapshot(t, l).PendingCount())
	submit(t, l, "more", 1, near("more", 1))
	more := near("more", 1)
	more.Near.Level, more.Priority = "zone", 1
	submit(t, l, "more-wide", 30, more)
	assert.Contains(t, fmt.Sprint(e.Pass(t.Context()).Notes), `group "more": no rack/zone takes all 31 members; "r0/z0" takes most: 12`)
}
