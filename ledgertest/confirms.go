package ledgertest

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// This file checks confirmations: which capsules begin, which have left a node and still run there (remains), and which
// wait for those to stop.

// confirming describes a node whose agent confirms.
func confirming(id orbit.NodeID, room int64) orbit.PutNode {
	n := node(id, room)
	n.Node.Confirms = true
	return n
}

// cordoned returns the description with the node cordoned.
func cordoned(n orbit.PutNode) orbit.PutNode {
	n.Node.State = orbit.Cordoned
	return n
}

// begins says that a capsule begins where it is placed.
func (t *trial) begins(id orbit.CapsuleID) orbit.Confirm {
	return orbit.Confirm{Capsule: id, Since: t.capsule(id).PlacedAt, Begun: true}
}

// serves says that a capsule is ready where it is placed, or not any more.
func (t *trial) serves(id orbit.CapsuleID, does bool) orbit.Confirm {
	return orbit.Confirm{Capsule: id, Since: t.capsule(id).PlacedAt, Ready: does, NotReady: !does}
}

// stops says that the remains of a capsule have stopped.
func (t *trial) stops(id orbit.CapsuleID) orbit.Confirm {
	r := t.capsule(id).Remains()
	if r == nil {
		t.Failf("capsule %q has left nothing that runs; it must have", id)
	}
	return orbit.Confirm{Capsule: id, Since: r.Since, Stopped: true}
}

// waits requires that a capsule waits to begin, or does not.
func (t *trial) waits(id orbit.CapsuleID, want bool) {
	if c := t.capsule(id); c.Waits != want {
		t.Failf("capsule %q waits to begin on node %q: %v; it must be %v", id, c.Node, c.Waits, want)
	}
}

// remain requires that exactly these capsules have left a node and still run there.
func (t *trial) remain(id orbit.NodeID, want ...orbit.CapsuleID) {
	var got []orbit.CapsuleID
	for r := range t.now().Remains(id) {
		got = append(got, r.Capsule)
	}
	if !slices.Equal(got, want) {
		t.Failf("%v have left node %q and still run there; it must be %v", got, id, want)
	}
}

// placeAfter places a capsule that is to begin only after all remains on the node have stopped.
func placeAfter(c orbit.CapsuleID, n orbit.NodeID) orbit.Place {
	return orbit.Place{Capsule: c, Node: n, After: true}
}

// checkBegins confirms that capsules begin. A confirmation counts once, for the very placement that it names, and only
// on nodes that confirm.
func checkBegins(t *trial) {
	t.commits(confirming("n", 4), node("m", 4), submit(cpu(1), "a", "b", "c"), place("a", "n"), place("b", "m"), place("c", "n"))
	begin := t.begins("a")
	wrong := begin
	wrong.Since++
	t.mistakes(wrong)
	t.mistakes(t.begins("b"))
	t.invalid(begin, place("c", "n"))
	t.invalid(begin, mark("k", "v"))
	t.invalid(orbit.Confirm{Capsule: "a", Since: begin.Since})
	t.invalid(orbit.Confirm{Capsule: "a", Since: begin.Since, Begun: true, Stopped: true})
	t.invalid(orbit.Confirm{Capsule: "a", Begun: true})
	view := t.view()
	t.commits(begin)
	t.loses(view, begin)
	t.mistakes(begin)
	if c := t.capsule("a"); !c.Begun {
		t.Failf("capsule \"a\" has not begun, though that was committed")
	}
	t.commits(cancel("a"), cancel("b"), cancel("c")) // what never began leaves nothing
	t.remain("n", "a")
	t.remain("m")
	t.mistakes(orbit.RemoveNode{Node: "n"})
	stop := t.stops("a")
	view = t.view()
	t.commits(stop)
	t.loses(view, stop)
	t.mistakes(stop)
	t.remain("n")
	t.commits(orbit.RemoveNode{Node: "n"}, orbit.RemoveNode{Node: "m"})
}

// checkRemains drains and moves running capsules. They must not begin anywhere else before they have stopped.
func checkRemains(t *trial) {
	t.commits(confirming("n", 4), confirming("m", 4), node("plain", 4), submit(movable(cpu(2)), "a", "b"), place("a", "n"), place("b", "n"))
	t.commits(t.begins("a"), t.begins("b"))
	t.mistakes(t.evict("b"), place("b", "plain")) // it would run at once on a node that does not confirm
	t.commits(t.evict("b"), place("b", "m"))
	t.commits(cordoned(confirming("n", 4)))
	t.commits(release("a"))
	t.remain("n", "b", "a")
	t.mistakes(place("a", "plain"))
	t.commits(place("a", "m"))
	t.mistakes(t.begins("a"))
	t.mistakes(t.begins("b"))
	view, stop := t.view(), t.stops("a")
	t.commits(stop)
	t.commits(t.begins("a"))
	t.loses(view, stop)
	t.commits(lost("n")) // nothing runs there any more
	t.remain("n")
	t.commits(t.begins("b"))
	t.commits(lost("m"), release("a"))
	t.remain("m")
	t.commits(place("a", "plain"))
}

