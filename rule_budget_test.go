package orbit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/internal/scale"
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
	if rapid.Bool().Draw(t, "agents") {
		for _, id := range []NodeID{"n", "m", "d"} {
			n := cpuNode(id, 8)
			n.Node.Confirms = true
			commit(t, c, n)
		}
		s := snapshotOf(t, c)
		for member := range s.Capsules() {
			if s.Node(member.Node).Node.Confirms && rapid.Bool().Draw(t, "ready") {
				commit(t, c, Confirm{Capsule: member.ID, Since: member.PlacedAt, Ready: true})
			}
		}
	}
	d := *snapshotOf(t, c).Node("d").Node
	d.State = Cordoned
	commit(t, c, PutNode{d})
	if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
		commit(t, c, lostNode("m"))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "budgets") {
		b := Budget{ID: BudgetID(fmt.Sprint("b", i)), Group: rapid.SampledFrom([]string{"db", "web"}).Draw(t, "covers"),
			Expected: rapid.IntRange(0, 4).Draw(t, "expected"), Missing: rapid.IntRange(0, 2).Draw(t, "missing"), Above: rapid.Int32Range(0, 3).Draw(t, "above"),
			IgnoreReady: rapid.Bool().Draw(t, "ignores"), FreeUnready: rapid.Bool().Draw(t, "frees")}
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
	check := func(t *rapid.T) {
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
	}
	for range 4 { // few worlds have a capsule that a budget protects
		rapid.Check(t, check)
	}
	if !testing.Short() { // rapid draws a fifth as often then, which is too few for both
		require.Positive(t, taken)
		require.Positive(t, refused)
	}
}

