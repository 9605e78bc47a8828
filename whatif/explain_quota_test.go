package whatif_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/whatif"
)

// A node has room, and the queue has none: the explanation says what is missing, where in the tree, and who has borrowed it.
func TestExplainsQuota(t *testing.T) {
	l := &orbit.MemoryLedger{}
	cores := func(q orbit.QueueID, n int64) *orbit.Spec {
		return &orbit.Spec{Queue: q, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1000 * n}}}
	}
	own := func(id, parent orbit.QueueID, n int64) orbit.PutQueue {
		return orbit.PutQueue{Queue: orbit.Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": 1000 * n}}}
	}
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 20_000}}}, own("root", "", 0), own("a", "root", 2), own("b", "root", 3),
		orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: cores("b", 4)}, orbit.Place{Capsule: "x", Node: "n"},
	}})
	require.NoError(t, err)
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	for _, c := range []struct {
		spec  *orbit.Spec
		lacks []string
	}{
		{cores("a", 1), nil},
		{cores("a", 2), []string{`queue "a" lacks 1 core at queue "root"; borrowed by "b"`}},
		{cores("b", 2), []string{`queue "b" lacks 1 core at queue "root"`}},
		{cores("", 9), nil},
		{cores("unknown", 9), nil},
	} {
		e, err := whatif.Explain(context.Background(), s, c.spec)
		require.NoError(t, err)
		require.Equal(t, 1, e.Fits)
		require.Equal(t, c.lacks, e.Lacks, "%s", c.spec.Queue)
		for _, text := range c.lacks {
			require.Contains(t, e.String(), text)
		}
		if c.lacks == nil {
			require.Nil(t, e.Raise)
			continue
		}
		require.Contains(t, e.String(), fmt.Sprintf("it would be enough to raise the quota of queue %q: cpu from ", c.spec.Queue))
		raises(t, s, c.spec, e.Raise)
	}
}

// raises requires that nothing is missing any more with the raised queue, and that each raise is the least.
func raises(t require.TestingT, s *orbit.State, spec *orbit.Spec, to *orbit.Queue) {
	lacks := func(q orbit.Queue) []string {
		changes := []orbit.Change{{Revision: s.Revision() + 1, Do: orbit.PutQueue{Queue: q}}}
		next, err := s.Apply(changes)
		require.NoError(t, err)
		e, err := whatif.Explain(context.Background(), next, spec)
		require.NoError(t, err)
		return e.Lacks
	}
	require.Empty(t, lacks(*to))
	was, _ := s.Queue(to.ID)
	for name, x := range to.Nominal {
		if x != was.Queue.Nominal[name] {
			less := *to
			less.Nominal = maps.Clone(to.Nominal)
			less.Nominal[name]--
			require.NotEmpty(t, lacks(less), "%s", name)
		}
	}
}

// TestRaisesQuota checks on random trees, with limits of borrowing and lending, that the raise that an explanation names is enough, and no more.
func TestRaisesQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		commits := func(do ...orbit.Commitment) {
			_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
			require.NoError(t, err)
		}
		amounts := func(name string) map[string]int64 {
			out := map[string]int64{}
			for _, of := range []string{"cpu", "memory"} {
				if rapid.Bool().Draw(t, name+" names "+of) {
					out[of] = rapid.Int64Range(0, 6).Draw(t, name+" of "+of)
				}
			}
			return out
		}
		ids := []orbit.QueueID{"q0", "q1", "q2", "q3"}
		commits(orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 100, orbit.Memory: 100}}})
		for i, id := range ids {
			q := orbit.Queue{ID: id, Nominal: amounts("nominal"), Borrow: amounts("borrow"), Lend: amounts("lend")}
			if i > 0 {
				q.Parent = ids[rapid.IntRange(0, i-1).Draw(t, "parent")]
			}
			commits(orbit.PutQueue{Queue: q})
		}
		draw := func() *orbit.Spec {
			return &orbit.Spec{Queue: rapid.SampledFrom(ids).Draw(t, "queue"),
				Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: rapid.Int64Range(0, 5).Draw(t, "cores"), orbit.Memory: rapid.Int64Range(0, 5).Draw(t, "memory")}}}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "running") {
			commits(orbit.Adopt{Capsule: orbit.CapsuleID(fmt.Sprint("c", i)), Spec: draw(), Node: "n"})
		}
		s, err := l.Snapshot(context.Background())
		require.NoError(t, err)
		spec := draw()
		e, err := whatif.Explain(context.Background(), s, spec)
		require.NoError(t, err)
		require.Equal(t, e.Lacks == nil, e.Raise == nil)
		if e.Raise != nil {
			raises(t, s, spec, e.Raise)
		}
	})
}

