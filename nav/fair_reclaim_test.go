package nav_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// reclaiming returns an engine that orders by shares and takes back what is borrowed.
func reclaiming(l orbit.Ledger) *orbit.Engine {
	return &orbit.Engine{Name: "fair", Ledger: l, Navigator: &nav.Fair{Navigator: &nav.Preempting{Navigator: &nav.Services{}}}}
}

// passes runs passes until nothing is committed any more, and requires that the given number is enough, and that no
// plan is refused by its own view.
func passes(t require.TestingT, e *orbit.Engine, most int) {
	for range most {
		round := e.Pass(context.Background())
		require.Empty(t, round.Errors)
		require.Zero(t, round.Infeasible)
		if round.Committed == 0 {
			return
		}
	}
	require.Fail(t, "the engine does not come to rest", "%d passes", most)
}

// where returns the ids of the capsules that are placed and begin with a prefix, in order.
func where(t require.TestingT, l orbit.Ledger, prefix string) string {
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	var ids []string
	for c := range s.Capsules() {
		if c.Placed() && strings.HasPrefix(string(c.ID), prefix) {
			ids = append(ids, string(c.ID))
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// TestFairReclaims has evictions that were worked out by hand: a queue takes back what it has of its own, from those that
// borrow most, there from the lowest priority, and then from the newest.
func TestFairReclaims(t *testing.T) {
	three := []orbit.Commitment{queueOf("root", "", 0, 0), queueOf("a", "root", 4, 0), queueOf("b", "root", 4, 0), queueOf("c", "root", 4, 0)}
	for _, c := range []struct {
		name             string
		cores            int64
		queues           []orbit.Commitment
		running, waiting []string
		stays            string
	}{
		{"priority is no protection, and none is needed", 12, three,
			[]string{"b 1 x0", "b 5 x1 9", "b 4 x2 9", "b 2 x3 9"}, []string{"a 2 w0"}, "w0 x0 x1 x2"},
		{"the queue that borrows most gives first, and there the lowest priority", 12, three,
			[]string{"b 5 x0", "c 6 x1", "c 1 x2 5"}, []string{"a 1 w0"}, "w0 x0 x2"},
		{"only quota is short, not room", 100, three,
			[]string{"b 4 x0", "b 4 x1", "c 4 x2"}, []string{"a 4 w0"}, "w0 x0 x2"},
		{"a queue that does not borrow gives nothing", 12, three,
			[]string{"a 4 x0", "b 4 x1", "c 4 x2"}, []string{"a 4 w0"}, "x0 x1 x2"},
		{"within a queue, priority evicts as without queues", 12, three,
			[]string{"a 4 x0", "b 4 x1", "c 4 x2"}, []string{"a 4 w0 9"}, "w0 x1 x2"},
		{"what borrows takes from those that borrow more, but not so much that they borrow less", 100, three,
			[]string{"b 6 x0", "b 1 x1", "b 1 x2", "a 4 x3"}, []string{"a 1 w0", "a 1 w1", "a 1 w2"}, "w0 w1 x0 x3"},
		{"within a queue, priority decides", 100, three,
			[]string{"a 4 x0", "b 4 x1", "c 4 x2"}, []string{"a 4 w0 1", "b 4 w1"}, "w0 x1 x2"},
		{"work of another tree, and of no queue, is not reclaimed", 8, append(slices.Clone(three), queueOf("other", "", 4, 0)),
			[]string{"other 4 x0", "- 4 x1"}, []string{"a 4 w0"}, "x0 x1"},
		{"a big one is evicted where small ones do not help", 8, three,
			[]string{"b 7 x0", "c 1 x1"}, []string{"a 4 w0"}, "w0 x1"},
		{"a queue keeps what is its own, and others that borrow give the rest", 7,
			[]orbit.Commitment{queueOf("root", "", 0, 0), queueOf("a", "root", 5, 0), queueOf("b", "root", 1, 0), queueOf("c", "root", 0, 0), queueOf("d", "c", 1, 0)},
			[]string{"root 1 x0", "root 1 x1", "b 1 x2", "b 2 x3", "c 2 x4"}, []string{"a 3 w0"}, "w0 x0 x2 x4"},
		{"one may leave only after another has", 2, []orbit.Commitment{queueOf("root", "", 0, 0), queueOf("team", "root", 0, 0), queueOf("a", "team", 2, 0)},
			[]string{"root 1 x0", "team 1 x1"}, []string{"a 2 w0"}, "w0"},
		{"what leaves on the own side lowers the share", 3, []orbit.Commitment{queueOf("root", "", 0, 0), queueOf("team", "root", 0, 0), queueOf("a", "team", 3, 0)},
			[]string{"root 1 x0", "team 1 x1", "a 1 x2"}, []string{"a 2 w0"}, "w0 x2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, append([]orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1000 * c.cores}}}}, c.queues...)...)
			for _, line := range c.running {
				s, id := fairSpec(line)
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: "n"})
			}
			for _, line := range c.waiting {
				s, id := fairSpec(line)
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s})
			}
			passes(t, reclaiming(l), 6)
			require.Equal(t, c.stays, where(t, l, ""))
		})
	}
}

