package ledgertest

import (
	"github.com/orbitsched/orbit"
)

// This file checks what other parties do to the cluster: they describe nodes again and again, put work on nodes, end
// what they evict, and take nodes away with all that is on them.

// ending makes capsules of a spec end when they are taken off their node, and returns it.
func ending(spec *orbit.Spec) *orbit.Spec {
	spec.Ends = true
	return spec
}

// checkEqualNode puts descriptions that nodes have already.
func checkEqualNode(t *trial) {
	n := node("n", 4)
	t.commits(n, node("m", 1))
	spec, before := t.member("n").Specification, t.view()
	if rev := t.admits(orbit.Proposal{Do: []orbit.Commitment{n, n}}); rev != before || t.view() != before {
		t.Failf("an equal description makes revision %d, and the ledger is at %d; both must be %d", rev, t.view(), before)
	}
	p := planned(before, n)
	rev := t.admits(p)
	t.commits(node("n", 5))
	described := t.member("n").Specification
	if again := t.admits(p); again != rev || t.member("n").Node.Capacity[orbit.CPU] != 5 {
		t.Failf("an equal description was committed at %d; sent again, it is at %d, and node n has %d", rev, again, t.member("n").Node.Capacity[orbit.CPU])
	}
	view := t.view()
	t.commits(node("m", 1), mark("k", "v"), node("n", 5))
	if list := t.changes(t.ledger, view); len(list) != 1 || list[0].Seq != 0 {
		t.Failf("a mark beside equal descriptions is %v; it must be one change", list)
	}
	if d := t.member("n").Specification; d != described || d <= spec {
		t.Failf("node n was described at %d, and last at %d; the state says %d", spec, described, d)
	}
	if d := difference(t.now(), t.seenBy(t.peer)); d != "" {
		t.Failf("the other handle sees another state:\n%s", d)
	}
}

// checkGone takes nodes away with all that is on them.
func checkGone(t *trial) {
	t.commits(confirming("n", 9), confirming("m", 9), submit(movable(cpu(1)), "a", "b", "old"), gang("g", 0, "x", "y"), submit(ending(cpu(1)), "pod", "waits"),
		orbit.PutBudget{Budget: orbit.Budget{ID: "none", Group: "g"}})
	t.commits(place("a", "n"), orbit.Protect{Capsule: "a", For: 1}, place("b", "m"), place("old", "n"), place("x", "n"), place("y", "m"), place("pod", "n"), place("waits", "n"), hold("h", "n", 1), hold("k", "m", 1))
	t.commits(t.begins("a"), t.begins("old"), t.begins("pod"))
	t.commits(cancel("old"))
	t.commits(submit(cpu(1), "next"))
	t.commits(orbit.Nominate{Capsule: "next", Parts: []orbit.NominatedRoom{{Node: "n", Room: orbit.Resources{orbit.CPU: 1}}}, Ends: someday})
	t.mistakes(orbit.RemoveNode{Node: "n"})
	view := t.view()
	t.commits(submit(cpu(1), "late"))
	t.commits(place("late", "n"))
	gone := planned(view, orbit.RemoveNode{Node: "n", Gone: true}) // also what came after the view is lost
	before := t.now()
	rev := t.admits(gone)
	if again := t.admits(gone); again != rev {
		t.Failf("a node has gone at %d; sent again, it is at %d", rev, again)
	}
	s := t.now()
	for _, id := range []orbit.CapsuleID{"a", "x", "waits", "late"} {
		if c := s.Capsule(id); !c.Pending() || c.Begun || s.Failures(id).Attempts > 0 {
			t.Failf("capsule %q was on a node that has gone; its record is %+v, and must wait again", id, c)
		}
	}
	_, held := s.Hold("h")
	if c := s.Capsule("pod"); !c.Released() || s.Capsule("old").Remains() != nil || s.Capsule("next").Nomination().Lives() || held || s.Protected("a") > 0 || s.Node("n") != nil {
		t.Failf("node n has gone, and something on it is left: %+v", c)
	}
	if g := s.Gang("g"); !g.Broken() || s.Capsule("b").Node != "m" {
		t.Failf("gang %q has %v placed; it must be broken", g.Gang.ID, g.Placed)
	}
	copied, err := before.Apply(t.changes(t.ledger, before.Revision()))
	t.Must(err, "State.Apply")
	if d := difference(s, copied); d != "" {
		t.Failf("the changes lead to another state:\n%s", d)
	}
	t.commits(orbit.RemoveNode{Node: "m", Gone: true}, confirming("m", 9), place("a", "m")) // it has come back empty
	if n := t.member("m"); n.Capsules != 1 || n.Holds() != 0 {
		t.Failf("the node that came back has %d capsules and %d holds", n.Capsules, n.Holds())
	}
	t.mistakes(orbit.RemoveNode{Node: "n", Gone: true})
}

// checkEnds takes work off nodes that ends by that.
func checkEnds(t *trial) {
	t.commits(confirming("n", 2), node("m", 2), submit(ending(cpu(1)), "a", "b", "c", "d"), submit(ranked(9, 1), "x", "y", "z"))
	t.commits(place("a", "n"), place("b", "n"), place("c", "m"), place("d", "m"))
	t.commits(t.begins("a"))
	t.mistakes(t.evictFor("a", "x"), place("x", "n"), place("a", "m"))
	t.evicts([]orbit.CapsuleID{"a"}, t.evictFor("a", "x"), place("x", "n"))
	t.remain("n", "a")
	t.ended("a", true)
	t.commits(t.evictFor("b", "y"), place("y", "n"))
	t.ended("b", false) // it has not begun, so nothing has ended
	t.commits(t.evictFor("c", "z"), place("z", "m"))
	t.ended("c", true)
	t.commits(cordoned(node("m", 2)))
	t.mistakes(t.evict("d"), place("d", "m"))
	t.commits(release("d"))
	t.ended("d", true)
	t.commits(submit(ending(cpu(1)), "a")) // its controller begins anew
	t.ended("a", false)
}

// ended requires that a capsule has been released for good, or waits.
func (t *trial) ended(id orbit.CapsuleID, want bool) {
	if c := t.capsule(id); c.Released() != want || c.Pending() == want {
		t.Failf("capsule %q has ended: %v, waits: %v; it must have ended: %v", id, c.Released(), c.Pending(), want)
	}
}

// checkOverfull begins work on nodes on which another party has put some, too.
func checkOverfull(t *trial) {
	t.commits(confirming("n", 4), submit(cpu(2), "first", "last"), submit(gpu(0, 0), "free"))
	t.commits(place("first", "n"))
	t.commits(place("last", "n"))
	t.commits(place("free", "n"))
	view := t.view()
	t.commits(orbit.Adopt{Capsule: "theirs", Spec: cpu(2), Node: "n"})
	t.loses(view, t.begins("last"))
	if r := t.mistakes(t.begins("last")); r.Capsule != "last" || r.Node != "n" || r.Dimension == "" || r.Want != 2 || r.Free != 0 {
		t.Failf("the refusal says %+v; it must say that the capsule wants 2, and 0 are free", r)
	}
	t.mistakes(t.serves("last", true))
	t.commits(t.begins("first"), t.begins("free"))
	t.mistakes(release("first"))
	t.commits(release("last"))
	t.ended("last", false)
	t.commits(orbit.Adopt{Capsule: "more", Spec: cpu(2), Node: "n"}) // what runs is not asked
	t.commits(t.serves("first", true))
}
