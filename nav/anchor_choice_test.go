package nav_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// anchored returns an engine with an Anchor around Services.
func anchored(l orbit.Ledger) *orbit.Engine {
	return &orbit.Engine{Name: "anchors", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
}

// The rack is one that takes the whole group, the tightest of them, else one that takes most: as counting by hand
// says, which is exact for members that are all alike. The others follow, and nothing else does.
func TestAnchorChoosesTheRackThatTakesTheGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		size, count := rapid.Int64Range(1, 4).Draw(t, "size"), rapid.IntRange(1, 12).Draw(t, "count")
		takes, sum, fresh := map[string]int{}, map[string]int64{}, map[string]bool{}
		serial, e := 0, anchored(l)
		warm := near("warm", 1) // so that there are tables to be kept from now on
		warm.Require = []orbit.Predicate{{Key: "rack", Op: "In", Values: []string{"warm"}}}
		commit(t, l, rackNode("warm", "warm", 1))
		submit(t, l, "warm", 1, warm)
		var loads []orbit.Commitment
		for r := range rapid.IntRange(1, 5).Draw(t, "racks") {
			rack := fmt.Sprint("r", r)
			for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
				cpu := rapid.Int64Range(0, 12).Draw(t, "cpu")
				id := fmt.Sprintf("r%dn%d", r, i)
				was := rapid.SampledFrom([]string{rack, rack, "r0", "r1", "attic", ""}).Draw(t, "was")
				commit(t, l, rackNode(id, was, rapid.Int64Range(0, 12).Draw(t, "had")))
				if rapid.IntRange(0, 4).Draw(t, "leaves") == 0 {
					leaver := "leaver-" + id
					commit(t, l, rackNode(leaver, was, 100))
					loads = append(loads, orbit.RemoveNode{Node: orbit.NodeID(leaver)})
				}
				loads = append(loads, rackNode(id, rack, cpu))
				used := rapid.Int64Range(0, cpu).Draw(t, "used")
				s := spec(used, 0)
				s.Module = "there"
				claimed := rapid.IntRange(0, 4).Draw(t, "claimed") == 0
				if claimed {
					s.Group = "other"
				}
				serial++
				c := orbit.CapsuleID(fmt.Sprint("there", serial))
				loads = append(loads, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: s, Owner: "them"}, orbit.Place{Capsule: c, Node: orbit.NodeID(id)})
				takes[rack] += int((cpu - used) / size)
				sum[rack] += cpu - used
				fresh[rack] = fresh[rack] || !claimed && cpu-used >= size
			}
		}
		settle(t, e)
		commit(t, l, loads...)
		submit(t, l, "g", count, near("g", size))
		most := 0
		for rack, n := range takes {
			if fresh[rack] {
				most = max(most, min(n, count))
			}
		}
		first := e.Pass(context.Background())
		require.Empty(t, first.Errors)
		_, placed, _ := racksOf(snapshot(t, l), "g")
		if most == 0 {
			require.Zero(t, placed)
			require.Equal(t, 1, first.Parked)
			return
		}
		require.Equal(t, 1, placed)
		settle(t, e)
		racks, placed, anchors := racksOf(snapshot(t, l), "g")
		require.Equal(t, most, placed)
		require.Equal(t, 1, anchors)
		require.Len(t, racks, 1)
		for rack := range racks {
			for other, n := range takes {
				if most == count && fresh[other] && n >= count {
					require.LessOrEqual(t, sum[rack], sum[other], "%s is tighter than %s", other, rack)
				}
			}
		}
	})
}

// A group that is larger than any rack starts where most of it fits, and the notes say so; the rest is told where
// its group is.
func TestAnchorOfAGroupLargerThanAnyRack(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 4)
	commit(t, l, rackNode("r1n2", "r1", 4))
	submit(t, l, "g", 10, near("g", 2))
	e := anchored(l)
	r := e.Pass(t.Context())
	assert.Contains(t, fmt.Sprint(r.Notes), `group "g": no rack takes all 10 members; "r1" takes most: 6`)
	rounds := settle(t, e)
	racks, placed, _ := racksOf(snapshot(t, l), "g")
	assert.Equal(t, map[string]int{"r1": 6}, racks)
	assert.Equal(t, 6, placed)
	require.Len(t, rounds[0].Unplaced, 4)
	require.ErrorContains(t, rounds[0].Unplaced[0].Why, "0 of 5 nodes fit: 3 lack cpu, 2 are in no rack of group g (r1)")
	assert.Equal(t, 1, rounds[0].Parked)
}

