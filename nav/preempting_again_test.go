package nav_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// leavesOut is a navigator that leaves everything out, for this reason.
func leavesOut(why error) orbit.Navigator {
	return nav.Func(func(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
		for _, c := range pending {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
		}
		return plan, nil
	})
}

// planFor has the navigator plan for all that waits, in order of ids, and returns the plan.
func planFor(ctx context.Context, t *testing.T, l orbit.Ledger, n orbit.Navigator) orbit.Plan {
	v := viewOf(t, l)
	var pending []*orbit.Capsule
	for c := range v.State().Capsules() {
		if c.Pending() {
			pending = append(pending, c)
		}
	}
	plan, _ := n.Plan(ctx, v, pending)
	return plan
}

// Victims count for the hour also if they are placed again before the next plan.
func TestPreemptingCountsVictimsThatArePlacedAgain(t *testing.T) {
	l := full(t, 4)
	submit(t, l, "urgent", 4, cores(3000, 10))
	e := preemptor(l, func(p *nav.Preempting) { p.Hourly = 0.25 })
	placed := func() (n int) {
		for i := range 4 {
			if snapshot(t, l).Capsule(orbit.CapsuleID(fmt.Sprint("urgent-", i))).Placed() {
				n++
			}
		}
		return n
	}
	e.Pass(t.Context())
	require.Equal(t, 1, placed(), "3 of 16 have left, and a fourth may")
	for i, id := range evicted(t, l) {
		at := fmt.Sprint("spare", i)
		commit(t, l, node(at, 900), orbit.Place{Capsule: id, Node: orbit.NodeID(at)})
	}
	runOut(t, 3, e)
	require.Equal(t, 1, placed(), "of 20, two more may leave")
}

// A gang for which victims were sought gently does not make the search for the capsules after it a gentle one.
func TestPreemptingEvictsWholeGangsAfterAGentleSearch(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("m", 4), node("n", 4), node("x", 4))
	put(t, l, "lower", "m", cores(4, 0))
	put(t, l, "lowest", "x", cores(4, -5))
	gangOn(t, l, "g", 0, cores(2, 1), "n", "n")
	first := cores(4, 20)
	first.Class = orbit.GangClass
	comes(t, l, 1, 1, first)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"capsule"}, Spec: cores(4, 10)})
	commit(t, l, orbit.Nominate{Capsule: "capsule", Ends: time.Now().Add(time.Hour),
		Parts: []orbit.NominatedRoom{{Node: "n", Room: orbit.Resources{orbit.CPU: 4}}}})
	plan := planFor(t.Context(), t, l, &nav.Preempting{Navigator: leavesOut(nil)})
	for _, p := range plan.Proposals {
		commit(t, l, p.Do...)
	}
	require.Equal(t, orbit.NodeID("x"), snapshot(t, l).Capsule("urgent-0").Node)
	require.Equal(t, orbit.NodeID("n"), snapshot(t, l).Capsule("capsule").Node, "the room is nominated there")
	require.ElementsMatch(t, []orbit.CapsuleID{"lowest", "g-0", "g-1"}, evicted(t, l))
}

// A search for a gang that is cut off says so, and the next plan goes on where it was, at once.
func TestPreemptingGoesOnWithASearchThatWasCutOff(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racks(t, l, 3)
	for i := range 4 {
		at := fmt.Sprintf("r%d-%d", i/2, i%2)
		runningOn(t, l, at, map[string][2]int64{"a" + at: {2, 9}, "b" + at: {2, 9}})
	}
	for i := 4; i < 6; i++ {
		at := fmt.Sprintf("r%d-%d", i/2, i%2)
		runningOn(t, l, at, map[string][2]int64{"a" + at: {2, 0}, "b" + at: {2, 0}})
	}
	comes(t, l, 2, 2, cores(4, 9), "rack")
	ctx, cancel := context.WithCancel(t.Context())
	looked := map[string]int{}
	p := &nav.Preempting{Navigator: leavesOut(errors.New("does not fit")), Filter: func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
		if looked[n.Node.Labels["rack"]]++; n.Node.Labels["rack"] == "r1" {
			cancel()
		}
		return ""
	}}
	plan := planFor(ctx, t, l, p)
	require.Empty(t, plan.Proposals)
	require.ErrorContains(t, plan.Unplaced[0].Why, "was cut off")
	clear(looked)
	plan = planFor(t.Context(), t, l, p)
	require.Len(t, plan.Proposals, 1)
	require.NotContains(t, looked, "r0", "it was searched before")
}

// slowText is a reason whose text is dear.
type slowText struct{ built *int }

func (e slowText) Error() string { *e.built++; return "does not fit" }

