package ledgertest

import (
	"fmt"
	"sync/atomic"

	"github.com/orbitsched/orbit"
)

// This file checks budgets: how many members of a group or a module may be taken off their nodes by choice. Such an
// eviction, move or drain is called a wish.

// budget puts a budget on a group.
func budget(id orbit.BudgetID, group string, expected, missing int) orbit.PutBudget {
	return orbit.PutBudget{Budget: orbit.Budget{ID: id, Group: group, Expected: expected, Missing: missing}}
}

// grouped returns a spec of a member of a group that asks for 1 of CPU.
func grouped(group string) *orbit.Spec {
	spec := cpu(1)
	spec.Group = group
	return spec
}

// placed submits capsules of a spec and places them on node "n".
func (t *trial) placed(spec *orbit.Spec, list ...orbit.CapsuleID) {
	do := []orbit.Commitment{submit(spec, list...)}
	for _, id := range list {
		do = append(do, place(id, "n"))
	}
	t.commits(do...)
}

// move takes a capsule off its node and places it on another.
func (t *trial) move(id orbit.CapsuleID, to orbit.NodeID) []orbit.Commitment {
	return []orbit.Commitment{t.evict(id), place(id, to)}
}

// breaks requires that a rejection names the budget, how many healthy members it needs, and how many would be left.
func (t *trial) breaks(id orbit.BudgetID, needed, healthy int64, r orbit.Rejection) {
	if r.Budget != id || r.Want != needed || r.Free != healthy {
		t.Failf("it is refused as %q: budget %q, %d needed, %d healthy; it must be %q, %d, %d", r.Reason, r.Budget, r.Want, r.Free, id, needed, healthy)
	}
}

// checkBudgets makes wishes of all kinds that touch members of a group, and of a module.
func checkBudgets(t *trial) {
	t.commits(node("n", 8), node("m", 8), node("o", 8))
	t.placed(grouped("db"), "a", "b", "c")
	t.placed(cpu(1), "other")
	t.mistakes(t.move("a", "m")...) // neither the spec nor a budget consents to moves
	t.commits(budget("db", "db", 3, 1))
	t.commits(t.move("a", "m")...) // a budget is consent
	t.mistakes(t.move("other", "m")...)
	t.breaks("db", 2, 1, t.mistakes(append(t.move("a", "n"), t.move("b", "m")...)...)) // both in one commit
	both := grouped("db")
	both.Groups = []string{"web"}
	t.placed(both, "w")
	t.commits(budget("web", "web", 1, 0))
	t.breaks("web", 1, 0, t.mistakes(t.move("w", "m")...)) // a member of both budgets, of which only one can spare it
	t.commits(orbit.RemoveBudget{Budget: "web"}, cancel("w"))
	t.commits(drained("n"))
	t.breaks("db", 2, 1, t.mistakes(release("b"), release("c"), release("other")))
	view := t.view()
	t.commits(release("b"), release("other"))
	t.breaks("db", 2, 1, t.loses(view, release("c")))
	t.breaks("db", 2, 1, t.mistakes(release("c")))
	t.commits(place("b", "o"))
	t.commits(release("c"))
	t.commits(place("c", "o"))
	view = t.view()
	t.commits(budget("db", "db", 3, 0))
	t.breaks("db", 3, 2, t.loses(view, t.move("c", "m")...)) // the budget is newer than its view
	t.commits(orbit.RemoveBudget{Budget: "db"})
	t.loses(view, orbit.RemoveBudget{Budget: "db"})
	t.mistakes(orbit.RemoveBudget{Budget: "db"})
	t.mistakes(t.move("c", "m")...)
	t.invalid(orbit.PutBudget{Budget: orbit.Budget{ID: "x", Group: "db", Module: "m"}})
	t.invalid(orbit.PutBudget{Budget: orbit.Budget{ID: "x"}})
	t.invalid(orbit.PutBudget{Budget: orbit.Budget{Group: "db"}})
	t.invalid(budget("x", "db", -1, 0))
	t.invalid(orbit.PutBudget{Budget: orbit.Budget{ID: "x", Group: "db", Missing: 1, MissingPercent: 10}})
	t.invalid(orbit.PutBudget{Budget: orbit.Budget{ID: "x", Group: "db", MissingPercent: 101}})
}

