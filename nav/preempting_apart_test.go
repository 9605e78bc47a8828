package nav_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// batchWeb is low batch work of the group "batch-web".
func batchWeb(milli int64) *orbit.Spec {
	s := cores(milli, 0)
	s.Class, s.Group = orbit.Batch, "batch-web"
	return s
}

// apartFrom is an urgent service that has to be apart from a group by a level.
func apartFrom(group, level string, milli int64) *orbit.Spec {
	s := cores(milli, 10)
	s.Apart = []orbit.Apart{{Group: group, Level: level}}
	return s
}

// webRacks puts nodes of 10 into racks, and so many of batchWeb on different nodes of each.
func webRacks(t require.TestingT, l orbit.Ledger, nodes int, webs ...int) {
	for r, n := range webs {
		for i := range nodes {
			on := fmt.Sprintf("r%d-%d", r, i)
			commit(t, l, rackNode(on, fmt.Sprint("r", r), 10))
			if i < n {
				put(t, l, "web-"+on, on, batchWeb(1))
			}
		}
	}
}

// Where every rack has members of the group, work that has to be apart from it evicts those of one rack, on several nodes: the fewest, and nobody else.
// They return to pending, are placed in other racks, and nobody is evicted twice.
func TestPreemptingWhomARuleKeepsOff(t *testing.T) {
	l := &orbit.MemoryLedger{}
	webRacks(t, l, 4, 3, 2, 4)
	submit(t, l, "urgent", 1, apartFrom("batch-web", "rack", 2))
	runOut(t, 10, preemptor(l, nil), &orbit.Engine{Name: "batch", Ledger: l, Navigator: &nav.Batch{}})
	require.ElementsMatch(t, []orbit.CapsuleID{"web-r1-0", "web-r1-1"}, evicted(t, l))
	s := snapshot(t, l)
	require.Equal(t, "r1", s.Node(s.Capsule("urgent-0").Node).Node.Labels["rack"])
	require.Zero(t, s.PendingCount(), "those who made way run elsewhere")
	require.Empty(t, brokenRules(s))
	require.NoError(t, s.Verify())
	causes(t, l, 0)

	l = &orbit.MemoryLedger{} // the rule is that of those who run
	webRacks(t, l, 4, 0)
	put(t, l, "lone", "r0-1", func() *orbit.Spec {
		s := apartFrom("db", "rack", 1)
		s.Priority = 1
		return s
	}())
	db := cores(1, 10)
	db.Group = "db"
	submit(t, l, "urgent", 1, db)
	runOut(t, 3, preemptor(l, nil))
	require.Equal(t, []orbit.CapsuleID{"lone"}, evicted(t, l))
	require.True(t, snapshot(t, l).Capsule("urgent-0").Placed())
}

// Budgets are kept: the rack is taken of which fewer may be missing, or none, and then the budget is named.
func TestPreemptingByARuleKeepsBudgets(t *testing.T) {
	for _, c := range []struct {
		missing int
		want    []orbit.CapsuleID
	}{
		{3, []orbit.CapsuleID{"web-r0-0", "web-r0-1", "web-r0-2"}}, {1, nil},
	} {
		l := &orbit.MemoryLedger{}
		webRacks(t, l, 4, 3, 4)
		commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "batch-web", Expected: 7, Missing: c.missing}})
		submit(t, l, "urgent", 1, apartFrom("batch-web", "rack", 2))
		e := preemptor(l, nil)
		e.ParkFor = time.Hour
		round := e.Pass(t.Context())
		require.ElementsMatch(t, c.want, evicted(t, l))
		if c.want == nil {
			require.ErrorContains(t, round.Unplaced[0].Why, "0 of 8 nodes fit: 8 have, or share their rack with, members of group batch-web, from which it has to be apart; "+
				"evicting work of lower priority would not help while a budget keeps some of it: ")
			require.ErrorContains(t, round.Unplaced[0].Why, `budget "b"`)
		}
	}
}