// The texts of reasons are built when somebody reads them, not for each capsule that is left out.
func TestPreemptingBuildsNoTexts(t *testing.T) {
	l := full(t, 4)
	submit(t, l, "urgent", 8, cores(3000, 10))
	submit(t, l, "huge", 8, cores(9000, 10))
	built := 0
	p := &nav.Preempting{Navigator: leavesOut(slowText{&built}), Victims: 3}
	plan := planFor(t.Context(), t, l, p)
	require.Len(t, plan.Proposals, 1)
	require.Len(t, plan.Unplaced, 15)
	require.Zero(t, built)
	for _, u := range plan.Unplaced {
		require.ErrorContains(t, u.Why, "does not fit; ")
		require.NotErrorAs(t, u.Why, new(slowText), "victims may leave more room than was needed, so that no class may be parked")
	}
}

// Where a budget keeps work from being placed, the reason names it, for a capsule and for a gang.
func TestPreemptingNamesTheBudgetInTheWay(t *testing.T) {
	for _, gang := range []bool{false, true} {
		l := &orbit.MemoryLedger{}
		db := cores(4, 0)
		db.Module = "db"
		commit(t, l, node("n", 4), orbit.PutBudget{Budget: orbit.Budget{ID: "two of db", Module: "db", Expected: 1}})
		put(t, l, "db", "n", db)
		if gang {
			comes(t, l, 1, 1, cores(4, 10))
		} else {
			submit(t, l, "urgent", 1, cores(4, 10))
		}
		plan := planFor(t.Context(), t, l, &nav.Preempting{Navigator: leavesOut(errors.New("does not fit"))})
		require.Empty(t, plan.Proposals)
		require.ErrorContains(t, plan.Unplaced[0].Why, `budget "two of db": 0 healthy of 1 after this, 1 needed`)
	}
}

// What still stops on one node is placed on a node that confirms, whether others have to make way there or not.
func TestPreemptingForWhatStillStops(t *testing.T) {
	for _, gang := range []bool{false, true} {
		t.Run(fmt.Sprint("gang=", gang), func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			confirming := func(id string) orbit.PutNode {
				n := node(id, 4)
				n.Node.Confirms = true
				return n
			}
			commit(t, l, confirming("old"), node("a", 4), confirming("z"))
			put(t, l, "la", "a", cores(4, 0))
			put(t, l, "lz", "z", cores(4, 1))
			s := cores(4, 10)
			if gang {
				comes(t, l, 1, 1, s)
			} else {
				submit(t, l, "urgent", 1, s)
			}
			commit(t, l, orbit.Place{Capsule: "urgent-0", Node: "old"})
			commit(t, l, orbit.Confirm{Capsule: "urgent-0", Since: snapshot(t, l).Capsule("urgent-0").PlacedAt, Begun: true})
			cordon(t, l, true, "old")
			commit(t, l, orbit.Release{Capsule: "urgent-0", From: "old"})
			require.NotNil(t, snapshot(t, l).Capsule("urgent-0").Remains())
			plan := planFor(t.Context(), t, l, &nav.Preempting{Navigator: leavesOut(nil)})
			require.Len(t, plan.Proposals, 1)
			commit(t, l, plan.Proposals[0].Do...)
			require.Equal(t, orbit.NodeID("z"), snapshot(t, l).Capsule("urgent-0").Node)
			require.Equal(t, []orbit.CapsuleID{"lz"}, evicted(t, l))
		})
	}
}

// A gang with a member that still stops on one node is placed on nodes that confirm. If none of them has room, the reason says so,
// and the gang starts once the member has stopped.
func TestGangWithAMemberThatStillStops(t *testing.T) {
	for _, room := range []bool{false, true} {
		t.Run(fmt.Sprint("room=", room), func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			old, z := node("old", 4), node("z", 4)
			old.Node.Confirms, z.Node.Confirms = true, true
			commit(t, l, old, node("a", 4), z)
			s := cores(2, 0)
			comes(t, l, 2, 2, s)
			commit(t, l, orbit.Place{Capsule: "urgent-0", Node: "old"}, orbit.Place{Capsule: "urgent-1", Node: "old"})
			since := snapshot(t, l).Capsule("urgent-0").PlacedAt
			commit(t, l, orbit.Confirm{Capsule: "urgent-0", Since: since, Begun: true})
			cordon(t, l, true, "old")
			commit(t, l, orbit.Release{Capsule: "urgent-0", From: "old"}, orbit.Release{Capsule: "urgent-1", From: "old"})
			if !room {
				put(t, l, "x", "z", cores(4, 0))
			}
			e := &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Gang{}}
			round := e.Pass(t.Context())
			require.Empty(t, round.Errors)
			if room {
				require.Equal(t, []orbit.CapsuleID{"urgent-0", "urgent-1"}, on(t, l, "z"))
				return
			}
			require.ErrorContains(t, round.Unplaced[0].Why, "does not confirm, and members still stop elsewhere")
			commit(t, l, orbit.Confirm{Capsule: "urgent-0", Since: since, Stopped: true})
			runOut(t, 3, e)
			require.Equal(t, []orbit.CapsuleID{"urgent-0", "urgent-1"}, on(t, l, "a"))
		})
	}
}