// checkBesideRemains places capsules beside others that have left the node and still run there.
func checkBesideRemains(t *trial) {
	t.commits(confirming("n", 4), submit(cpu(2), "r1", "r2", "r3", "early"), submit(cpu(1), "x", "y"), submit(cpu(4), "p"), place("r1", "n"), place("r2", "n"))
	t.commits(t.begins("r1"), t.begins("r2"))
	t.commits(cancel("r1"), cancel("r2"), place("p", "n"))
	t.waits("p", true)
	t.commits(t.stops("r1"))
	t.mistakes(t.begins("p")) // otherwise 6 of 4 would run
	t.commits(t.stops("r2"))
	t.commits(t.begins("p"))
	t.commits(cancel("p"), t.stopsOf("p"))
	t.remain("n")
	t.commits(place("r3", "n"), place("early", "n"))
	t.commits(t.begins("r3"))
	t.commits(cancel("r3"), place("x", "n"))
	t.waits("early", false)
	t.waits("x", true)
	t.commits(t.begins("early")) // it was placed beside r3, and fits beside it
	t.mistakes(t.begins("x"))
	t.commits(t.stops("r3"))
	t.commits(t.begins("x"))
	t.commits(cancel("x"))
	t.commits(place("y", "n")) // 2 run, 1 stops, 1 is free
	t.waits("y", false)
	t.commits(t.begins("y"))
}

// stopsOf says that a capsule has stopped that is placed now and leaves its node by the same proposal.
func (t *trial) stopsOf(id orbit.CapsuleID) orbit.Confirm {
	return orbit.Confirm{Capsule: id, Since: t.capsule(id).PlacedAt, Stopped: true}
}

// checkRemainsOfDevices does the same for devices.
func checkRemainsOfDevices(t *trial) {
	n := gpuNode("n", 2)
	n.Node.Confirms = true
	t.commits(n, submit(gpu(1, 600), "a", "b", "c"), submit(gpu(1, 400), "d"), placeOn("a", "n", 1))
	t.commits(t.begins("a"))
	t.commits(cancel("a"), placeOn("b", "n", 1), placeOn("c", "n", 2), placeOn("d", "n", 2))
	t.waits("b", true)
	t.waits("c", false)
	t.commits(t.begins("c"), t.begins("d"))
	t.mistakes(t.begins("b"))
	t.commits(t.stops("a"))
	t.commits(t.begins("b"))
}

// checkRolling replaces capsules one by one, with and without room for both, and restarts a whole node.
func checkRolling(t *trial) {
	t.commits(confirming("n", 2), submit(cpu(1), "old", "other"), place("old", "n"), place("other", "n"))
	t.commits(t.begins("old"), t.begins("other"))
	t.commits(cancel("old"), submit(cpu(1), "new"), placeAfter("new", "n"))
	t.waits("new", true)
	t.mistakes(t.begins("new"))
	t.commits(t.stops("old"))
	t.commits(t.begins("new"))
	t.commits(confirming("n", 4))
	t.commits(cancel("other"), submit(cpu(1), "next"), placeAfter("next", "n"))
	t.waits("next", true) // there is room beside the old one, but the placement asks to wait
	t.mistakes(t.begins("next"))
	t.commits(submit(cpu(1), "late"), place("late", "n"))
	t.waits("late", false)
	t.commits(t.begins("late"))

	// The node boots, so that nothing of this runs there any more.
	t.commits(stopped("new"), stopped("late"), t.stops("other"))
	t.remain("n")
	t.commits(t.begins("next"))
	t.commits(place("new", "n"), place("late", "n"))
	t.commits(t.begins("new"), t.begins("late"))
}