// checkBudgetPriorities evicts members for work above the priority to which the budget yields, and for work below it.
func checkBudgetPriorities(t *trial) {
	t.commits(node("n", 2), node("m", 2))
	low := ranked(5, 1)
	low.Module = "web"
	t.placed(low, "a", "b")
	t.commits(submit(ranked(10, 1), "high"), submit(ranked(20, 1), "top"))
	b := orbit.Budget{ID: "web", Module: "web", Expected: 2, MissingPercent: 1, Above: 20} // one percent of two is one
	t.commits(orbit.PutBudget{Budget: b})
	t.evicts([]orbit.CapsuleID{"a"}, t.evictFor("a", "high"), place("high", "n"))
	t.breaks("web", 1, 0, t.mistakes(append(t.move("b", "m"), submit(cpu(1), "x"))...)) // a move has no priority
	t.evicts([]orbit.CapsuleID{"b"}, t.evictFor("b", "top"), place("top", "n"))         // which is as much as it asks for
	t.commits(cancel("top"), cancel("high"))
	t.commits(place("a", "n"), place("b", "n"), submit(ranked(10, 2), "wide"))
	t.breaks("web", 1, 0, t.mistakes(t.evictFor("a", "wide"), t.evictFor("b", "wide"), place("wide", "n")))
	t.commits(node("n", 3))
	t.evicts([]orbit.CapsuleID{"b"}, t.evictFor("a", "wide"), t.evictFor("b", "wide"), place("wide", "n")) // a is spared, so it is judged as if it were not named
}

// checkBudgetEnds makes groups smaller, and lets members end and be lost.
func checkBudgetEnds(t *trial) {
	t.commits(node("n", 8), node("m", 8), budget("db", "db", 3, 1))
	t.placed(grouped("db"), "a", "b", "c")
	t.commits(cancel("a"))                 // an end is refused by no budget
	t.commits(submit(grouped("db"), "a2")) // a pending member is missing too, so it replaces none
	t.breaks("db", 2, 1, t.mistakes(t.move("b", "m")...))
	t.commits(place("a2", "m"))
	t.breaks("db", 2, 1, t.mistakes(append(t.move("b", "m"), cancel("c"))...)) // what ends in the same commit counts
	t.commits(t.move("b", "m")...)
	t.breaks("db", 2, 1, t.mistakes(append(t.move("b", "n"), cancel("c"), budget("db", "db", 2, 1))...)) // the former budget counts too
	t.commits(cancel("c"), budget("db", "db", 2, 1))                                                     // the group is scaled down
	t.commits(t.move("b", "n")...)
	t.commits(budget("db", "db", 9, 1))
	t.breaks("db", 8, 1, t.mistakes(t.move("b", "m")...)) // an Expected that is too large only blocks
	t.commits(stopped("b"))
	t.commits(place("b", "n"))
	t.commits(cancel("a2"), cancel("b"), budget("db", "db", 0, 0)) // scaled to zero
	t.commits(orbit.PutBudget{Budget: orbit.Budget{ID: "two", Group: "db", Expected: 2}})
	t.placed(grouped("db"), "d", "e")
	t.commits(node("o", 1), submit(grouped("db"), "f"))
	t.commits(place("f", "o"))
	view := t.view()
	t.commits(lost("n"))
	t.commits(drained("o"))
	t.breaks("two", 2, 0, t.loses(view, release("f")))                          // members on a lost node are missing at once
	t.commits(append([]orbit.Commitment{release("d")}, t.move("e", "m")...)...) // but taking them off the lost node is no wish
}

// checkBudgetSizes moves and evicts many at once.
func checkBudgetSizes(t *trial) {
	list := ids[orbit.CapsuleID]("c", min(100, t.limits.Commitments/2))
	n := len(list)
	t.commits(node("n", int64(n)), node("m", int64(n)), budget("all", "all", n, n-1))
	t.submitted(grouped("all"), list...)
	var moves []orbit.Commitment
	for _, id := range list {
		t.commits(place(id, "n"))
	}
	for _, id := range list {
		moves = append(moves, t.move(id, "m")...)
	}
	t.breaks("all", 1, 0, t.mistakes(moves...)) // all would be placed afterwards, but none would run in between
	t.commits(moves[:2*n-2]...)
	crew := gang("g", 2, "x", "y", "z")
	crew.Gang.Roles[0].Spec.Group = "crew"
	t.commits(node("o", 3), crew, place("x", "o"), place("y", "o"), place("z", "o"), budget("crew", "crew", 3, 2))
	t.commits(drained("o"))
	t.breaks("crew", 1, 0, t.mistakes(release("x"), release("y"), release("z"))) // each member of a whole gang counts as missing
	t.commits(budget("crew", "crew", 3, 3))
	t.commits(release("x"), release("y"), release("z"))
}

// checkBudgetsOfReady takes members off their nodes while others are not ready, on nodes that confirm and on others.
func checkBudgetsOfReady(t *trial) {
	t.commits(confirming("n", 8), confirming("m", 8), node("plain", 8), budget("db", "db", 3, 1))
	t.placed(grouped("db"), "a", "b", "c")
	t.breaks("db", 2, 0, t.mistakes(t.move("a", "m")...))
	t.commits(t.serves("a", true), t.serves("b", true), t.serves("c", true))
	t.commits(t.move("a", "m")...)
	t.commits(t.stops("a"))
	t.breaks("db", 2, 1, t.mistakes(t.move("b", "m")...)) // a is placed, but not ready yet
	t.commits(t.begins("a"))
	t.breaks("db", 2, 1, t.mistakes(t.move("b", "m")...))
	t.commits(t.serves("a", true))
	view := t.view()
	t.commits(t.serves("c", false))
	t.breaks("db", 2, 1, t.loses(view, t.move("b", "m")...))
	t.commits(t.serves("c", true))
	t.commits(stopped("b"), place("b", "plain"))
	t.commits(t.move("c", "m")...) // b counts as ready, because its node does not confirm
	t.commits(t.stops("c"))
	t.breaks("db", 2, 1, t.mistakes(append(t.move("a", "n"), node("m", 8))...)) // c would count as ready only by the proposal's own change of its node
	placed := budget("db", "db", 3, 1)
	placed.Budget.IgnoreReady = true
	t.commits(placed)
	t.commits(t.move("a", "n")...)
	t.commits(t.stops("a"))
	t.commits(t.move("c", "n")...) // the budget ignores whether a is ready
}