// Members of several shapes, with devices, in one group: the rack is the one where the whole of it fits, though
// others have more room in every dimension but one; and the fresh node that only the large member fits on is not
// taken by a small one.
func TestAnchorOfAGroupOfSeveralShapes(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 3, 100)
	commit(t, l, rackNode("small", "gpu", 4))
	for i := range 2 {
		n := rackNode(fmt.Sprint("gpu", i), "gpu", 8)
		n.Node.Devices = orbit.Devices{Model: "A100", Count: 2, Unhealthy: orbit.DeviceSet(i)}
		commit(t, l, n)
	}
	large := near("g", 2)
	large.Devices, large.Module = orbit.DeviceRequest{Count: 1, Milli: 600, Models: []string{"A100"}}, "large"
	whole := near("g", 6)
	whole.Module = "whole"
	submit(t, l, "w", 2, whole)
	submit(t, l, "l", 3, large)
	e := anchored(l)
	for _, r := range settle(t, e) {
		assert.Zero(t, r.Infeasible+r.Conflicts)
	}
	s := snapshot(t, l)
	racks, placed, anchors := racksOf(s, "g")
	assert.Equal(t, map[string]int{"gpu": 4}, racks, "8+8+4 take 6+6 and 2+2, or 6 and 2+2+2")
	assert.Equal(t, 4, placed)
	assert.Equal(t, 1, anchors)
	require.NoError(t, s.Verify())
	audit(t, l)
}

// What is said of nodes when none is fresh and fits; such a class is parked, and comes back when one is.
func TestAnchorSaysWhyNoNodeIsFresh(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("hosts", "r", 10), rackNode("lacks", "r", 1), rackNode("nowhere", "", 10), node("bare", 10))
	drained := rackNode("drained", "r", 10)
	drained.Node.State = orbit.Cordoned
	holds := rackNode("holds", "r", 10)
	commit(t, l, drained, holds)
	other := spec(1, 0)
	other.Group = "other"
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"o"}, Spec: other}, orbit.Place{Capsule: "o", Node: "hosts"})
	e := anchored(l)
	submit(t, l, "h", 3, near("h", 4)) // one on "holds", room for one there; the third finds none but on "hosts"
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
	submit(t, l, "g", 2, near("g", 2))
	var why error
	for _, u := range e.Pass(t.Context()).Unplaced {
		if u.Capsule.Spec.Group == "g" {
			why = u.Why
		}
	}
	require.EqualError(t, why, `group "g" has no node for its anchor: 0 of 6 nodes fit: 2 are in no rack, 2 host another group, 1 is unschedulable, 1 lacks cpu`)
	var fit *orbit.NoFit
	require.ErrorAs(t, why, &fit)
	settle(t, e)
	commit(t, l, orbit.Release{Capsule: "o", Final: true})
	for c := range snapshot(t, l).On("hosts") {
		commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
	}
	settle(t, e)
	_, placed, _ := racksOf(snapshot(t, l), "g")
	assert.Equal(t, 2, placed)
}

// Huge quantities, nodes that have shrunk below what they hold, members that take nothing: nothing wraps.
func TestAnchorsOfExtremes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		quantity := rapid.SampledFrom([]int64{0, 1, 2, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64})
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			n := rackNode(fmt.Sprint("n", i), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack"), quantity.Draw(t, "cpu"))
			n.Node.Capacity[orbit.Memory] = quantity.Draw(t, "memory")
			commit(t, l, n)
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "specs") {
			s := near(rapid.SampledFrom([]string{"g", "h"}).Draw(t, "group"), quantity.Draw(t, "cpu"))
			s.Envelope.Reservation[orbit.Memory] = quantity.Draw(t, "memory")
			submit(t, l, fmt.Sprint("c", i), rapid.IntRange(1, 4).Draw(t, "count"), s)
		}
		e := anchored(l)
		settle(t, e)
		for n := range snapshot(t, l).Nodes() { // shrinks below what it holds
			put := *n.Node
			put.Capacity = orbit.Resources{orbit.CPU: quantity.Draw(t, "cpu"), orbit.Memory: quantity.Draw(t, "memory")}
			commit(t, l, orbit.PutNode{Node: put})
		}
		submit(t, l, "late", 3, near("late", quantity.Draw(t, "cpu")))
		for _, r := range settle(t, e) {
			require.Zero(t, r.Conflicts+r.Infeasible)
		}
		audit(t, l)
	})
}