// TestDraftEvictsWithinBudgets: what a draft evicts for urgent work is not refused for a budget, whichever victims the ledger spares.
func TestDraftEvictsWithinBudgets(t *testing.T) {
	taken, refused := 0, 0
	check := func(t *rapid.T) {
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
	}
	for range 4 { // few worlds have a capsule that a budget protects
		rapid.Check(t, check)
	}
	if !testing.Short() { // rapid draws a fifth as often then, which is too few for both
		require.Positive(t, taken)
		require.Positive(t, refused)
	}
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

// TestBudgetsOfManyModules: the first budgets of several modules come in one proposal, as they do from a dump, beside a second one of a
// module that has one, and count whom there is: what waits, is lost, is not ready or is of another module counts in none.
func TestBudgetsOfManyModules(t *testing.T) {
	spec := func(module string) *Spec {
		return &Spec{Module: module, Envelope: Envelope{Reservation: Resources{CPU: 1}}}
	}
	c := newCourt(t, cpuNode("n", 9), confirmingNode("m", 9), cpuNode("o", 9), submitOf(spec("a"), "a0", "a1", "a2", "a3"), submitOf(spec("b"), "b0", "b1"), submitOf(spec("x"), "x0"))
	of := func(id BudgetID, module string) Commitment {
		return PutBudget{Budget{ID: id, Module: module, Expected: 1}}
	}
	c.commits(of("known", "b"), placeOn("a0", "n"), placeOn("b0", "n"), placeOn("a1", "m"), placeOn("b1", "m"), placeOn("x0", "n"), placeOn("a2", "o"))
	c.commits(c.says("b1", Confirm{Ready: true}))
	c.commits(lostNode("o"))
	placed := PutBudget{Budget{ID: "a placed", Module: "a", Expected: 1, IgnoreReady: true}}
	c.commits(of("a", "a"), placed, of("b", "b"), of("none", "none"), PutBudget{Budget{ID: "x", Module: "x", Expected: 1}})
	check := func(s *State) {
		got := map[BudgetID]int{}
		for b := range s.Budgets() {
			got[b.Budget.ID] = b.Healthy
		}
		require.Equal(t, map[BudgetID]int{"known": 2, "a": 1, "a placed": 2, "b": 2, "none": 0, "x": 1}, got)
		require.NoError(t, s.Verify())
	}
	check(c.now())
	back, err := restoreFrom(strings.NewReader(dumpOf(t, c.now())))
	require.NoError(t, err)
	check(back)
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

// agents is a court with two nodes that confirm, and with members of "db" that are ready on the first.
func agents(t *testing.T, b Budget, members ...CapsuleID) court {
	spec := cpuSpec(1)
	spec.Group = "db"
	b.ID, b.Group, b.Expected = "db", "db", len(members)
	c := newCourt(t, confirmingNode("n", 100), confirmingNode("m", 100), submitOf(spec, members...), PutBudget{b})
	for _, id := range members {
		c.commits(placeOn(id, "n"))
		c.commits(c.says(id, Confirm{Ready: true}))
	}
	return c
}

func confirmingNode(id NodeID, cpu int64) PutNode {
	n := cpuNode(id, cpu)
	n.Node.Confirms = true
	return n
}

// says completes what an agent says of a capsule where it is placed.
func (c court) says(id CapsuleID, say Confirm) Confirm {
	say.Capsule, say.Since = id, c.now().Capsule(id).PlacedAt
	return say
}

// wishes takes a capsule off its node and places it on the other one.
func (c court) moves(id CapsuleID, to NodeID) []Commitment {
	return []Commitment{evictionOf(c.now(), id), placeOn(id, to)}
}

func (c court) healthy(want int) {
	c.Helper()
	b, _ := c.now().Budget("db")
	require.Equal(c, want, b.Healthy)
	require.NoError(c, c.now().Verify())
}

// TestBudgetsCountWhatIsReady has the ways in which counting goes wrong elsewhere.
func TestBudgetsCountWhatIsReady(t *testing.T) {
	t.Run("without Ready the limit holds per commit only", func(t *testing.T) {
		for _, ignore := range []bool{false, true} {
			c := agents(t, Budget{Missing: 1, IgnoreReady: ignore}, "a", "b")
			c.commits(c.moves("a", "m")...)
			if ignore { // a has not begun, and b leaves
				c.commits(c.moves("b", "m")...)
				continue
			}
			c.healthy(1)
			require.ErrorContains(t, c.mistakes(c.moves("b", "m")...), `budget "db": 0 healthy of 2 after this, 1 needed`)
			view := c.now().Revision()
			c.commits(Confirm{Capsule: "a", Since: c.now().Capsule("a").Remains().Since, Stopped: true})
			c.commits(c.says("a", Confirm{Begun: true}))
			c.mistakes(c.moves("b", "m")...)
			c.commits(c.says("a", Confirm{Ready: true}))
			c.healthy(2)
			require.NoError(t, c.now().Check(Proposal{View: view, Do: c.moves("b", "m")}))
			c.commits(c.moves("b", "m")...)
		}
	})
	t.Run("one commit moves all hundred", func(t *testing.T) {
		var ids []CapsuleID
		for i := range 100 {
			ids = append(ids, CapsuleID(fmt.Sprint("c", i)))
		}
		c := agents(t, Budget{Missing: 99}, ids...)
		var all []Commitment
		for _, id := range ids {
			all = append(all, c.moves(id, "m")...)
		}
		require.ErrorContains(t, c.mistakes(all...), "0 healthy of 100 after this, 1 needed")
		c.commits(all[:198]...)
		c.healthy(1)
	})
	t.Run("a crash-looping member must not block a drain for ever", func(t *testing.T) {
		for _, free := range []bool{false, true} {
			c := agents(t, Budget{FreeUnready: free}, "a", "b")
			view := c.now().Revision()
			c.commits(c.says("a", Confirm{NotReady: true}))
			c.healthy(1)
			require.Error(t, c.mistakes(c.moves("b", "m")...), "b is healthy")
			c.commits(PutNode{Node{ID: "n", State: Cordoned, Confirms: true, Capacity: Resources{CPU: 100}}})
			if !free {
				require.ErrorContains(t, c.mistakes(Release{Capsule: "a"}), "1 healthy of 2 after this, 2 needed")
				continue
			}
			both := append(c.moves("a", "m"), c.moves("b", "m")...)
			require.ErrorContains(t, c.mistakes(both...), "0 healthy of 2")
			c.commits(c.says("a", Confirm{Ready: true})) // it has recovered just now
			require.ErrorIs(t, c.now().Check(Proposal{View: view + 1, Do: []Commitment{Release{Capsule: "a"}}}), ErrConflict)
			c.commits(c.says("a", Confirm{NotReady: true}))
			c.commits(Release{Capsule: "a"})
			c.healthy(1)
		}
	})
	t.Run("a wish says that nobody confirms", func(t *testing.T) {
		c := agents(t, Budget{Missing: 1}, "a", "b", "c")
		c.commits(c.says("a", Confirm{NotReady: true}))
		require.ErrorContains(t, c.mistakes(append(c.moves("b", "m"), cpuNode("n", 100))...), "1 healthy of 3 after this, 2 needed")
		c.commits(cpuNode("n", 100))
		c.healthy(3)
		c.commits(confirmingNode("n", 100))
		c.healthy(2)
		require.ErrorContains(t, c.mistakes(append(c.moves("b", "m"), confirmingNode("n", 100))...), "1 healthy of 3 after this, 2 needed")
	})
	t.Run("the first budget counts what was ready before it", func(t *testing.T) {
		c := agents(t, Budget{}, "a", "b")
		c.commits(c.says("a", Confirm{NotReady: true}))
		c.commits(RemoveBudget{"db"})
		c.commits(PutBudget{Budget{ID: "db", Group: "db"}})
		c.healthy(1)
		c.commits(PutBudget{Budget{ID: "db", Group: "db", IgnoreReady: true}})
		c.healthy(2)
		c.commits(Release{Capsule: "b", Stopped: true})
		c.healthy(1)
		c.commits(placeOn("b", "n"))
		require.False(t, c.now().Capsule("b").Ready)
		c.commits(lostNode("n"))
		c.healthy(0)
	})
}

// recounted is what a look at all steps of a draft counts of a group: how many fewer members are healthy after the earlier proposals,
// how many healthy members the proposal in the making takes off their nodes, and the budgets that its wishes must keep.
func recounted(d *Draft, of memberSet) (missing, leave health, wished []*budgetRecord) {
	s := d.view.state
	for at, step := range d.log {
		left := s.Capsule(step.effect().leaves)
		switch {
		case left == nil || !left.Spec.isMember(of):
		case at < d.open:
			missing = missing.plus(s.health(left), 1)
			for _, later := range d.log[at+1:] {
				if place, ok := later.(Place); ok && place.Capsule == left.ID {
					missing = missing.plus(worst(s.health(left), s.Node(place.Node).Node.health(&Capsule{})), -1)
				}
			}
		default:
			leave = leave.plus(s.health(left), 1)
			evictor, wish := s.wishes(left, step)
			for _, b := range s.coverage(of).budgets {
				free := !wish || b.passes(evictor) || b.FreeUnready && b.counts(s.health(left)) == 0
				if !free && !slices.Contains(wished, b) {
					wished = append(wished, b)
				}
			}
		}
	}
	return missing, leave, wished
}

// TestDraftCountsWhoIsMissing: a draft counts step by step how many members of a group it takes away. After any proposals and rollbacks that
// is the same number as a count of all steps of the plan.
func TestDraftCountsWhoIsMissing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawMembers(t)
		view, _ := viewOf(t, c, nil)
		var d Draft
		d.Sync(view)
		var marks []int
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			id := CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 7).Draw(t, "capsule")))
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				marks = append(marks, d.Checkpoint())
			case 1:
				if len(marks) > 0 {
					d.Rollback(marks[len(marks)-1])
					marks = marks[:len(marks)-1]
				}
			case 2:
				d.Propose()
			case 3:
				_ = d.Evict(Evict{Capsule: id, For: "urgent"})
			case 4:
				_ = d.Release(Release{Capsule: id, Final: true})
			default:
				if d.Evict(Evict{Capsule: id}) == nil {
					_ = d.Place(view.State().Capsule(id), Choice{Node: view.State().Node("n")})
				}
			}
			for _, group := range []string{"db", "web"} {
				of := memberSet{name: group}
				m := d.counted[of]
				if view.State().coverage(of) == nil {
					require.Nil(t, m)
					continue
				}
				missing, leave, wished := recounted(&d, of)
				if m == nil {
					require.Zero(t, missing.plus(leave, 1), "members leave of which nothing is counted")
					require.Empty(t, wished)
					continue
				}
				require.Equal(t, missing, m.missing)
				require.Equal(t, leave, m.leave)
				require.Equal(t, wished, m.wished)
			}
		}
	})
}

