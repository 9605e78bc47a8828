package ledgertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file checks what a ledger says of starts that failed, and of placements that wait to begin.

// failed says at a number of minutes that the start of a capsule has failed.
func failed(id orbit.CapsuleID, minute int) orbit.Release {
	return orbit.Release{Capsule: id, Stopped: true, At: minutes(minute)}
}

// placeAt places a capsule at a number of minutes.
func placeAt(c orbit.CapsuleID, n orbit.NodeID, minute int) orbit.Place {
	return orbit.Place{Capsule: c, Node: n, At: minutes(minute)}
}

// minutes is a time.
func minutes(n int) orbit.Instant { return orbit.Instant(time.Duration(n) * time.Minute) }

// failures requires what a ledger says of the failures of a capsule: how many there are, how many in a row, and by node
// how often and at which minute.
func (t *trial) failures(id orbit.CapsuleID, attempts, inARow int, nodes ...string) {
	f, got := t.now().Failures(id), []string(nil)
	for _, n := range f.Nodes {
		got = append(got, fmt.Sprintf("%s %d at %v", n.Node, n.Times, time.Duration(n.At).Minutes()))
	}
	if f.Attempts != attempts || f.InARow != inARow || !slices.Equal(got, nodes) {
		t.Failf("capsule %q has failed %d times, %d in a row, on %q; it must be %d, %d and %q", id, f.Attempts, f.InARow, got, attempts, inARow, nodes)
	}
}

// checkFailures has capsules fail. Each failure counts, with its node and its time; ends, moves and losses do not.
func checkFailures(t *trial) {
	start := t.now()
	for _, n := range []orbit.NodeID{"n1", "n2", "n3", "n4", "n5"} {
		t.commits(node(n, 4))
	}
	t.commits(submit(movable(cpu(1)), "a", "b"))
	t.failures("a", 0, 0)
	t.invalid(orbit.Release{Capsule: "a", Final: true, At: 1})
	t.invalid(orbit.Release{Capsule: "a", Stopped: true, At: -1})
	t.invalid(orbit.Release{Hold: "h", At: 1})
	t.commits(placeAt("a", "n1", 1))
	t.commits(failed("a", 2))
	t.failures("a", 1, 1, "n1 1 at 2")
	t.commits(placeAt("a", "n1", 3))
	t.commits(orbit.Release{Capsule: "a", Stopped: true}, placeAt("a", "n2", 4)) // when it failed is not said, so it is when it was placed
	t.failures("a", 2, 2, "n1 2 at 3")
	t.commits(failed("a", 5), placeAt("a", "n1", 14), failed("a", 15)) // on n1 more than ten minutes after it failed there
	t.failures("a", 4, 4, "n1 1 at 15", "n2 1 at 5")
	t.commits(placeAt("a", "n3", 16))
	t.commits(failed("a", 26), placeAt("a", "n4", 27), failed("a", 28), placeAt("a", "n5", 29), failed("a", 30)) // on n3 after ten minutes
	t.failures("a", 7, 3, "n5 1 at 30", "n4 1 at 28", "n3 1 at 26", "n1 1 at 15")
	t.commits(place("a", "n1"), place("b", "n1"))
	t.commits(t.evict("a"), place("a", "n2"))
	t.commits(lost("n1"), release("b"))
	t.failures("a", 7, 3, "n5 1 at 30", "n4 1 at 28", "n3 1 at 26", "n1 1 at 15")
	t.failures("b", 0, 0)
	t.commits(cancel("a"))
	t.failures("a", 7, 3, "n5 1 at 30", "n4 1 at 28", "n3 1 at 26", "n1 1 at 15")
	t.commits(submit(cpu(1), "a"))
	t.failures("a", 0, 0)
	t.commits(confirming("n6", 4), placeAt("b", "n6", 31))
	t.commits(t.begins("b"))
	t.mistakes(orbit.Confirm{Capsule: "b", Since: t.now().Capsule("b").PlacedAt, Stopped: true}) // it was not taken off its node, so only Release says that it stopped
	t.failures("b", 0, 0)
	t.commits(failed("b", 32))
	t.failures("b", 1, 1, "n6 1 at 32")
	if c := t.now().Capsule("b"); !c.Pending() || c.Remains() != nil {
		t.Failf("capsule %q has stopped; it must be pending, and nothing may remain of it", "b")
	}
	t.endsByAttempts()
	t.follows(start, t.peer)
}