// Labels that no bet can name, empty ones and odd ones are no domains, or domains like any other.
func TestAnchorsWithHostileLabels(t *testing.T) {
	l := &orbit.MemoryLedger{}
	long := string(make([]byte, 300))
	for i, rack := range []string{"", long, "a\x00b", "anchor/"} {
		commit(t, l, rackNode(fmt.Sprint("n", i), rack, int64(100-i)))
	}
	commit(t, l, node("bare", 1000))
	for _, group := range []string{"anchor/", "\x00", `"quoted"`} {
		submit(t, l, "m"+group, 4, near(group, 2))
	}
	e := anchored(l)
	for _, r := range settle(t, e) {
		require.Zero(t, r.Conflicts+r.Infeasible)
	}
	s := snapshot(t, l)
	for _, group := range []string{"anchor/", "\x00"} {
		racks, placed, _ := racksOf(s, group)
		assert.Equal(t, 4, placed)
		assert.Len(t, racks, 1)
		assert.NotContains(t, racks, "")
		assert.NotContains(t, racks, long)
	}
	_, placed, _ := racksOf(s, `"quoted"`)
	assert.Zero(t, placed, "two domains, and both have their group")
}

// A group starts with whichever of its members fits, of many that do not.
func TestAnchorIsAnyMemberThatFits(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 9)
	for i := range 12 {
		s := near("g", int64(10+i))
		s.Module = fmt.Sprint("m", i)
		submit(t, l, s.Module, 1, s)
	}
	submit(t, l, "fits", 2, near("g", 9))
	e := anchored(l)
	settle(t, e)
	s := snapshot(t, l)
	assert.True(t, s.Capsule("fits-0").Placed())
	assert.True(t, s.Capsule("fits-1").Placed())
	assert.Equal(t, 12, s.PendingCount())
}

// Of members that want to be near at several levels, one that no domain of the narrowest takes starts the group where
// its own level has room; and however many levels there are, each is looked at.
func TestAnchorAtEachLevel(t *testing.T) {
	for _, self := range []bool{false, true} {
		l := &orbit.MemoryLedger{}
		zoned := func(id, rack string, cpu int64) orbit.PutNode {
			n := rackNode(id, rack, cpu)
			n.Node.Labels["zone"] = "z"
			return n
		}
		commit(t, l, zoned("a", "", 9), zoned("b", "r1", 1), zoned("c", "r2", 1))
		wide := near("g", 2)
		wide.Near.Level = "zone"
		submit(t, l, "narrow", 1, near("g", 3))
		submit(t, l, "wide", 2, wide)
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: self}}
		settle(t, e)
		s := snapshot(t, l)
		assert.Equal(t, orbit.NodeID("a"), s.Capsule("wide-0").Node)
		assert.Equal(t, orbit.NodeID("a"), s.Capsule("wide-1").Node)
		assert.True(t, s.Capsule("narrow-0").Pending())
	}
	l := &orbit.MemoryLedger{}
	n := node("n", 9)
	n.Node.Labels = map[string]string{}
	for i := range 40 {
		level := fmt.Sprintf("level%02d", i)
		s := near("g", 10)
		s.Near.Level = level
		if i == 29 {
			s = near("g", 9)
			s.Near.Level = level
		}
		n.Node.Labels[level] = "here"
		submit(t, l, level, 1, s)
	}
	commit(t, l, n)
	settle(t, anchored(l))
	assert.True(t, snapshot(t, l).Capsule("level29-0").Placed())
}
