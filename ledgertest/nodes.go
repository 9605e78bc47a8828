package ledgertest

import (
	"strconv"

	"github.com/orbitsched/orbit"
)

// This file checks nodes that join, change, leave and come back.

// checkReturn removes a node, adds it again under the same id, and repeats bets on the former node.
func checkReturn(t *trial) {
	t.commits(node("n", 5), mark("m", "v"))
	old := t.now()
	was := old.Node("n")
	_, marked := old.Mark("m")
	gone := t.commits(orbit.RemoveNode{Node: "n"}, mark("m", ""))
	lost := func(bet orbit.Precondition) orbit.Rejection {
		return t.refuses(orbit.ErrConflict, bets(old.Revision(), bet))
	}
	if r := lost(orbit.NodeAt{Node: "n", Usage: was.Usage}); r.TakenAt > r.At || r.TakenAt < gone {
		t.Failf("the receipt says taken at %d, judged at %d; the node left at %d", r.TakenAt, r.At, gone)
	}
	lost(orbit.NodeFreeOf{Node: "n"})
	lost(orbit.MarkAt{Key: "m", Revision: marked})
	t.commits(node("n", 5), mark("m", "v"))
	lost(orbit.NodeAt{Node: "n", Usage: was.Usage})
	lost(orbit.NodeAt{Node: "n", Specification: was.Specification})
	lost(orbit.MarkAt{Key: "m", Revision: marked})
	if n := t.member("n"); n.Usage <= was.Usage || n.Specification <= was.Specification {
		t.Failf("node n came back with counters %d and %d; it left with %d and %d", n.Usage, n.Specification, was.Usage, was.Specification)
	}
}

// checkReturnAtOnce does the same within one proposal.
func checkReturnAtOnce(t *trial) {
	t.commits(node("n", 5), submit(cpu(1), "a"), place("a", "n"))
	was := t.member("n")
	t.commits(lost("n"), release("a"), orbit.RemoveNode{Node: "n"}, node("n", 1), place("a", "n"))
	n := t.member("n")
	if n.Used() != (orbit.Resources{orbit.CPU: 1}) || n.Capsules != 1 {
		t.Failf("the node that came back has %d capsules and %v used; it must have one, of 1", n.Capsules, n.Used())
	}
	if n.Usage <= was.Usage || n.Specification <= was.Specification {
		t.Failf("node n came back with counters %d and %d; it left with %d and %d", n.Usage, n.Specification, was.Usage, was.Specification)
	}
}

// checkCounters checks both counters of a node: Usage moves with every change of what is in use, Specification with
// every new description, and each of them only then.
func checkCounters(t *trial) {
	t.commits(node("n", 5), submit(cpu(1), "a"))
	usage, spec := t.member("n").Usage, t.member("n").Specification
	expect := func(what string, rev orbit.Revision, moved, described bool) {
		n := t.member("n")
		if moved {
			usage = rev
		}
		if described {
			spec = rev
		}
		if n.Usage != usage || n.Specification != spec {
			t.Failf("after %s at %d the counters are %d and %d; they must be %d and %d", what, rev, n.Usage, n.Specification, usage, spec)
		}
	}
	expect("a place", t.commits(place("a", "n")), true, false)
	expect("a description", t.commits(node("n", 6)), false, true)
	expect("a hold", t.commits(hold("h", "n", 1)), true, false)
	expect("a release", t.commits(stopped("a")), true, false)
	expect("the end of a hold", t.commits(unhold("h")), true, false)
	expect("what does not concern it", t.commits(mark("m", "v"), node("other", 1)), false, false)
}

// checkEmptied tries to remove a node with capsules and holds, and removes it when it is empty. Proposals that were
// planned before are conflicts.
func checkEmptied(t *trial) {
	t.commits(node("n", 5), node("m", 5), submit(cpu(1), "a", "b", "late"), place("a", "n"), place("b", "n"), hold("h", "n", 1))
	view := t.view()
	leave := orbit.RemoveNode{Node: "n"}
	t.mistakes(leave)
	t.mistakes(lost("n"), release("a"), release("b"), leave)
	t.mistakes(lost("n"), release("a"), unhold("h"), leave)
	t.commits(lost("n"), release("a"), cancel("b"), unhold("h"), leave)
	if t.now().Node("n") != nil {
		t.Failf("node n is still a member")
	}
	t.loses(view, place("late", "n"))
	t.loses(view, leave)
	t.commits(node("n", 5))
	if n := t.member("n"); n.Used() != (orbit.Resources{}) || n.Capsules != 0 {
		t.Failf("node n came back with %d capsules and %v used", n.Capsules, n.Used())
	}
	t.commits(place("late", "n"), place("a", "n"))
	t.commits(lost("n"), release("a"), place("a", "m"), release("late"), place("late", "m"), leave, node("o", 1)) // moved and removed
	if n := t.member("m").Capsules; n != 2 {
		t.Failf("%d capsules have moved to node m; it must be 2", n)
	}
}

// checkOddIDs uses ids that a store could take for keys of its own. Many of them begin with one another.
func checkOddIDs(t *trial) {
	long := make([]byte, t.limits.IDBytes)
	for i := range long {
		long[i] = "x/%"[i%3]
	}
	odd := []string{"a", "a/", "a/b", "/a", "..", "../a", ".", "%2F", "a%2Fb", "a b", " a", "a\x00", "\x00", "a\n", "ä", "\u202e", "*", "A", "~", "log", "gc", "meta", "n/a", "c/a", string(long)}
	for i, id := range odd {
		member := ids[orbit.CapsuleID]("member", i+1)[i]
		t.commits(node(orbit.NodeID(id), 3), submit(cpu(1), orbit.CapsuleID(id)), gang(orbit.GangID(id), 0, member))
		t.commits(place(orbit.CapsuleID(id), orbit.NodeID(id)), place(member, orbit.NodeID(id)), hold(orbit.HoldID(id), orbit.NodeID(id), 1), mark(id, strconv.Itoa(i)))
	}
	for i, id := range odd {
		s := t.now()
		if s.NodeCount() != len(odd)-i {
			t.Failf("%d nodes are left; it must be %d", s.NodeCount(), len(odd)-i)
		}
		n, _ := s.Hold(orbit.HoldID(id))
		value, _ := s.Mark(id)
		if value != strconv.Itoa(i) || n.Node != orbit.NodeID(id) || s.Gang(orbit.GangID(id)) == nil {
			t.Failf("what was made under the id %q reads %q, %v, %v", id, value, n, s.Gang(orbit.GangID(id)))
		}
		member := ids[orbit.CapsuleID]("member", i+1)[i]
		t.commits(cancel(orbit.CapsuleID(id)), cancel(member), unhold(orbit.HoldID(id)), mark(id, ""), orbit.RemoveNode{Node: orbit.NodeID(id)})
	}
	if d := difference(t.now(), t.seenBy(t.peer)); d != "" {
		t.Failf("the other handle sees another state:\n%s", d)
	}
}
