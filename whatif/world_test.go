package whatif_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/whatif"
)

func worldOf(l orbit.Ledger, navigator func() orbit.Navigator) *whatif.World {
	return &whatif.World{Ledger: l, Engines: func(l orbit.Ledger) []*orbit.Engine {
		return []*orbit.Engine{{Name: "real", Ledger: l, Navigator: navigator()}}
	}}
}

func step(t require.TestingT, w *whatif.World) *whatif.WorldReport {
	r, err := w.Step(context.Background())
	require.NoError(t, err)
	require.NoError(t, w.State().Verify())
	return r
}

// TestWorldIsFed: whatever happens in reality, the World has the same nodes, the same capsules, budgets and marks afterwards; and with
// the same engine as in reality and a step after each event every capsule is on the same node.
func TestWorldIsFed(t *testing.T) {
	same := 0
	rapid.Check(t, func(t *rapid.T) {
		l := racks(t, 2, 3)
		services := func() orbit.Navigator { return &nav.Services{} }
		actual := &orbit.Engine{Name: "real", Ledger: l, Navigator: services()}
		twin, other := worldOf(l, services), worldOf(l, func() orbit.Navigator { return &packer{} })
		step(t, twin)
		step(t, other)
		for i := range rapid.IntRange(1, 12).Draw(t, "events") {
			event(t, l, i)
			for actual.Pass(context.Background()).Committed > 0 {
			}
			same = step(t, twin).Same
			step(t, other)
			sameRecords(t, snapshot(t, l), twin.State(), true)
			sameRecords(t, snapshot(t, l), other.State(), false)
		}
		require.Zero(t, twin.Report().Elsewhere+twin.Report().OnlyReal+twin.Report().OnlyShadow+twin.Report().Missed)
	})
	t.Logf("%d placed alike in the last world", same)
}

// event makes something happen in reality that is not the engine's doing.
func event(t *rapid.T, l *orbit.MemoryLedger, i int) {
	s := snapshot(t, l)
	node := rapid.SampledFrom(slices.Collect(s.Nodes())).Draw(t, "node")
	capsules := slices.SortedFunc(s.Capsules(), func(a, b *orbit.Capsule) int { return int(a.Submitted) - int(b.Submitted) })
	capsules = slices.DeleteFunc(capsules, (*orbit.Capsule).Released)
	try := func(do ...orbit.Commitment) { _, _ = l.Propose(context.Background(), orbit.Proposal{Do: do}) }
	switch rapid.IntRange(0, 10).Draw(t, "event") {
	case 0, 1, 2:
		try(submit(10*i, 10*i+rapid.IntRange(1, 5).Draw(t, "capsules"), wants(rapid.Int64Range(1, 3).Draw(t, "cpu"), 0)))
	case 3, 4:
		if len(capsules) > 0 {
			try(orbit.Release{Capsule: rapid.SampledFrom(capsules).Draw(t, "capsule").ID, Final: true})
		}
	case 5:
		lost := *node.Node
		lost.State = orbit.Lost
		do := []orbit.Commitment{orbit.PutNode{Node: lost}}
		for c := range s.On(lost.ID) {
			do = append(do, orbit.Release{Capsule: c.ID})
		}
		try(append(do, orbit.RemoveNode{Node: lost.ID})...)
		try(orbit.PutNode{Node: orbit.Node{ID: lost.ID, Capacity: lost.Capacity, Labels: lost.Labels}})
	case 6:
		n := *node.Node
		n.Cordon(n.State == orbit.Ready)
		try(orbit.PutNode{Node: n})
	case 10: // it fails for the first time; long ago, or by a clock that is ahead, so that the node is avoided until the test has ended
		at := rapid.SampledFrom([]time.Time{time.Unix(1, 0), time.Now().Add(4 * time.Minute)}).Draw(t, "at")
		failed := func(c *orbit.Capsule) bool { return c.Pending() || s.Failures(c.ID).Attempts > 0 }
		if capsules = slices.DeleteFunc(capsules, failed); len(capsules) > 0 {
			try(orbit.Release{Capsule: rapid.SampledFrom(capsules).Draw(t, "capsule").ID, Stopped: true, At: orbit.Instant(at.UnixNano())})
		}
	case 7:
		try(orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "g", Expected: i}}, orbit.Mark{Key: "k", Value: "v"})
	case 8:
		try(orbit.Submit{IDs: []orbit.CapsuleID{submit(10*i, 10*i+1, nil).IDs[0]}, Spec: wants(1, 0), Owner: "elsewhere"})
	default:
		for _, c := range capsules {
			if c.Owner() == "elsewhere" && c.Pending() {
				try(orbit.Place{Capsule: c.ID, Node: node.Node.ID})
			}
		}
	}
}