// What an earlier proposal moves is healthy for the later ones, whether that proposal commits or not.
func TestDraftMovesOneAfterTheOther(t *testing.T) {
	c := court{t, &MemoryLedger{}}
	spec := cpuSpec(1)
	spec.Group = "db"
	c.commits(cpuNode("d", 8), cpuNode("n", 8), submitOf(spec, "c0", "c1", "c2"), placeOn("c0", "d"), placeOn("c1", "d"), placeOn("c2", "d"),
		PutBudget{Budget{ID: "b", Group: "db", Expected: 3, Missing: 1}})
	c.commits(drainedNode("d", 8))
	v, _ := viewOf(t, c, nil)
	var d Draft
	d.Sync(v)
	var plan []Proposal
	for _, id := range []CapsuleID{"c0", "c1", "c2"} {
		require.NoError(t, d.Evict(Evict{Capsule: id}))
		require.NoError(t, d.Place(v.State().Capsule(id), Choice{Node: v.State().Node("n")}))
		plan = append(plan, d.Propose())
	}
	for _, p := range plan {
		c.commits(p.Do...)
	}
}

// Members that leave cost as much each in a large plan as in a small one: in proposals of their own or in one, of one group or in modules
// of their own, and with a step that is undone beside each.
func TestDraftJudgesBudgetsOfLargePlans(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	leave := func(n, modules int, together bool) time.Duration {
		c := court{t, &MemoryLedger{}}
		do := []Commitment{cpuNode("n", int64(n)), PutBudget{Budget{ID: "b", Group: "g", Expected: n, Missing: n}}}
		for i := range modules {
			do = append(do, PutBudget{Budget{ID: BudgetID(fmt.Sprint("b", i)), Module: fmt.Sprint("m", i), Expected: n, Missing: n}})
		}
		var ids []CapsuleID
		for i := range n {
			spec := cpuSpec(1)
			spec.Group, spec.Module = "g", fmt.Sprint("m", i%modules)
			ids = append(ids, CapsuleID(fmt.Sprint("c", i)))
			do = append(do, submitOf(spec, ids[i]), placeOn(ids[i], "n"))
		}
		for len(do) > 0 {
			c.commits(do[:min(len(do), 500)]...)
			do = do[min(len(do), 500):]
		}
		c.commits(drainedNode("n", int64(n)))
		v, _ := viewOf(t, c, nil)
		var d Draft
		d.Sync(v)
		return cputime.Of(func() {
			for i, id := range ids {
				start := d.Checkpoint()
				for _, next := range ids[i+1 : min(i+2, n)] {
					require.NoError(t, d.Release(Release{Capsule: next}))
				}
				d.Rollback(start)
				require.NoError(t, d.Release(Release{Capsule: id}))
				if !together {
					d.Propose()
				}
			}
		})
	}
	for _, together := range []bool{false, true} {
		for _, each := range []int{500, 2} { // members of a module
			few := leave(500, 500/each, together)
			require.Less(t, leave(8000, 8000/each, together), 64*few+20*time.Millisecond,
				"in one proposal: %v, members of a module: %d; 16 times as many; with a look at all that have left it would be 256 times as long", together, each)
		}
	}
}

