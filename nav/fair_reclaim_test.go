package nav_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// reclaiming returns an engine that orders by shares and takes back what is borrowed.
func reclaiming(l orbit.Ledger) *orbit.Engine {
	return &orbit.Engine{Name: "fair", Ledger: l, Navigator: &nav.Fair{Navigator: &nav.Preempting{Navigator: &nav.Services{}}}}
}

// passes runs passes until nothing is committed any more, and requires that there are no more than so many, and that no plan is
// refused by its own view.
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

// TestFairComesToRest lets engines run in worlds of queues whose work reclaims: preemptions stop, no plan is refused by its
// own view, what was evicted and waits again evicts nobody, and a queue gets what it has of its own in the second pass at the latest.
func TestFairComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, queueOf("root", "", 0, 0))
		ids, own, sum := []orbit.QueueID{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(t, "queues")], map[orbit.QueueID]int64{}, int64(0)
		for _, id := range ids {
			own[id] = rapid.Int64Range(0, 6).Draw(t, "own")
			sum += own[id]
			commit(t, l, queueOf(id, "root", own[id], rapid.Int64Range(1, 3).Draw(t, "weight")))
		}
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1000 * (sum + rapid.Int64Range(0, 2).Draw(t, "more"))}}})
		e := reclaiming(l)
		for wave := range rapid.IntRange(1, 5).Draw(t, "waves") {
			for i := range rapid.IntRange(1, 6).Draw(t, "capsules") {
				s := inQueue(rapid.SampledFrom(ids).Draw(t, "queue"), rapid.Int64Range(1, 3).Draw(t, "cores"), rapid.Int32Range(0, 2).Draw(t, "priority"))
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("w%d-%d", wave, i))}, Spec: s})
			}
			passes(t, e, 12)
			s, err := l.Snapshot(context.Background())
			require.NoError(t, err)
			for c := range s.Capsules() {
				q, _ := s.Queue(c.Spec.Queue)
				require.False(t, c.Pending() && q.Used()["cpu"]+c.Spec.Envelope.Reservation[orbit.CPU] <= 1000*own[q.Queue.ID],
					"capsule %s waits, and its queue %s uses %d of its own %d", c.ID, q.Queue.ID, q.Used()["cpu"], own[q.Queue.ID])
			}
		}
	})
}