// endsByAttempts has a capsule fail as often as its spec permits: it has ended, the history says so, and the proposal is
// known when it is sent again. What is said to have failed for good has ended, too.
func (t *trial) endsByAttempts() {
	limited := cpu(1)
	limited.Attempts = 2
	t.commits(submit(limited, "last", "hopeless"), placeAt("last", "n2", 40), placeAt("hopeless", "n2", 40))
	t.commits(failed("last", 41), placeAt("last", "n3", 42))
	if c := t.now().Capsule("last"); !c.Placed() {
		t.Failf("capsule %q has failed once of twice; it must be placed again", "last")
	}
	before := t.now().Revision()
	t.commits(failed("last", 43))
	t.failures("last", 2, 2, "n3 1 at 43", "n2 1 at 41")
	want := failed("last", 43)
	want.Final = true
	changes, err := t.ledger.Changes(t.ctx, before)
	if err != nil || len(changes) != 1 || changes[0].Do != orbit.Commitment(want) || !t.now().Capsule("last").Released() {
		t.Failf("capsule %q has failed twice of twice: %v, %v; it must have ended by %v", "last", changes, err, want)
	}
	want = failed("hopeless", 44)
	want.Final = true
	t.commits(want)
	t.failures("hopeless", 1, 1, "n2 1 at 44")
	if c := t.now().Capsule("hopeless"); !c.Released() {
		t.Failf("capsule %q has failed for good; it must have ended", "hopeless")
	}
}

// waiting requires which capsules wait to begin, each for which one.
func (t *trial) waiting(want ...string) {
	var got []string
	for c, r := range t.now().Waiting() {
		got = append(got, fmt.Sprintf("%s for %s on %s", c.ID, r.Capsule, r.Node))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Failf("%q wait to begin; it must be %q", got, want)
	}
}

// checkGivingUp releases and moves placements that wait to begin. No rule stands in the way, because they have never run;
// as soon as they have begun, the rules hold.
func checkGivingUp(t *trial) {
	start := t.now()
	budget := orbit.PutBudget{Budget: orbit.Budget{ID: "b", Module: "kept", Expected: 2, IgnoreReady: true}}
	kept := cpu(4)
	kept.Module = "kept"
	t.commits(confirming("n", 4), confirming("m", 4), node("plain", 4), submit(cpu(4), "old", "older"), submit(kept, "p", "q"), place("old", "n"), place("older", "m"))
	t.commits(t.begins("old"), t.begins("older"))
	t.commits(cancel("old"), cancel("older"), place("p", "n"), orbit.Protect{Capsule: "p", For: time.Second}, place("q", "m"), budget)
	t.waiting("p for old on n", "q for older on m")
	t.commits(orbit.Release{Capsule: "p", At: minutes(7)}) // neither the budget nor the protection is in the way
	t.failures("p", 0, 0, "n 1 at 7")
	t.waiting("q for older on m")
	t.commits(place("p", "plain"))
	t.mistakes(orbit.Release{Capsule: "p"}) // it runs, because nobody confirms there
	t.commits(t.evict("q"), place("q", "n"))
	t.waiting("q for old on n")
	view, move := t.view(), t.evict("q")
	t.commits(t.stops("old"))
	t.commits(t.begins("q"))
	t.waiting()
	t.loses(view, orbit.Release{Capsule: "q"})
	t.loses(view, move, place("q", "m"))
	t.mistakes(orbit.Release{Capsule: "q"})
	t.mistakes(t.evict("q"), orbit.Place{Capsule: "q", Node: "m"})
	t.follows(start, t.peer)
	t.clear()
	g := gang("g", 2, "x", "y")
	g.Gang.Roles[0].Spec = cpu(4)
	t.commits(confirming("n", 4), confirming("m", 4), submit(cpu(4), "old"), g, place("old", "n"))
	t.commits(t.begins("old"))
	t.commits(cancel("old"), place("x", "n"), place("y", "m"))
	t.commits(t.begins("y"))
	t.waiting("x for old on n")
	t.mistakes(release("y"))
	t.commits(release("x")) // below the minimum of its gang, which does not run without it anyway
	t.failures("x", 0, 0, "n 1 at 0")
	t.commits(release("y")) // a broken gang may leave as a whole
}