// TestEnginesEndProtections: an engine counts from when it sees a protection; one that starts anew counts anew; of several the first ends
// it; and a protection that was ended with its placement is left alone.
func TestEnginesEndProtections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCourt(t, cpuNode("n", 8), submitOf(cpuSpec(1), "a", "b"))
		idle := func() (stop func()) {
			nothing := planFunc(func(context.Context, *View, []*Capsule) (Plan, error) { return Plan{}, nil }) // a navigator that places might be faster with b than the test
			e := &Engine{Name: "e", Ledger: c, Navigator: nothing, OnRound: func(r Round) {
				if r.Infeasible > 0 {
					t.Errorf("it ends what is not there: %v", r)
				}
			}}
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = e.Run(ctx) })
			return func() { cancel(); run.Wait() }
		}
		c.commits(placeOn("a", "n"), Protect{Capsule: "a", For: time.Minute}, placeOn("b", "n"), Protect{Capsule: "b", For: time.Minute})
		stop := idle()
		time.Sleep(40 * time.Second)
		stop()
		stop = idle()
		time.Sleep(30 * time.Second)
		require.Equal(t, time.Minute, c.now().Protected("a"), "longer than was asked for, and not shorter")
		c.commits(Release{Capsule: "b", Stopped: true})
		c.commits(placeOn("b", "n"), Protect{Capsule: "b", For: time.Minute})
		defer idle()()
		time.Sleep(31 * time.Second)
		require.Zero(t, c.now().Protected("a"))
		require.Equal(t, time.Minute, c.now().Protected("b"), "another placement")
		time.Sleep(30 * time.Second)
		require.Zero(t, c.now().Protected("b"))
		require.NoError(t, c.now().Verify())
		stop()
	})
}