// TestFairReclaimsForAGang checks that a gang counts whole: it takes back for all of its members, or for none.
func TestFairReclaimsForAGang(t *testing.T) {
	for _, own := range []int64{4, 3} {
		l := &orbit.MemoryLedger{}
		commit(t, l, queueOf("root", "", 0, 0), queueOf("a", "root", own, 0), queueOf("b", "root", 8-own, 0))
		for n := range 4 {
			node := orbit.NodeID(fmt.Sprint("n", n))
			commit(t, l, orbit.PutNode{Node: orbit.Node{ID: node, Capacity: orbit.Resources{orbit.CPU: 2000}}})
			for k := range 2 {
				id := orbit.CapsuleID(fmt.Sprintf("b%d%d", n, k))
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: inQueue("b", 1, 5)}, orbit.Place{Capsule: id, Node: node})
			}
		}
		role := orbit.Role{Name: "r", Members: []orbit.CapsuleID{"g0", "g1"}, Min: 2, Spec: inQueue("a", 2, 0)}
		role.Spec.Class = orbit.GangClass
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{role}}})
		e := &orbit.Engine{Name: "fair", Ledger: l, Navigator: &nav.Fair{Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}}
		passes(t, e, 6)
		want := map[int64]string{4: "g0 g1", 3: ""}[own] // with 3, a would borrow 1, and b nothing
		require.Equal(t, want, where(t, l, "g"))
	}
}

// TestFairComesToRest lets engines run in worlds of queues, of up to three levels, whose work reclaims: preemptions stop, and no plan is refused by its
// own view. In trees of one level, what was evicted and waits again evicts nobody of the queue that it made way for, and a queue gets what it
// has of its own; in hierarchies both fail in rare worlds. The work of one queue has one priority, because evictions by priority within a queue,
// together with reclaims, may run round.
func TestFairComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		ids, own, sum := []orbit.QueueID{"root"}, map[orbit.QueueID]int64{}, rapid.Int64Range(0, 2).Draw(t, "of the root")
		commit(t, l, queueOf("root", "", sum, 0))
		var middle []orbit.QueueID
		for i := range rapid.IntRange(2, 5).Draw(t, "queues") {
			id, parent := orbit.QueueID(fmt.Sprint("q", i)), rapid.SampledFrom(append([]orbit.QueueID{"root"}, middle...)).Draw(t, "parent")
			if parent == "root" && i < 3 && rapid.Bool().Draw(t, "has children") {
				middle = append(middle, id)
			}
			own[id] = rapid.Int64Range(0, 6).Draw(t, "own")
			sum += own[id]
			ids = append(ids, id)
			commit(t, l, queueOf(id, parent, own[id], rapid.Int64Range(1, 3).Draw(t, "weight")))
		}
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1000 * (sum + rapid.Int64Range(0, 2).Draw(t, "more"))}}})
		e, priorities := reclaiming(l), map[orbit.QueueID]int32{}
		for _, id := range ids {
			priorities[id] = rapid.Int32Range(0, 2).Draw(t, "priority")
		}
		for wave := range rapid.IntRange(1, 5).Draw(t, "waves") {
			for i := range rapid.IntRange(1, 6).Draw(t, "capsules") {
				s := inQueue(rapid.SampledFrom(ids).Draw(t, "queue"), rapid.Int64Range(1, 3).Draw(t, "cores"), 0)
				s.Priority = priorities[s.Queue]
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("w%d-%d", wave, i))}, Spec: s})
			}
			before := revision(t, l)
			passes(t, e, 12)
			e.Nudge() // what is parked may be able to reclaim by now; ParkFor would bring it back, too
			passes(t, e, 12)
			s, err := l.Snapshot(context.Background())
			require.NoError(t, err)
			if len(middle) > 0 {
				continue
			}
			noRevenge(t, l, s, before)
			for c := range s.Capsules() {
				q, _ := s.Queue(c.Spec.Queue)
				require.False(t, c.Pending() && own[q.Queue.ID] > 0 && q.Used()["cpu"]+c.Spec.Envelope.Reservation[orbit.CPU] <= 1000*own[q.Queue.ID],
					"capsule %s waits, and its queue %s uses %d of its own %d", c.ID, q.Queue.ID, q.Used()["cpu"], own[q.Queue.ID])
			}
		}
	})
}