// Where not even eviction helps, the refusal says why: who has to leave is as important, or has begun where the newcomer would not wait for it. What nobody
// may make way for is parked, and comes back when the rule lets it.
func TestPreemptingByARuleThatStands(t *testing.T) {
	for name, important := range map[string]bool{"as important": true, "begun on two nodes": false} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			for i := range 2 {
				n := rackNode(fmt.Sprint("n", i), "r0", 10)
				n.Node.Confirms = true
				commit(t, l, n)
				s := batchWeb(1)
				if important {
					s.Priority = 10
				}
				put(t, l, fmt.Sprint("web", i), fmt.Sprint("n", i), s)
				id := orbit.CapsuleID(fmt.Sprint("web", i))
				commit(t, l, orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).PlacedAt, Begun: true})
			}
			submit(t, l, "urgent", 1, apartFrom("batch-web", "rack", 2))
			e := preemptor(l, nil)
			e.ParkFor = time.Hour
			round := e.Pass(t.Context())
			require.Equal(t, 1, round.Parked)
			require.ErrorContains(t, round.Unplaced[0].Why, "0 of 2 nodes fit: 2 have, or share their rack with, members of group batch-web, from which it has to be apart; "+
				"evicting work of lower priority would not help")
			require.Empty(t, evicted(t, l))
			for i := range 2 {
				id := orbit.CapsuleID(fmt.Sprint("web", i))
				since := snapshot(t, l).Capsule(id).PlacedAt
				commit(t, l, orbit.Release{Capsule: id, Final: true}, orbit.Confirm{Capsule: id, Since: since, Stopped: true})
			}
			runOut(t, 3, e)
			require.True(t, snapshot(t, l).Capsule("urgent-0").Placed())
		})
	}
}

// The members of a gang that has to be apart from a group evict that group from one rack, not from one rack for each of them.
func TestPreemptingByARuleForAGang(t *testing.T) {
	l := &orbit.MemoryLedger{}
	webRacks(t, l, 3, 2, 1, 3)
	comes(t, l, 3, 3, apartFrom("batch-web", "rack", 6))
	runOut(t, 3, &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}})
	require.Equal(t, []orbit.CapsuleID{"web-r1-0"}, evicted(t, l))
	require.Equal(t, 3, snapshot(t, l).Gang("urgent").Total())
	require.Empty(t, brokenRules(snapshot(t, l)))

	l = &orbit.MemoryLedger{} // once a rack is open, its other nodes are as good as what they still need
	webRacks(t, l, 2, 2, 2)
	commit(t, l, rackNode("more", "r1", 1))
	put(t, l, "web-more", "more", batchWeb(1))
	put(t, l, "x", "r0-1", cores(8, 0))
	comes(t, l, 2, 2, apartFrom("batch-web", "rack", 9))
	runOut(t, 3, &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}})
	require.ElementsMatch(t, []orbit.CapsuleID{"web-r0-0", "web-r0-1", "x"}, evicted(t, l))
}

// lookedAt is a ledger whose state is looked at after each revision.
type lookedAt struct {
	orbit.Ledger
	one  sync.Mutex
	look func(*orbit.State)
}

func (j *lookedAt) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	j.one.Lock()
	defer j.one.Unlock()
	rev, err := j.Ledger.Propose(ctx, p)
	if s, failed := j.Snapshot(ctx); err == nil && failed == nil {
		j.look(s)
	}
	return rev, err
}

// Several engines evict at once whom rules keep off their work, by node and by rack, while another one places again who has made way: at no revision is a rule
// broken, the state is sound, and all that is urgent is placed.
func TestPreemptorsByRulesRace(t *testing.T) {
	const racks, engines = 8, 3
	memory := &orbit.MemoryLedger{}
	webRacks(t, memory, 3, slices.Repeat([]int{2}, racks)...)
	var broken []string
	l := &lookedAt{Ledger: memory, look: func(s *orbit.State) {
		broken = append(broken, brokenRules(s)...)
		if err := s.Verify(); err != nil {
			broken = append(broken, err.Error())
		}
	}}
	var all []*orbit.Engine
	for i := range engines {
		level := []string{"rack", orbit.NodeKey, "rack"}[i]
		s := apartFrom("batch-web", level, 3)
		s.Group = fmt.Sprint("db", i)
		s.Apart = append(s.Apart, orbit.Apart{Group: s.Group, Level: level})
		for k := range 2 {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint(s.Group, "-", k))}, Owner: fmt.Sprint("e", i), Spec: s})
		}
		all = append(all, &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: l, Navigator: &nav.Preempting{Navigator: nav.Func((&nav.Services{}).Plan)}})
	}
	all = append(all, &orbit.Engine{Name: "batch", Ledger: l, Navigator: &nav.Batch{}})
	for range 30 {
		var wg sync.WaitGroup
		for _, e := range all {
			wg.Go(func() { e.Pass(t.Context()) })
		}
		wg.Wait()
	}
	require.Empty(t, broken)
	s := snapshot(t, l)
	for i := range engines {
		for k := range 2 {
			id := orbit.CapsuleID(fmt.Sprint("db", i, "-", k))
			require.True(t, s.Capsule(id).Placed(), id)
		}
	}
	_, total := evictions(t, l, 0)
	require.Positive(t, total)
	causes(t, l, 0)
	t.Logf("%d were evicted; %d of %d wait", total, s.PendingCount(), 2*racks)
}