// Of a group whose budget lets one be missing all are moved by one pass, one after the other: each runs again before the next leaves.
func TestDrainMovesAsManyAsTheBudgetAllows(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("old", 9), node("new", 9), orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "db", Expected: 9, Missing: 1}})
	for i := range 9 {
		s := spec(1, 0)
		s.Group = "db"
		put(t, l, fmt.Sprint("db", i), "old", s)
	}
	cordon(t, l, true, "old")
	d := &nav.Drain{Ledger: l}
	require.Len(t, d.Pass(t.Context()).Moved, 9)
}

// A gang whose free room is taken each time before its proposal comes is nominated after some proposals that are lost, in Preempting and
// in Patient, and then placed whole. A proposal that is lost counts once, however many members it places.
func TestGangsAreNominatedForFreeRoomThatTheyLose(t *testing.T) {
	for name, n := range map[string]orbit.Navigator{
		"Preempting": &nav.Preempting{Navigator: &nav.Gang{}},
		"Patient":    &nav.Patient{Navigator: &nav.Gang{}, Conflicts: 4, After: -1},
	} {
		t.Run(name, func(t *testing.T) {
			const members, most = 3, 30
			l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
			for i := range 12 {
				m := node(fmt.Sprint("n", i), 1)
				m.Node.Labels = map[string]string{"rack": fmt.Sprint("r", i/4)}
				commit(t, l, m)
			}
			comes(t, l, members, members, cores(1, 10), "rack")
			taken := &taking{MemoryLedger: l, most: members * most}
			e := &orbit.Engine{Name: "gangs", Ledger: taken, Navigator: n, ParkFor: time.Nanosecond}
			lost := 0
			for range most {
				lost += e.Pass(t.Context()).Conflicts
				for c := range snapshot(t, l).Capsules() { // the room is free again
					if c.Owner() == "tasks" && c.Placed() {
						commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
					}
				}
			}
			require.Equal(t, members, snapshot(t, l).Gang("urgent").Total(), "%d lost", lost)
			require.Equal(t, 4, lost)
		})
	}
}

// A gang stays where room is nominated for it, though by now the victims in another domain would be better: elsewhere its proposal
// could be lost again.
func TestPreemptingKeepsAGangInItsNominatedDomain(t *testing.T) {
	for _, level := range []string{"rack", ""} {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
		racks(t, l, 3)
		for i, p := range []int64{0, 0, 2, 2, 1, 1} {
			at := fmt.Sprintf("r%d-%d", i/2, i%2)
			runningOn(t, l, at, map[string][2]int64{"task" + at: {4, p}})
		}
		levels := []string{level}[:min(len(level), 1)]
		comes(t, l, 2, 2, cores(4, 9), levels...)
		commit(t, l, orbit.Nominate{Gang: "urgent", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{
			{Node: "r1-0", Room: orbit.Resources{4}}, {Node: "r1-1", Room: orbit.Resources{4}}}})
		e := &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}
		require.Equal(t, 1, e.Pass(t.Context()).Committed)
		require.ElementsMatch(t, []orbit.CapsuleID{"taskr1-0", "taskr1-1"}, evicted(t, l), "level %q", level)
	}
}

// faultList is an error that cannot be compared.
type faultList []string

func (f faultList) Error() string { return fmt.Sprint([]string(f)) }

// A reason of the wrapped navigator may be a value that cannot be compared, such as a list of faults.
func TestPreemptingTakesReasonsThatCannotBeCompared(t *testing.T) {
	l := full(t, 2)
	submit(t, l, "small", 1, cores(100, 10))
	submit(t, l, "urgent", 1, cores(3000, 10))
	submit(t, l, "huge", 1, cores(9000, 10))
	gang := cores(100, 10)
	gang.Class = orbit.GangClass
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: gang, Members: []orbit.CapsuleID{"g-0"}}}}})
	plan := planFor(t.Context(), t, l, &nav.Preempting{Navigator: leavesOut(faultList{"a", "b"})})
	require.Len(t, plan.Proposals, 1)
	require.Len(t, plan.Unplaced, 3)
	for _, u := range plan.Unplaced {
		require.ErrorContains(t, u.Why, "[a b]")
	}
}