// The raise that the explanation of a gang names is enough for nav.Gang to place the members that the gang needs, and with one less of
// anything it places none: for a gang in one queue that may borrow, and for a gang whose roles are in two queues.
func TestRaisesQuotaForGangs(t *testing.T) {
	ctx := context.Background()
	queue := func(id, parent orbit.QueueID, nominal int64) orbit.PutQueue {
		return orbit.PutQueue{Queue: orbit.Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": nominal}}}
	}
	role := func(name string, q orbit.QueueID, cores int64, least int, ids ...orbit.CapsuleID) orbit.Role {
		return orbit.Role{Name: name, Min: least, Members: ids, Spec: &orbit.Spec{Queue: q, Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cores}}}}
	}
	for name, c := range map[string]struct {
		roles []orbit.Role
		lacks int
		want  map[orbit.QueueID]int64
	}{
		"in one queue":              {[]orbit.Role{role("w", "a", 2, 3, "w0", "w1", "w2", "w3")}, 1, map[orbit.QueueID]int64{"a": 5}},
		"in two queues":             {[]orbit.Role{role("w", "a", 2, 0, "w0", "w1"), role("m", "c", 3, 0, "m0")}, 1, map[orbit.QueueID]int64{"c": 3}},
		"in two queues of one tree": {[]orbit.Role{role("w", "a", 2, 0, "w0", "w1"), role("m", "b", 3, 0, "m0")}, 1, map[orbit.QueueID]int64{"a": 6}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
				orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 100}}}, queue("root", "", 0), queue("a", "root", 3), queue("b", "root", 1), queue("c", "", 0),
				orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: c.roles}},
			}})
			require.NoError(t, err)
			s, err := l.Snapshot(ctx)
			require.NoError(t, err)
			e, err := whatif.ExplainGang(ctx, s, "g")
			require.NoError(t, err)
			require.Len(t, e.Lacks, c.lacks)
			require.Contains(t, e.String(), "\n"+e.Lacks[0])
			require.Contains(t, e.String(), "it would be enough to raise the quota of queue")
			got := map[orbit.QueueID]int64{}
			for _, q := range e.Raise {
				got[q.ID] = q.Nominal["cpu"]
			}
			require.Equal(t, c.want, got)
			for less := range int64(2) {
				next := s
				for _, q := range e.Raise {
					q.Nominal = map[string]int64{"cpu": q.Nominal["cpu"] - less}
					next, err = next.With(orbit.Proposal{View: next.Revision(), Do: []orbit.Commitment{orbit.PutQueue{Queue: q}}})
					require.NoError(t, err)
				}
				after := &orbit.MemoryLedger{Start: next}
				(&orbit.Engine{Ledger: after, Navigator: &nav.Gang{}}).Pass(ctx)
				now, err := after.Snapshot(ctx)
				require.NoError(t, err)
				require.Equal(t, less == 0, now.Gang("g").Total() >= e.Wants, "%d less", less)
				require.True(t, less == 0 || now.Gang("g").Total() == 0)
				again, err := whatif.ExplainGang(ctx, now, "g")
				require.NoError(t, err)
				require.Equal(t, less == 1, len(again.Lacks) > 0)
			}
		})
	}
}
