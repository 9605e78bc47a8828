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
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

func commit(t require.TestingT, l orbit.Ledger, do ...orbit.Commitment) {
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

// viewOf returns a view of the ledger as it is now.
func viewOf(t require.TestingT, l orbit.Ledger) *orbit.View {
	view := &orbit.View{}
	require.NoError(t, view.Refresh(context.Background(), l, nil, time.Now()))
	return view
}

func snapshot(t require.TestingT, l orbit.Ledger) *orbit.State {
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return s
}

func node(id string, cpu int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: cpu}}}
}

func spec(cpu int64, priority int32) *orbit.Spec {
	return &orbit.Spec{Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
}

// Services takes latency-sensitive and best-effort work of any module, and nothing else.
func TestServicesClaims(t *testing.T) {
	var s nav.Services
	for class, want := range map[orbit.AppClass]bool{
		orbit.LatencySensitive: true, orbit.BestEffort: true, orbit.Batch: false, orbit.GangClass: false,
	} {
		assert.Equal(t, want, s.Claims("any", class), "%v", class)
		assert.Equal(t, want, s.Claims("", class), "%v", class)
	}
}

// It reserves as it goes: with random capacities and sizes no node is ever planned past what it has, every
// proposal of a plan commits on an idle ledger (SCENARIOS 18), and what is left over fits nowhere.
func TestServicesNeverOversubscribed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		for i, cpu := range rapid.SliceOfN(rapid.Int64Range(0, 10), 1, 8).Draw(t, "capacities") {
			commit(t, l, node(fmt.Sprint("n", i), cpu))
		}
		for i, cpu := range rapid.SliceOfN(rapid.Int64Range(0, 6), 0, 30).Draw(t, "sizes") {
			priority := rapid.Int32Range(0, 2).Draw(t, "priority")
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: spec(cpu, priority)})
		}
		pending := snapshot(t, l).PendingCount()
		e := orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
		round := e.Pass(context.Background())
		require.Empty(t, round.Errors)
		require.Zero(t, round.Conflicts+round.Infeasible)
		require.Equal(t, pending, round.Committed+len(round.Unplaced))
		s := snapshot(t, l)
		require.NoError(t, s.Verify())
		for n := range s.Nodes() {
			require.True(t, n.Used().Within(n.Node.Capacity))
			for _, u := range round.Unplaced {
				require.False(t, n.Fits(u.Capsule.Spec), "%s is left over, and fits on %s", u.Capsule.ID, n.Node.ID)
			}
		}
	})
}

// Where there is not room for all of a pass, those that came first are placed, as if it had planned in order all along;
// where there is, all are.
func TestServicesLeavesOutTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ordered, byClass := &orbit.MemoryLedger{}, &orbit.MemoryLedger{}
		var do []orbit.Commitment
		for i, cpu := range rapid.SliceOfN(rapid.Int64Range(1, 10), 1, 5).Draw(t, "capacities") {
			do = append(do, node(fmt.Sprint("n", i), cpu))
		}
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 4), 0, 20).Draw(t, "sizes")
		for i, cpu := range sizes {
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: spec(cpu, 0)})
		}
		commit(t, ordered, do...)
		commit(t, byClass, do...)
		first := (&orbit.Engine{Ledger: ordered, Navigator: &nav.Services{InOrder: true}}).Pass(context.Background())
		second := (&orbit.Engine{Ledger: byClass, Navigator: &nav.Services{}}).Pass(context.Background())
		if len(second.Unplaced) == 0 {
			require.Equal(t, len(sizes), second.Committed)
			return
		}
		require.Len(t, second.Unplaced, len(first.Unplaced))
		for i := range sizes {
			id := orbit.CapsuleID(fmt.Sprint("c", i))
			require.Equal(t, snapshot(t, ordered).Capsule(id).Node, snapshot(t, byClass).Capsule(id).Node, "%s", id)
		}
	})
}

