package orbit

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawMembers is a ledger with three nodes, one of them cordoned and one perhaps lost, with members of two groups on them, of
// priorities 0 to 2, and with budgets.
func drawMembers(t *rapid.T) court {
	c := court{nil, &MemoryLedger{}}
	commit(t, c, cpuNode("n", 8), cpuNode("m", 8), cpuNode("d", 8))
	for i := range rapid.IntRange(3, 8).Draw(t, "members") { // all fit on one node
		spec := cpuSpec(1)
		spec.Group = rapid.SampledFrom([]string{"db", "web", ""}).Draw(t, "group")
		spec.Movable = rapid.Bool().Draw(t, "movable")
		spec.Priority = rapid.Int32Range(0, 2).Draw(t, "priority")
		id := CapsuleID(fmt.Sprint("c", i))
		commit(t, c, submitOf(spec, id), placeOn(id, rapid.SampledFrom([]NodeID{"n", "m", "d"}).Draw(t, "node")))
	}
	commit(t, c, drainedNode("d", 8))
	if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
		commit(t, c, lostNode("m"))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "budgets") {
		b := Budget{ID: BudgetID(fmt.Sprint("b", i)), Group: rapid.SampledFrom([]string{"db", "web"}).Draw(t, "covers"),
			Expected: rapid.IntRange(0, 4).Draw(t, "expected"), Missing: rapid.IntRange(0, 2).Draw(t, "missing"), Above: rapid.Int32Range(0, 3).Draw(t, "above")}
		commit(t, c, PutBudget{b})
	}
	urgent := cpuSpec(8)
	urgent.Priority = rapid.Int32Range(1, 4).Draw(t, "urgency")
	commit(t, c, submitOf(urgent, "urgent"))
	return c
}

// TestDraftKeepsBudgets: what a draft takes is refused by no budget; and a step that it refuses because of a budget is one that
// the ledger refuses for the same reason, by as much.
func TestDraftKeepsBudgets(t *testing.T) {
	taken, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawMembers(t)
		s := snapshotOf(t, c)
		v, _ := viewOf(t, c, nil)
		var d Draft
		d.Sync(v)
		var do []Commitment
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			id := CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 9).Draw(t, "who")))
			known := s.Capsule(id)
			if known == nil {
				continue
			}
			var err error
			var step []Commitment
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				step = []Commitment{Release{Capsule: id, Final: true}}
				err = d.Release(Release{Capsule: id, Final: true})
			case 1:
				step = []Commitment{Release{Capsule: id}}
				err = d.Release(Release{Capsule: id})
			default:
				step = []Commitment{evictionOf(s, id), placeOn(id, "n")}
				err = d.Evict(Evict{Capsule: id})
				if err == nil {
					if err = d.Place(known, Choice{Node: s.Node("n")}); err != nil {
						return // it has no room, which is of no interest here
					}
				}
			}
			var r *Rejection
			if errors.As(err, &r) && r.Budget != "" {
				refused++
				var theirs *Rejection
				require.ErrorAs(t, s.Check(Proposal{View: s.Revision(), Do: append(do, step...)}), &theirs, "a draft refuses with: %v", err)
				require.Equal(t, []any{r.Budget, r.Want, r.Free, r.Reason}, []any{theirs.Budget, theirs.Want, theirs.Free, theirs.Reason})
				continue
			}
			if err == nil {
				do, taken = append(do, step...), taken+1
			}
		}
		if p := d.Propose(); len(p.Do) > 0 {
			require.NoError(t, s.Check(p))
		}
	})
	require.Positive(t, taken)
	require.Positive(t, refused)
}

// TestDraftEvictsWithinBudgets: a draft that evicts for what is urgent proposes nothing that a budget refuses, whoever is spared.
func TestDraftEvictsWithinBudgets(t *testing.T) {
	taken, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawMembers(t)
		s := snapshotOf(t, c)
		v, _ := viewOf(t, c, nil)
		var d Draft
		d.Sync(v)
		for on := range s.On("n") {
			var r *Rejection
			if err := d.Evict(Evict{Capsule: on.ID, For: "urgent"}); errors.As(err, &r) && r.Budget != "" {
				refused++
			}
		}
		if d.Place(s.Capsule("urgent"), Choice{Node: s.Node("n")}) != nil {
			return
		}
		taken++
		var r *Rejection
		err := s.Check(d.Propose())
		require.False(t, errors.As(err, &r) && r.Budget != "", "a budget refuses what a draft has taken: %v", err)
	})
	require.Positive(t, taken)
	require.Positive(t, refused)
}