// What is too large for one proposal counts neither as a preemption nor as victims, so that what comes after it is not limited.
func TestPreemptingDoesNotCountWhatIsTooLarge(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: 5}}
	racks(t, l, 2)
	for _, at := range []string{"r0-0", "r0-1", "r1-0", "r1-1"} {
		runningOn(t, l, at, map[string][2]int64{"a" + at: {2, 0}, "b" + at: {2, 0}})
	}
	comes(t, l, 2, 2, cores(4, 10), "rack")
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"capsule"}, Spec: cores(4, 9)})
	plan := planFor(t.Context(), t, l, &nav.Preempting{Navigator: leavesOut(errors.New("does not fit")), Victims: 4})
	require.Len(t, plan.Proposals, 1)
	require.Equal(t, "preempted=1", plan.Notes[0].String())
	require.Equal(t, "victims=2", plan.Notes[1].String())
	require.Len(t, plan.Unplaced, 2)
	require.ErrorContains(t, plan.Unplaced[0].Why, "more commitments or preconditions than the ledger accepts")
}

// An agent is taken out of service while what it has begun still runs. There nothing waits for what stops, so what leaves gives its room
// back only when it has stopped: until then nothing is placed in it, and nobody is evicted for it. Otherwise the ledger would refuse the
// same plan again and again.
func TestPreemptingWhereNobodyConfirmsAnyMore(t *testing.T) {
	low, mid := cores(4, 0), cores(4, 5)
	low.Class, mid.Class, low.Movable = orbit.Batch, orbit.Batch, true
	begun := func(t require.TestingT) orbit.Ledger {
		l := &orbit.MemoryLedger{}
		n := node("m", 4)
		n.Node.Confirms = true
		commit(t, l, n)
		put(t, l, "a", "m", low)
		commit(t, l, orbit.Confirm{Capsule: "a", Since: snapshot(t, l).Capsule("a").PlacedAt, Begun: true})
		n.Node.Confirms = false
		commit(t, l, n)
		return l
	}
	stop := func(t require.TestingT, l orbit.Ledger) {
		commit(t, l, orbit.Confirm{Capsule: "a", Since: snapshot(t, l).Capsule("a").Remains().Since, Stopped: true})
	}
	pass := func(t require.TestingT, e *orbit.Engine) {
		round := e.Pass(context.Background())
		require.Empty(t, round.Errors)
		require.Zero(t, round.Infeasible)
	}
	t.Run("another node gives way, though who is there is more important", func(t *testing.T) {
		l := begun(t)
		commit(t, l, node("n", 4))
		put(t, l, "b", "n", mid)
		submit(t, l, "urgent", 1, cores(2, 10))
		pass(t, preemptor(l, nil))
		require.Equal(t, []orbit.CapsuleID{"b"}, evicted(t, l))
	})
	t.Run("what waits comes when it has stopped, and its class is parked until then", func(t *testing.T) {
		l := begun(t)
		submit(t, l, "urgent", 1, cores(2, 10))
		e := preemptor(l, nil)
		e.ParkFor = time.Hour
		pass(t, e)
		commit(t, l, orbit.Release{Capsule: "a", Final: true})
		pass(t, e)
		require.False(t, snapshot(t, l).Capsule("urgent-0").Placed())
		stop(t, l)
		pass(t, e)
		require.True(t, snapshot(t, l).Capsule("urgent-0").Placed())
		require.Empty(t, evicted(t, l))
	})
	t.Run("beside what stops there is room for what fits there with it", func(t *testing.T) {
		l := begun(t)
		commit(t, l, orbit.Release{Capsule: "a", Final: true})
		n := node("m", 6)
		commit(t, l, n)
		submit(t, l, "small", 2, cores(2, 10))
		e := preemptor(l, nil)
		pass(t, e)
		pass(t, e)
		s := snapshot(t, l)
		require.True(t, s.Capsule("small-0").Placed())
		require.False(t, s.Capsule("small-1").Placed())
		require.EqualValues(t, 0, s.Node("m").Free()[orbit.CPU])
		stop(t, l)
		pass(t, e)
		require.True(t, snapshot(t, l).Capsule("small-1").Placed())
	})
	t.Run("a drain moves what has begun there, and nothing into its room", func(t *testing.T) {
		l := begun(t)
		n := node("n", 4)
		n.Node.Confirms = true
		commit(t, l, n)
		s := snapshot(t, l).Capsule("a")
		commit(t, l, orbit.Evict{Capsule: "a", From: "m", Since: s.PlacedAt}, orbit.Place{Capsule: "a", Node: "n"})
		submit(t, l, "urgent", 1, cores(2, 10))
		e := preemptor(l, nil)
		pass(t, e)
		require.Equal(t, orbit.NodeID("n"), snapshot(t, l).Capsule("urgent-0").Node, "a has not begun there, and makes way")
	})
}