// checkFreeUnready takes members off their nodes that are not ready, under a budget that allows it and under one that
// does not.
func checkFreeUnready(t *trial) {
	t.commits(confirming("n", 8), confirming("m", 8), budget("db", "db", 2, 0))
	t.placed(grouped("db"), "a", "b")
	t.commits(t.serves("a", true), t.serves("b", true))
	t.commits(t.serves("a", false))
	t.breaks("db", 2, 1, t.mistakes(t.move("a", "m")...))
	free := budget("db", "db", 2, 0)
	free.Budget.FreeUnready = true
	t.commits(free)
	t.breaks("db", 2, 0, t.mistakes(t.move("b", "m")...))
	t.breaks("db", 2, 0, t.mistakes(append(t.move("a", "m"), t.move("b", "m")...)...)) // one of the two members is ready
	view := t.view()
	t.commits(t.serves("a", true))
	t.breaks("db", 2, 1, t.loses(view, t.move("a", "m")...)) // it serves again
	t.commits(t.serves("a", false))
	t.commits(t.move("a", "m")...)
}

// checkRaceUnready lets one racer report that its members are not ready, while the others take their own members off
// their nodes. A ledger that commits such a wish after the report has broken the budget, which the check of the history
// shows.
func checkRaceUnready(t *trial) {
	rounds := t.scaled(25)
	member := func(racer, round int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprintf("c%d-%d", round, racer)) }
	on := func(racer int) orbit.NodeID { return orbit.NodeID(fmt.Sprint("n", racer)) }
	for i := range racers {
		t.commits(confirming(on(i), int64(rounds)))
	}
	for k := range rounds {
		group := fmt.Sprint("g", k)
		t.commits(budget(orbit.BudgetID(group), group, racers, 1))
		for i := range racers {
			t.commits(submit(grouped(group), member(i, k)), place(member(i, k), on(i)))
			t.commits(t.serves(member(i, k), true))
		}
	}
	for i := range racers {
		t.commits(cordoned(confirming(on(i), int64(rounds))))
	}
	before := t.now()
	var failed atomic.Int32
	t.inRounds(rounds, func(i, k int, l orbit.Ledger) error {
		id := member(i, k)
		if i > 0 {
			_, err := t.wins(l, planned(before.Revision(), release(id)))
			return err
		}
		no := orbit.Confirm{Capsule: id, Since: before.Capsule(id).PlacedAt, NotReady: true}
		yes, err := t.wins(l, planned(before.Revision(), no))
		if yes {
			failed.Add(1)
		}
		return err
	})
	if int(failed.Load()) != rounds {
		t.Failf("%d of %d members could be said not to serve; nothing refuses that", failed.Load(), rounds)
	}
	for b := range t.now().Budgets() {
		if b.Healthy < racers-2 {
			t.Failf("%d of %d members of %q are healthy; one fails, and one may be wished away before that", b.Healthy, racers, b.Budget.Group)
		}
	}
}

// checkRaceBudgets lets each racer take one member off its node, under a budget that lets one be missing.
func checkRaceBudgets(t *trial) {
	rounds := t.scaled(12)
	t.commits(drained("away"))
	for i := range racers {
		t.commits(node(orbit.NodeID(fmt.Sprint("n", i)), int64(rounds)))
	}
	member := func(racer, round int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprintf("c%d-%d", round, racer)) }
	for k := range rounds {
		group := fmt.Sprint("g", k)
		spec := grouped(group)
		t.commits(budget(orbit.BudgetID(group), group, racers, 1))
		for i := range racers {
			t.commits(submit(spec, member(i, k)), place(member(i, k), orbit.NodeID(fmt.Sprint("n", i))))
		}
	}
	for i := range racers {
		t.commits(drained(orbit.NodeID(fmt.Sprint("n", i))))
	}
	view := t.view()
	t.oneWins(rounds, func(racer, round int) orbit.Proposal { return planned(view, release(member(racer, round))) })
	for b := range t.now().Budgets() {
		if b.Healthy != racers-1 {
			t.Failf("%d of %d members of %q are healthy; one may be missing", b.Healthy, racers, b.Budget.Group)
		}
	}
}