// noRevenge checks that no capsule that was evicted evicts work of the queue for which it was, unless that is its own, or its queue has lost
// other work since to a third queue.
func noRevenge(t require.TestingT, l orbit.Ledger, s *orbit.State, after orbit.Revision) {
	type pair struct {
		victim orbit.CapsuleID
		queue  orbit.QueueID
	}
	evicted := map[pair]bool{}
	changes, err := l.Changes(context.Background(), after)
	require.NoError(t, err)
	for _, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok {
			of, by := s.Capsule(e.Capsule).Spec.Queue, s.Capsule(e.For).Spec.Queue
			require.False(t, of != by && evicted[pair{e.For, of}], "%s, which was evicted for queue %s, evicts %s of it", e.For, of, e.Capsule)
			for p := range evicted {
				if s.Capsule(p.victim).Spec.Queue == of && p.queue != by {
					delete(evicted, p)
				}
			}
			evicted[pair{e.Capsule, by}] = true
		}
	}
}

func revision(t require.TestingT, l orbit.Ledger) orbit.Revision {
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return s.Revision()
}

// TestFairInDefault checks that the population with all options gives a queue what is its own, and evicts for it.
func TestFairInDefault(t *testing.T) {
	s := inDefault(t, func(l *orbit.MemoryLedger) {
		commit(t, l, putOnRack("a1", 4), queueOf("root", "", 0, 0), queueOf("a", "root", 2, 0), queueOf("b", "root", 2, 0))
		for _, id := range []orbit.CapsuleID{"b1", "b2"} {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: inQueue("b", 2, 9)}, orbit.Place{Capsule: id, Node: "a1"})
		}
		batch := inQueue("a", 1, 0)
		batch.Class = orbit.Batch
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a1"}, Spec: inQueue("a", 1, 0)}, orbit.Submit{IDs: []orbit.CapsuleID{"a2"}, Spec: batch})
		time.Sleep(time.Minute)
	}, nav.Evicting, nav.Fairly)
	require.True(t, s.Capsule("a1").Placed() && s.Capsule("a2").Placed() && s.Capsule("b1").Placed() && s.Capsule("b2").Pending())
}

// TestPatientNominatesWithinQuota checks that no room is nominated for work that its queue has no quota for.
func TestPatientNominatesWithinQuota(t *testing.T) {
	for _, own := range []int64{4, 8} {
		l := &orbit.MemoryLedger{}
		commit(t, l, queueOf("a", "", own, 0), orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4000}}})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"r"}, Spec: inQueue("a", 3, 0)}, orbit.Place{Capsule: "r", Node: "n"})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"w"}, Spec: inQueue("a", 4, 0), At: ago(time.Hour)})
		e := &orbit.Engine{Name: "patient", Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Services{}, After: time.Second}}
		require.Empty(t, e.Pass(context.Background()).Errors)
		s, err := l.Snapshot(context.Background())
		require.NoError(t, err)
		require.Equal(t, own == 8, s.Capsule("w").Nomination().Lives())
	}
}