// checkReady confirms that capsules are ready. That holds until the agent reports the opposite or the capsule leaves
// its node.
func checkReady(t *trial) {
	t.commits(confirming("n", 4), node("m", 4), submit(cpu(2), "a", "b", "c"), submit(cpu(1), "p"), place("a", "n"), place("p", "m"))
	t.mistakes(t.serves("a", false))
	t.mistakes(t.serves("p", true)) // the node does not confirm
	ready := t.serves("a", true)
	wrong := ready
	wrong.Since++
	t.mistakes(wrong)
	t.invalid(orbit.Confirm{Capsule: "a", Since: ready.Since, Ready: true, NotReady: true})
	t.invalid(orbit.Confirm{Capsule: "a", Since: ready.Since, Begun: true, Ready: true})
	t.invalid(orbit.Confirm{Capsule: "a", NotReady: true})
	t.invalid(ready, place("b", "n"))
	view := t.view()
	t.commits(ready)
	t.ready("a", true, true)
	t.loses(view, ready)
	t.mistakes(t.begins("a"))
	t.commits(t.serves("a", false)) // the capsule restarts on its node
	t.ready("a", true, false)
	t.mistakes(t.serves("a", false))
	t.commits(t.serves("a", true))
	t.commits(cancel("a"), place("b", "n"))
	t.commits(place("c", "n"))
	t.commits(t.serves("b", true)) // beside a, which still stops
	t.mistakes(t.serves("c", true))
	t.ready("c", false, false)
	t.commits(t.stops("a"))
	t.commits(t.serves("c", true))
	t.ready("c", true, true)
	t.waits("c", false)
	t.commits(stopped("c"), place("c", "n"))
	t.ready("c", false, false)
	t.commits(lost("n"))
	t.mistakes(t.serves("c", true))
	t.mistakes(t.serves("b", false))
}

// ready requires that a capsule has begun and is ready, or not.
func (t *trial) ready(id orbit.CapsuleID, begun, ready bool) {
	if c := t.capsule(id); c.Begun != begun || c.Ready != ready {
		t.Failf("capsule %q has begun: %v, is ready: %v; it must be %v, %v", id, c.Begun, c.Ready, begun, ready)
	}
}

// checkSurge moves capsules that run on until they are ready where they are placed.
func checkSurge(t *trial) {
	surging := movable(cpu(2))
	surging.Surge, surging.Group = true, "web"
	surge := func(id orbit.CapsuleID, to orbit.NodeID) []orbit.Commitment {
		e := t.evict(id)
		e.Surge = true
		return []orbit.Commitment{e, place(id, to)}
	}
	runs := func(id orbit.CapsuleID, want orbit.NodeID) {
		if s := t.capsule(id).Surge(); s == nil || s.Node != want || !s.Surge || t.now().Node(want).Free()[orbit.CPU] != 0 {
			t.Failf("capsule %q must surge from node %q and keep its room there: %v", id, want, s)
		}
	}
	t.commits(confirming("n", 2), confirming("m", 2), confirming("o", 2), node("plain", 2), submit(surging, "a", "b"), submit(movable(cpu(2)), "still"))
	t.commits(place("a", "n"), place("b", "m"), place("still", "o"))
	t.commits(t.serves("a", true), t.serves("b", true), t.serves("still", true))
	t.commits(budget("web", "web", 2, 0))
	t.mistakes(append(surge("a", "m"), surge("b", "n")...)...) // each keeps its room until it is ready, so there is none to exchange
	t.mistakes(surge("still", "plain")...)
	t.commits(cancel("still"), t.stopsOf("still"))
	t.breaks("web", 2, 1, t.mistakes(t.move("a", "o")...))
	t.mistakes(surge("a", "plain")...) // nobody would say that it is ready
	t.mistakes(surge("a", "n")...)
	forB := t.evictFor("a", "b")
	forB.Surge = true
	t.invalid(forB)
	t.commits(surge("a", "o")...)
	runs("a", "n")
	t.mistakes(t.move("a", "plain")...)
	t.mistakes(orbit.Respec{Capsule: "a", Since: t.capsule("a").Surge().Since, Spec: surging, Stopping: true}) // it is not to stop yet
	t.mistakes(surge("a", "m")...)
	t.commits(t.begins("a"))
	t.commits(orbit.Release{Capsule: "a", Stopped: true})
	t.isOn("a", "n")
	t.commits(surge("a", "o")...)
	t.commits(t.begins("a"))
	runs("a", "n")
	t.commits(t.serves("a", true))
	t.remain("n", "a")
	if s := t.capsule("a").Surge(); s.Surge || t.now().Node("n").Free()[orbit.CPU] != 2 {
		t.Failf("capsule \"a\" is ready on node \"o\" and must be told to stop on node \"n\": %v", s)
	}
	t.mistakes(surge("a", "n")...) // it has not stopped there
	t.commits(orbit.Confirm{Capsule: "a", Since: t.capsule("a").Surge().Since, Stopped: true})
	t.commits(surge("b", "n")...)
	t.commits(t.begins("b"))
	t.commits(cancel("b"))
	t.remain("m", "b")
	t.remain("n", "b") // both are told to stop
	t.commits(submit(surging, "b"))
	t.mistakes(place("b", "plain")) // it would begin there beside what has not stopped
}