// sameRecords compares what reality says with what a World has, and where the capsules are.
func sameRecords(t require.TestingT, actual, world *orbit.State, nodes bool) {
	for n := range actual.Nodes() {
		require.Equal(t, n.Node, world.Node(n.Node.ID).Node)
	}
	require.Equal(t, actual.NodeCount(), world.NodeCount())
	for c := range actual.Capsules() {
		here := world.Capsule(c.ID)
		require.NotNil(t, here)
		require.Equal(t, c.Released(), here.Released(), c.ID)
		if nodes {
			require.Equal(t, c.Node, here.Node, c.ID)
		}
	}
	require.Equal(t, actual.CapsuleCount(), world.CapsuleCount())
	budget := func(s *orbit.State) int {
		b, _ := s.Budget("b")
		return b.Budget.Expected
	}
	require.Equal(t, budget(actual), budget(world))
}

// A node leaves that is empty in reality and not in the World: what runs there is lost and placed elsewhere.
func TestWorldLosesWhatRunsElsewhere(t *testing.T) {
	l := racks(t, 1, 3)
	w := worldOf(l, func() orbit.Navigator { return &packer{} })
	step(t, w)
	commit(t, l, submit(0, 3, wants(1, 0)), orbit.Place{Capsule: "c000", Node: "r0-n1"}, orbit.Place{Capsule: "c001", Node: "r0-n1"}, orbit.Place{Capsule: "c002", Node: "r0-n2"})
	require.Equal(t, 3, step(t, w).Elsewhere)
	require.Equal(t, 3, w.State().Node("r0-n0").Capsules)
	commit(t, l, orbit.RemoveNode{Node: "r0-n0"})
	r := step(t, w)
	require.Nil(t, w.State().Node("r0-n0"))
	require.Equal(t, 3, r.Shadow.Placed)
	require.Zero(t, r.Missed)
}

// Agents of the real nodes do not confirm in the World, so what leaves there stops at once.
func TestWorldDoesNotConfirm(t *testing.T) {
	l := &orbit.MemoryLedger{}
	node := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4}, Confirms: true}
	commit(t, l, orbit.PutNode{Node: node}, submit(0, 2, wants(4, 0)), orbit.Place{Capsule: "c000", Node: "n"})
	commit(t, l, orbit.Confirm{Capsule: "c000", Since: snapshot(t, l).Capsule("c000").PlacedAt, Begun: true})
	commit(t, l, orbit.Release{Capsule: "c000", Final: true})
	w := worldOf(l, func() orbit.Navigator { return &packer{} })
	step(t, w)
	require.True(t, w.State().Capsule("c001").Placed())
	require.False(t, w.State().Capsule("c001").Waits)
	require.False(t, w.State().Node("n").Node.Confirms)
	commit(t, l, submit(2, 3, wants(4, 0)))
	commit(t, l, orbit.Release{Capsule: "c001", Final: true})
	require.Equal(t, 1, step(t, w).OnlyShadow)
}

// A capsule that was evicted and still stops gets other groups there. In the World, where it does not stop, nothing changes for it.
func TestWorldRespecsNothingThatStops(t *testing.T) {
	l := &orbit.MemoryLedger{}
	node := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4}, Confirms: true}
	commit(t, l, orbit.PutNode{Node: node}, submit(0, 1, wants(4, 0)), orbit.Place{Capsule: "c000", Node: "n"})
	since := snapshot(t, l).Capsule("c000").PlacedAt
	commit(t, l, orbit.Confirm{Capsule: "c000", Since: since, Begun: true})
	cordoned := node
	cordoned.State = orbit.Cordoned
	commit(t, l, orbit.PutNode{Node: cordoned})
	w := worldOf(l, func() orbit.Navigator { return &packer{} })
	step(t, w)
	commit(t, l, orbit.Release{Capsule: "c000", From: "n"})
	loud := wants(4, 0)
	loud.Group = "loud"
	commit(t, l, orbit.Respec{Capsule: "c000", Since: since, Spec: loud, Stopping: true})
	require.Zero(t, step(t, w).Missed)
	require.True(t, w.State().Capsule("c000").Pending())
	require.Empty(t, w.State().Capsule("c000").Spec.Group)
}

// A history that does not reach back makes the World begin anew.
func TestWorldBeginsAnew(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 4}}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 40}}})
	w := worldOf(l, func() orbit.Navigator { return &packer{} })
	step(t, w)
	for i := range 10 {
		commit(t, l, submit(i, i+1, wants(1, 0)))
	}
	require.Equal(t, 1, step(t, w).Anew)
	require.Equal(t, 10, w.Report().Shadow.Placed)
}

// Run follows reality, and steps when time has passed.
func TestWorldRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := racks(t, 1, 2)
		w := worldOf(l, func() orbit.Navigator { return &packer{} })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		commit(t, l, submit(0, 2, wants(1, 0)))
		synctest.Wait()
		require.Equal(t, 2, w.Report().Shadow.Placed)
		require.Equal(t, 2, w.Report().Real.Pending)
		time.Sleep(10 * time.Second)
		actual := &orbit.Engine{Name: "real", Ledger: l, Navigator: &packer{}}
		actual.Pass(ctx)
		synctest.Wait()
		r := w.Report()
		require.Equal(t, 2, r.Same, r)
		require.Equal(t, 10*time.Second, r.Real.Longest, r)
		require.Zero(t, r.Shadow.Longest, r)
		require.ErrorContains(t, w.Run(ctx), "runs already")
		cancel()
		require.NoError(t, <-done)
	})
}