// TestFairSharesScarceRoom checks that where nodes, not quotas, are short, work takes the room in the order of the tournament, with each
// navigator, also against priority.
func TestFairSharesScarceRoom(t *testing.T) {
	for name, n := range map[string]orbit.Navigator{"services": &nav.Services{}, "batch": &nav.Batch{}} {
		l := &orbit.MemoryLedger{}
		commit(t, l, queueOf("root", "", 8, 0), queueOf("a", "root", 1, 0), queueOf("b", "root", 1, 0),
			orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4000}}})
		for i := range 4 {
			for q, priority := range map[orbit.QueueID]int32{"a": 9, "b": 0} {
				s := inQueue(q, 1, priority)
				if s.Class = orbit.LatencySensitive; name == "batch" {
					s.Class = orbit.Batch
				}
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint(q, i))}, Spec: s})
			}
		}
		passes(t, &orbit.Engine{Name: "fair", Ledger: l, Navigator: &nav.Fair{Navigator: n}}, 4)
		require.Equal(t, "a0 a1 b0 b1", where(t, l, ""), name)
	}
}

// TestFairRemembersUsage checks that with a half-life the queue goes first that has used less lately, and that this is forgotten by
// halves.
func TestFairRemembersUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, queueOf("root", "", 100, 0), queueOf("a", "root", 0, 0), queueOf("b", "root", 0, 0),
			orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 100_000}}})
		f := &nav.Fair{HalfLife: time.Hour}
		run := func(id orbit.CapsuleID, q orbit.QueueID, cores int64, lasts time.Duration) {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: inQueue(q, cores, 0)}, orbit.Place{Capsule: id, Node: "n"})
			fairOrder(t, l, f) // sees it
			time.Sleep(lasts)
			commit(t, l, orbit.Release{Capsule: id, Final: true})
			fairOrder(t, l, f)
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a-waits"}, Spec: inQueue("a", 1, 0)}, orbit.Submit{IDs: []orbit.CapsuleID{"b-waits"}, Spec: inQueue("b", 1, 0)})
		require.Equal(t, []string{"a-waits", "b-waits"}, fairOrder(t, l, f))
		run("a-1", "a", 8, time.Hour) // a: 4 on average
		require.Equal(t, []string{"b-waits", "a-waits"}, fairOrder(t, l, f))
		run("b-1", "b", 6, time.Hour) // b: 3, a: 2
		require.Equal(t, []string{"a-waits", "b-waits"}, fairOrder(t, l, f))
		time.Sleep(100 * time.Hour) // both: 0, so the order of submission decides again
		require.Equal(t, []string{"a-waits", "b-waits"}, fairOrder(t, l, f))
		run("a-2", "a", 1, time.Minute)
		require.Equal(t, []string{"b-waits", "a-waits"}, fairOrder(t, l, f))
	})
}

// TestFairNeedsItsFields checks the errors of a Fair that cannot plan.
func TestFairNeedsItsFields(t *testing.T) {
	_, err := (&nav.Fair{}).Plan(t.Context(), &orbit.View{}, nil)
	require.ErrorContains(t, err, "Navigator is nil")
	require.True(t, (&nav.Fair{}).Claims("m", orbit.Batch), "or nobody would hear of the error")
	_, err = (&nav.Fair{Navigator: &nav.Batch{}, HalfLife: -1}).Plan(t.Context(), &orbit.View{}, nil)
	require.ErrorContains(t, err, "HalfLife is negative")
}

// TestFairHearsEveryQueue checks that with a backlog larger than a pass, the first pass has work of each queue, in the engine's order, however low its
// priority.
func TestFairHearsEveryQueue(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, queueOf("a", "", 100, 0), queueOf("b", "", 100, 0), queueOf("c", "", 100, 0))
	submit(t, l, "a", 50, inQueue("a", 1, 9))
	submit(t, l, "none", 5, cores(1000, 5))
	submit(t, l, "b", 1, inQueue("b", 1, 1))
	submit(t, l, "c", 10, inQueue("c", 1, 0))
	e := &orbit.Engine{Name: "fair", Ledger: l, MaxPlan: 10}
	var seen []string
	e.Navigator = nav.Func(func(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		for _, c := range pending {
			seen = append(seen, string(c.ID))
		}
		return orbit.Plan{}, nil
	})
	e.Pass(context.Background())
	require.Equal(t, "a-0 a-1 a-2 a-3 a-4 a-5 a-6 b-0 c-0 c-1", strings.Join(seen, " "))
}
