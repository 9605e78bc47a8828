package ledgertest

import (
	"time"

	"github.com/orbitsched/orbit"
)

// This file checks which capsules may borrow nominated room until it is needed.

// backfilling makes a spec declare that it runs for at most a minute and may borrow nominated room.
func backfilling(spec *orbit.Spec) *orbit.Spec {
	spec.RunsAtMost, spec.Backfills = time.Minute, true
	return spec
}

// lend nominates a capsule as nominate does, and lends the room to capsules that run for at most lends.
func lend(lends time.Duration, c orbit.CapsuleID, room int64, nodes ...orbit.NodeID) orbit.Nominate {
	n := nominate(c, room, nodes...)
	n.Lends = lends
	return n
}

// borrows requires that a capsule borrows from the nomination of another one; "": from none.
func (t *trial) borrows(id, from orbit.CapsuleID) {
	switch got := t.capsule(id).Borrows(); {
	case got == nil && from == "":
	case got == nil || *got != (orbit.Nominee{Capsule: from}):
		t.Failf("capsule %q borrows from %v; it must borrow from %q", id, got, from)
	}
}

// checkLoans places capsules in nominated room that is lent, and in nominated room that is not.
func checkLoans(t *trial) {
	t.commits(node("n", 8), submit(ranked(5, 8), "top"), submit(ranked(1, 2), "plain"), submit(backfilling(ranked(1, 2)), "a", "b", "c"),
		submit(backfilling(ranked(5, 2)), "equal"))
	t.commits(nominate("top", 8, "n"))
	t.mistakes(place("a", "n"))
	t.commits(lend(time.Minute-1, "top", 8, "n")) // the borrowers run for longer than that
	t.mistakes(place("a", "n"))
	view := t.view()
	t.commits(lend(time.Minute, "top", 8, "n"))
	t.mistakes(place("plain", "n")) // which may be one that nothing evicts
	t.mistakes(place("equal", "n"))
	t.mistakes(hold("h", "n", 1))
	t.commits(place("a", "n"))
	t.borrows("a", "top")
	t.mistakes(place("a", "n"), place("plain", "n"))
	t.commits(nominate("top", 8, "n"))
	t.loses(view, place("b", "n"))
	t.borrows("a", "top") // a loan does not depend on what happens to the nomination afterwards
	t.mistakes(place("top", "n"))
	t.commits(lend(time.Hour, "top", 8, "n"))
	t.mistakes(lend(time.Hour, "top", 8, "n"), place("b", "n")) // capsules borrow only from nominations of earlier commits
	t.commits(stopped("a"))
	t.borrows("a", "")
	t.commits(place("a", "n"), place("b", "n"))
	t.commits(nominate("top", 8), place("c", "n")) // a nomination that ends in this commit lends nothing
	t.borrows("b", "top")
	t.borrows("c", "")
	t.invalid(submit(&orbit.Spec{Backfills: true}, "endless"))
	t.invalid(lend(-1, "top", 8, "n"))
	t.invalid(lend(1, "top", 8))
	crew := gang("g", 1, "x", "y")
	backfilling(crew.Gang.Roles[0].Spec)
	t.invalid(crew)
}

// checkLoansBeside checks that capsules which borrow do not change what is free for others on the same nodes.
func checkLoansBeside(t *trial) {
	t.commits(node("n", 8), node("m", 8), node("o", 8), node("wide", 1000), submit(ranked(5, 4), "half"), submit(ranked(9, 3), "first"), submit(ranked(8, 3), "second"),
		submit(ranked(7, 2), "small"), submit(ranked(6, 2), "smaller"), submit(backfilling(ranked(1, 4)), "a", "c"), submit(backfilling(ranked(1, 3)), "b"),
		submit(ranked(0, 4), "four", "four2"), submit(ranked(0, 3), "three", "three2"), submit(ranked(0, 2), "two", "two2"))
	t.commits(lend(time.Hour, "half", 4, "n"))
	t.commits(place("a", "n"))
	t.commits(place("four", "n")) // the other half is free for all, as it was
	t.commits(lend(time.Hour, "first", 3, "m"))
	t.commits(nominate("second", 3, "m"))
	t.commits(place("b", "m"))
	t.borrows("b", "first")
	t.mistakes(place("three", "m")) // a loan from one nominee does not reduce the claim of another
	t.commits(place("two", "m"))
	t.commits(lend(time.Hour, "small", 2, "o"))
	t.commits(nominate("smaller", 2, "o"))
	t.commits(place("c", "o")) // half of its demand is borrowed, the rest is free for all
	t.borrows("c", "small")
	t.mistakes(place("three2", "o"))
	t.commits(place("two2", "o"))
	t.mistakes(place("four2", "n"))
}

// checkRecalls evicts capsules from room that they borrow, for the nominee that has lent it and for others.
func checkRecalls(t *trial) {
	web := backfilling(ranked(1, 2))
	web.Group = "db"
	t.commits(node("n", 8), node("m", 8), submit(ranked(5, 8), "top"), submit(ranked(9, 8), "urgent"), submit(web, "a", "b", "c"))
	t.commits(place("c", "m"))
	t.commits(lend(time.Hour, "top", 8, "n"))
	t.mistakes(place("a", "n"), orbit.Protect{Capsule: "a", For: 1})
	t.commits(place("a", "n"), place("b", "n"))
	t.commits(budget("db", "db", 3, 0)) // put after a and b have borrowed
	t.breaks("db", 3, 1, t.mistakes(t.evictFor("a", "urgent"), t.evictFor("b", "urgent"), place("urgent", "n")))
	t.breaks("db", 3, 1, t.mistakes(t.move("a", "m")...))
	t.breaks("db", 3, 0, t.mistakes(t.evictFor("c", "top"), place("top", "m"))) // c borrows nothing
	t.commits(nominate("top", 8, "n"))
	t.evicts([]orbit.CapsuleID{"a", "b"}, t.evictFor("a", "top"), t.evictFor("b", "top"), place("top", "n"))
	t.borrows("a", "")
	t.commits(cancel("top"))
	t.commits(budget("db", "db", 3, 2))
	t.commits(place("a", "n"), place("b", "n")) // nothing is lent there now
	t.commits(budget("db", "db", 3, 0))
	t.breaks("db", 3, 1, t.mistakes(t.evictFor("a", "urgent"), t.evictFor("b", "urgent"), place("urgent", "n")))
}