// With room for all, the order is class by class, or that of submission if so asked for.
func TestServicesInOrder(t *testing.T) {
	for inOrder, want := range map[bool][]orbit.CapsuleID{false: {"1", "3", "2"}, true: {"1", "2", "3"}} {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("n", 10))
		for i, id := range []orbit.CapsuleID{"1", "2", "3"} {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(int64(1+i%2), 0)})
		}
		e := orbit.Engine{Ledger: l, Navigator: &nav.Services{InOrder: inOrder}}
		require.Equal(t, 3, e.Pass(t.Context()).Committed)
		changes, err := l.Changes(t.Context(), 0)
		require.NoError(t, err)
		var got []orbit.CapsuleID
		for _, c := range changes {
			if place, ok := c.Do.(orbit.Place); ok {
				got = append(got, place.Capsule)
			}
		}
		assert.Equal(t, want, got)
	}
}

// Highest priority first: when there is not enough for all, those below go without.
func TestServicesServesPriorityFirst(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 10))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: spec(6, 1)}, orbit.Submit{IDs: []orbit.CapsuleID{"high"}, Spec: spec(6, 2)})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
	round := e.Pass(t.Context())
	require.Len(t, round.Unplaced, 1)
	assert.Equal(t, orbit.CapsuleID("low"), round.Unplaced[0].Capsule.ID)
	require.EqualError(t, round.Unplaced[0].Why, "0 of 1 nodes fit: 1 lacks cpu")
	assert.Equal(t, orbit.NodeID("n"), snapshot(t, l).Capsule("high").Node)
}

// The zero value spreads; a class that fits nowhere is looked at once for all its capsules.
func TestServicesSpreadsAndAsksOnce(t *testing.T) {
	l, asked := &orbit.MemoryLedger{}, 0
	commit(t, l, node("a", 10), node("b", 10), node("c", 10))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"1", "2", "3"}, Spec: spec(1, 0)})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
	require.Equal(t, 3, e.Pass(t.Context()).Committed)
	for n := range snapshot(t, l).Nodes() {
		assert.Equal(t, 1, n.Capsules)
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"4", "5", "6", "7"}, Spec: spec(9, 0)})
	counting := &place.Exhaustive{Filter: func(*orbit.NodeState, *orbit.Report, *orbit.Spec) string { asked++; return "are not liked" }}
	e = orbit.Engine{Ledger: l, Navigator: &nav.Services{Placement: counting}}
	round := e.Pass(t.Context())
	assert.Len(t, round.Unplaced, 4)
	assert.Equal(t, 6, asked, "three nodes, once to find and once to say why")
	assert.Equal(t, 1, round.Parked)
}

// When its time is up it hands over what it has, which counts, and says why there is no more.
func TestServicesEndsWithItsContext(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 10))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"1", "2", "3"}, Spec: spec(1, 0)})
	ctx, cancel := context.WithCancel(t.Context())
	s := &nav.Services{Placement: &place.Exhaustive{Score: score.Func(func(*orbit.NodeState, *orbit.Report, *orbit.Spec) (float64, float64) {
		cancel()
		return 0, 0
	})}}
	e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		plan, err := s.Plan(ctx, view, pending)
		assert.Len(t, plan.Proposals, 1)
		assert.ErrorIs(t, err, context.Canceled)
		return plan, err
	})}
	assert.Equal(t, 1, e.Pass(t.Context()).Committed)
}

// In a population: from Submit to the first placement no time goes by, and batch work is left to others.
func TestServicesInAPopulation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 10))
		var reported []error
		p := orbit.Population{Engines: []*orbit.Engine{{Name: "services", Ledger: l, Navigator: &nav.Services{}}},
			OnError: func(err error) { reported = append(reported, err) }}
		go func() { assert.NoError(t, p.Run(t.Context())) }()
		time.Sleep(time.Hour)
		batch := spec(1, 0)
		batch.Class = orbit.Batch
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"s"}, Spec: spec(1, 0)}, orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: batch})
		synctest.Wait()
		s := snapshot(t, l)
		assert.True(t, s.Capsule("s").Placed())
		assert.False(t, s.Capsule("b").Placed())
		require.Len(t, reported, 1)
		var unplaced orbit.Unplaced
		require.ErrorAs(t, reported[0], &unplaced)
		assert.Equal(t, orbit.CapsuleID("b"), unplaced.Capsule.ID)
	})
}