// TestProtectionsAreCountedOnce: a view that has lost track of the history goes on counting from when it first saw a protection.
func TestProtectionsAreCountedOnce(t *testing.T) {
	c := newCourt(t, cpuNode("n", 8), submitOf(cpuSpec(1), "a", "b"))
	c.commits(placeOn("a", "n"), Protect{Capsule: "a", For: time.Minute})
	first := time.Unix(1000, 0)
	from := &source{ledger: c, owns: none, holds: true}
	var v View
	_, err := v.refresh(t.Context(), from, first)
	require.NoError(t, err)
	c.commits(placeOn("b", "n"), Protect{Capsule: "b", For: time.Minute})
	v.now = first.Add(30 * time.Second)
	v.rebuild(c.now(), from)
	require.Empty(t, v.ended(first.Add(time.Minute-1)))
	require.Equal(t, []Commitment{Protect{Capsule: "a", Since: c.now().Capsule("a").PlacedAt}}, v.ended(first.Add(time.Minute)))
	require.Len(t, v.ended(first.Add(90*time.Second)), 2)
	c.commits(Release{Capsule: "a", Final: true})
	v.rebuild(c.now(), from)
	require.Len(t, v.ended(first.Add(90*time.Second)), 1)
}

// TestNodesLeaveWithAWish: a budget that frees what is not ready refuses a wish by its typed receipt also where the node leaves in the
// same proposal.
func TestNodesLeaveWithAWish(t *testing.T) {
	spec := cpuSpec(1)
	spec.Module = "m"
	c := newCourt(t, cpuNode("n", 8), submitOf(spec, "a"))
	c.commits(placeOn("a", "n"), PutBudget{Budget{ID: "all", Module: "m", Expected: 1, FreeUnready: true}})
	drained := cpuNode("n", 8).Node
	drained.State = Cordoned
	c.commits(PutNode{drained})
	_, err := c.Propose(bg, Proposal{View: c.now().Revision(), Do: []Commitment{Release{Capsule: "a"}, RemoveNode{Node: "n"}}})
	var r *Rejection
	require.ErrorAs(t, err, &r)
	require.Equal(t, BudgetID("all"), r.Budget)

}

// TestDraftProtectsNoneThatBackfills: a draft does not protect what gives its room back, also if the plan itself submits it.
func TestDraftProtectsNoneThatBackfills(t *testing.T) {
	spec := cpuSpec(1)
	spec.Backfills, spec.RunsAtMost = true, time.Minute
	c := newCourt(t, cpuNode("n", 8), submitOf(spec, "old"))
	v, _ := viewOf(t, c, nil)
	var d Draft
	d.Sync(v)
	require.NoError(t, d.Add(submitOf(spec, "new")))
	for _, id := range []CapsuleID{"old", "new"} {
		require.NoError(t, d.Place(&Capsule{ID: id, Spec: spec}, Choice{Node: v.State().Node("n")}))
		protect := append(slices.Clone(d.log), Protect{Capsule: id, For: time.Second})
		require.ErrorContains(t, v.State().Check(Proposal{Do: protect}), "backfills")
		require.ErrorContains(t, d.Protect(id, time.Second), "backfills")
	}
}

// TestDraftProtects: a draft protects what its next proposal places, and lets nothing go that is protected.
func TestDraftProtects(t *testing.T) {
	spec := cpuSpec(1)
	spec.Movable = true
	c := newCourt(t, cpuNode("n", 8), cpuNode("m", 8), submitOf(spec, "a", "b"))
	var d Draft
	plan := func() *State {
		v, _ := viewOf(t, c, nil)
		d.Sync(v)
		return v.State()
	}
	s := plan()
	require.Error(t, d.Protect("a", time.Second), "it is not placed")
	require.NoError(t, d.Place(s.Capsule("a"), Choice{Node: s.Node("n")}))
	require.Error(t, d.Protect("a", time.Hour))
	require.NoError(t, d.Protect("a", time.Second))
	require.Error(t, d.Protect("a", time.Second), "twice")
	p := d.Propose()
	require.Error(t, d.Protect("a", time.Second), "the proposal is made")
	require.NoError(t, s.Check(p))
	c.commits(p.Do...)
	plan()
	var r *Rejection
	require.ErrorAs(t, d.Evict(Evict{Capsule: "a"}), &r)
	require.Equal(t, time.Second, r.Protected)
	require.NoError(t, d.Release(Release{Capsule: "a", Final: true}))
	back, err := rebuilt(c.now())
	require.NoError(t, err)
	require.Equal(t, time.Second, back.Protected("a"))
	text := dumpOf(t, c.now())
	for _, bad := range [][2]string{{`"protected":1000000000`, `"protected":-1`}, {`"node":"n","note`, `"note`}} {
		if broken := strings.Replace(text, bad[0], bad[1], 1); broken != text {
			refused(t, broken, 0, bad[1])
		}
	}
}