// TestPlainWorkKnowsNoBudgets: what is in no group and has no budget reads and writes what it did before there were budgets, and so
// does a placement of a member.
func TestPlainWorkKnowsNoBudgets(t *testing.T) {
	member, plain := cpuSpec(1), cpuSpec(1)
	member.Group, member.Module, plain.Module = "db", "db", "plain"
	member.Movable, plain.Movable = true, true
	c := newCourt(t, cpuNode("n", 8), cpuNode("m", 8), submitOf(member, "db1", "db2"), submitOf(plain, "p"), placeOn("db1", "n"), placeOn("p", "n"),
		PutBudget{Budget{ID: "db", Group: "db", Expected: 2, Missing: 2}})
	s := c.now()
	sizes := func(do ...Commitment) (reads, writes int) {
		r, w, _, err := s.Footprint(Proposal{View: s.Revision(), Do: do})
		require.NoError(t, err)
		require.Empty(t, r.Budgets)
		require.Empty(t, w.Budgets)
		return len(r.Fences), len(w.Fences)
	}
	for _, do := range [][]Commitment{
		{placeOn("db2", "m")}, {Release{Capsule: "p", Final: true}}, {evictionOf(s, "p"), placeOn("p", "m")}, {Mark{Key: "k", Value: "v"}}, {drainedNode("n", 8)},
	} {
		reads, writes := sizes(do...)
		require.Zero(t, reads+writes, "%v", do)
	}
	reads, writes := sizes(Release{Capsule: "db1", Final: true})
	require.Equal(t, []int{0, 1}, []int{reads, writes}, "who leaves tells wishes, and does not look at others")
	reads, writes = sizes(evictionOf(s, "db1"), placeOn("db1", "m"))
	require.Equal(t, []int{2, 1}, []int{reads, writes}, "a wish looks at who leaves and who is lost, and tells others")
	reads, writes = sizes(lostNode("n"))
	require.Equal(t, []int{0, 1}, []int{reads, writes})
}

// TestBudgetPercent: percentages are rounded up to whole members.
func TestBudgetPercent(t *testing.T) {
	for _, b := range []struct{ expected, missing, percent, needed int }{
		{3, 0, 34, 1}, {3, 0, 33, 2}, {3, 0, 1, 2}, {100, 0, 25, 75}, {7, 0, 50, 3}, {0, 0, 50, 0}, {5, 9, 0, 0}, {5, 2, 0, 3}, {5, 0, 100, 0},
		{mostExpected, 0, 100, 0}, {mostExpected, 0, 1, mostExpected - mostExpected/100 - 1},
	} {
		budget := Budget{Expected: b.expected, Missing: b.missing, MissingPercent: b.percent}
		require.Equal(t, b.needed, budget.needed(), "%+v", b)
	}
}

// TestBudgetsOfASpec yields what covers a capsule, and how much it can spare.
func TestBudgetsOfASpec(t *testing.T) {
	spec := cpuSpec(1)
	spec.Group, spec.Module = "db", "db"
	c := newCourt(t, cpuNode("n", 8), submitOf(spec, "a", "b"), placeOn("a", "n"), placeOn("b", "n"), PutBudget{Budget{ID: "g", Group: "db", Expected: 3, Missing: 2}},
		PutBudget{Budget{ID: "m", Module: "db", Expected: 3}}, PutBudget{Budget{ID: "other", Group: "web", Expected: 3}})
	var got []string
	for b := range c.now().BudgetsOf(spec) {
		got = append(got, fmt.Sprint(b.Budget.ID, b.Healthy, b.Spare()))
	}
	require.Equal(t, []string{"g2 1", "m2 -1"}, got)
	b, ok := c.now().Budget("m")
	require.True(t, ok)
	require.Equal(t, Budget{ID: "m", Module: "db", Expected: 3}, b.Budget)
}

// TestBudgetEdges: a node that the proposal itself says is lost takes its members away; and one below Above does not pass.
func TestBudgetEdges(t *testing.T) {
	low, high := cpuSpec(1), cpuSpec(1)
	low.Group, high.Priority = "db", 9
	c := newCourt(t, cpuNode("n", 1), cpuNode("m", 1), submitOf(low, "a", "b"), submitOf(high, "high"), placeOn("a", "n"), placeOn("b", "m"),
		PutBudget{Budget{ID: "db", Group: "db", Expected: 2, Missing: 1, Above: 10}}, drainedNode("n", 1))
	require.ErrorContains(t, c.mistakes(lostNode("m"), Release{Capsule: "a"}), `budget "db": 0 healthy of 2 after this, 1 needed`)
	c.commits(Release{Capsule: "a"})
	e := evictionOf(c.now(), "b")
	e.For = "high"
	require.ErrorContains(t, c.mistakes(e, placeOn("high", "m")), `budget "db": 0 healthy of 2 after this, 1 needed`)
	c.commits(PutBudget{Budget{ID: "db", Group: "db", Expected: 2, Missing: 1, Above: 9}})
	c.commits(e, placeOn("high", "m"))
}
