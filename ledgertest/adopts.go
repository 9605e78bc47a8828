package ledgertest

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// This file checks Adopt, which records capsules that run already, and Respec, which gives a capsule another spec where
// it is.

// adopt says that a capsule with a spec runs on a node. A nil spec stands for the spec in the capsule's record.
func adopt(c orbit.CapsuleID, spec *orbit.Spec, n orbit.NodeID) orbit.Adopt {
	return orbit.Adopt{Capsule: c, Spec: spec, Node: n}
}

// respec changes the CPU of a capsule to room, in its present placement.
func (t *trial) respec(id orbit.CapsuleID, room int64) orbit.Respec {
	c := t.capsule(id)
	spec := *c.Spec
	spec.Envelope.Reservation[orbit.CPU] = room
	r := orbit.Respec{Capsule: id, Spec: &spec}
	if c.Placed() {
		r.Since = c.PlacedAt
	}
	return r
}

// applied says that another party has applied the spec already.
func applied(r orbit.Respec) orbit.Respec {
	r.Applied = true
	return r
}

// overcommitted requires that exactly these nodes are overcommitted.
func (t *trial) overcommitted(want ...orbit.NodeID) {
	var got []orbit.NodeID
	for n := range t.now().Overcommitted() {
		got = append(got, n.Node.ID)
	}
	if !slices.Equal(got, want) {
		t.Failf("nodes %v are overcommitted; it must be %v", got, want)
	}
}

// checkAdopt adopts the capsules that agents report, even if they exceed a node's capacity. Then nothing else is
// admitted there.
func checkAdopt(t *trial) {
	t.commits(confirming("n", 4), node("plain", 4), submit(cpu(1), "next"), submit(movable(cpu(1)), "waits", "placed"), place("placed", "n"))
	view := t.view()
	t.mistakes(adopt("x", nil, "n"))         // an unknown capsule must come with a spec
	t.mistakes(adopt("x", cpu(1), "nosuch")) // the node must exist
	t.invalid(adopt("", cpu(1), "n"))
	t.invalid(adopt("x", cpu(-1), "n"))
	t.commits(adopt("x", cpu(6), "n")) // 7 of 4 are used then, because 7 run
	t.ready("x", true, false)
	t.isOn("x", "n")
	t.overcommitted("n")
	t.mistakes(place("next", "n"))
	t.loses(view, adopt("x", cpu(6), "plain")) // it is placed, and the receipt says where
	if r := t.mistakes(adopt("x", cpu(6), "plain")); r.Node != "n" {
		t.Failf("the receipt for what is placed on node \"n\" names node %q", r.Node)
	}
	t.mistakes(adopt("placed", nil, "n"))
	t.commits(orbit.Adopt{Capsule: "waits", Node: "plain", Note: "found", At: 7}) // it ran before it was placed
	if c := t.capsule("waits"); c.Node != "plain" || c.Begun || c.Note() != "found" || c.PlaceTime != 7 || !c.Adopted {
		t.Failf("capsule \"waits\" was adopted on node \"plain\", and is %+v", *c)
	}
	t.commits(cordoned(confirming("n", 4)), adopt("y", cpu(1), "n"))
	t.commits(cancel("x"), t.stopsOf("x"))
	t.overcommitted()
	t.commits(confirming("n", 4), place("next", "n"))
	t.mistakes(adopt("x", cpu(1), "n")) // the capsule has ended, so its agent must stop it
	t.commits(submit(cpu(1), "x"), adopt("x", nil, "n"))
	t.commits(cancel("placed"))
	t.commits(evictedTo(t.evict("waits"), "n")...)
	if c := t.capsule("waits"); c.Adopted || c.Begun {
		t.Failf("capsule \"waits\" was moved, and is %+v", *c)
	}
}

// checkAdoptRemains requires that the ledger refuses to adopt a capsule that has not stopped yet after it has left its
// node, and any capsule on a lost node.
func checkAdoptRemains(t *trial) {
	t.commits(confirming("n", 4), confirming("m", 4), submit(movable(cpu(1)), "a"), place("a", "n"))
	t.commits(t.begins("a"))
	t.commits(cordoned(confirming("n", 4)))
	t.commits(release("a"))
	t.mistakes(adopt("a", nil, "n")) // the capsule has left and is stopping
	t.mistakes(adopt("a", nil, "m"))
	t.commits(t.stops("a"))
	t.commits(adopt("a", nil, "m"))
	t.commits(lost("n"))
	t.mistakes(adopt("b", cpu(1), "n"))
	t.commits(cancel("a"))
	t.remain("m", "a")
	t.commits(submit(cpu(4), "c"), place("c", "m"))
	t.waits("c", true) // an adopted capsule leaves remains like any other
	t.commits(t.stops("a"))
	t.commits(t.begins("c"))
}

// checkAdoptWished takes a member of a group off its node and, in the same commit, adopts it with a spec without the
// group. The budget must judge the capsule as the member that it was.
func checkAdoptWished(t *trial) {
	t.commits(node("n", 4), node("m", 4), budget("db", "db", 2, 1))
	t.placed(grouped("db"), "a", "b")
	t.commits(drained("n"))
	t.breaks("db", 1, 0, t.mistakes(release("a"), release("b"), adopt("b", cpu(1), "m")))
	t.commits(release("a"), adopt("a", cpu(1), "m"))
	view := t.view()
	t.breaks("db", 1, 0, t.mistakes(release("b"), adopt("b", cpu(1), "m")))
	t.commits(budget("db", "db", 2, 2))
	t.loses(view, release("b"), adopt("b", cpu(1), "m"), budget("db", "db", 1, 0))
	t.commits(release("b"), adopt("b", cpu(1), "m"))
}

// checkAdoptGang adopts members of a gang one by one. The gang's minimum holds for placements, not for adoptions.
func checkAdoptGang(t *trial) {
	t.commits(node("n", 4), gang("g", 3, "a", "b", "c", "d"))
	t.mistakes(place("a", "n"))
	t.commits(adopt("a", nil, "n"))
	t.commits(place("b", "n"), adopt("c", cpu(1), "n"))
	if g := t.now().Gang("g"); g.Total() != 3 {
		t.Failf("gang \"g\" has %d members placed; two were adopted and one was placed", g.Total())
	}
	t.mistakes(place("b", "n"))
	t.commits(place("d", "n")) // a pending member joins the running ones
	t.mistakes(adopt("d", nil, "n"))
	t.overcommitted()
	t.commits(gang("h", 0, "x", "y"), adopt("x", nil, "n"), adopt("y", nil, "n")) // a restart: all at once
}

// checkAdoptDevices adopts capsules on devices that are unhealthy or taken.
func checkAdoptDevices(t *trial) {
	sick := gpuNode("n", 2)
	sick.Node.Devices.Unhealthy = 1
	use := func(id orbit.CapsuleID, set orbit.DeviceSet) orbit.Adopt {
		return orbit.Adopt{Capsule: id, Spec: gpu(1, 600), Node: "n", Devices: set}
	}
	t.commits(sick, submit(gpu(1, 600), "p"), placeOn("p", "n", 2))
	t.mistakes(use("a", 3)) // two instances, and the spec asks for one
	t.mistakes(use("a", 4)) // the node has no such instance
	t.commits(use("a", 2))
	t.commits(use("b", 1))
	t.overcommitted("n")
	t.commits(cancel("b"), cancel("a"))
	t.overcommitted()
}

// checkRespec lets capsules grow and shrink in place. Growth beyond the free capacity is refused, and the receipt says
// what is missing.
func checkRespec(t *trial) {
	t.commits(node("n", 4), node("m", 4), submit(movable(cpu(2)), "a", "b"), submit(cpu(1), "w"), place("a", "n"))
	view, more := t.view(), t.respec("a", 4)
	t.commits(place("b", "n"))
	if r := t.loses(view, more); r.Want != 2 || r.Free != 0 || r.Dimension != "cpu" {
		t.Failf("growing by 2 where nothing is free is refused with %d wanted and %d free of %q", r.Want, r.Free, r.Dimension)
	}
	t.mistakes(t.respec("a", 3))
	t.commits(t.respec("b", 1))
	t.commits(t.respec("a", 3))
	if c := t.capsule("a"); c.Spec.Envelope.Reservation[orbit.CPU] != 3 || !c.Respecified || t.free("n") != 0 {
		t.Failf("capsule \"a\" has %v, and node \"n\" %d free", c.Spec.Envelope.Reservation, t.free("n"))
	}
	t.commits(t.respec("a", 2), place("w", "n")) // one shrinks, another takes its room, in one commit
	stale := t.respec("a", 1)
	t.commits(evictedTo(t.evict("a"), "m")...)
	t.mistakes(stale) // names a former placement
	t.mistakes(orbit.Respec{Capsule: "nosuch", Spec: cpu(1)})
	t.invalid(orbit.Respec{Capsule: "a"})
	t.invalid(t.respec("a", -1))
	t.invalid(t.respec("a", 1), cancel("a"))
	t.commits(node("m", 1))
	t.mistakes(t.respec("a", 3)) // 2 of 1 is used
	t.commits(t.respec("a", 1))
	t.commits(lost("m"))
	t.mistakes(t.respec("a", 1))
}

// evictedTo returns the commitments of a move: the eviction, and the placement on another node.
func evictedTo(e orbit.Evict, to orbit.NodeID) []orbit.Commitment {
	return []orbit.Commitment{e, place(e.Capsule, to)}
}

// checkRespecWaiting changes the size and the priority of pending capsules, and checks what depends on them.
func checkRespecWaiting(t *trial) {
	t.commits(node("n", 2), submit(cpu(3), "big"), submit(cpu(1), "first", "second"))
	t.mistakes(place("big", "n"))
	t.commits(t.respec("big", 1))
	t.commits(place("big", "n"))
	up := t.respec("second", 1)
	up.Spec.Priority = 9
	t.commits(up)
	if p := t.now().Pending(); len(p) != 2 || p[0].ID != "second" {
		t.Failf("%v wait; the first of them must be the one that was raised to priority 9", p)
	}
	t.commits(nominated("first", "n"))
	t.commits(t.respec("first", 2)) // ends the nomination, whose room was for another size
	if n := t.capsule("first").Nomination(); n.Lives() {
		t.Failf("capsule \"first\" has another size and is nominated still, for %v", n.Parts)
	}
	order := t.capsule("first").Submitted
	t.commits(orbit.Respec{Capsule: "first", Spec: &orbit.Spec{Module: "other", Class: orbit.Batch, Group: "g", Require: []orbit.Predicate{{Key: "disk", Op: "Exists"}}}})
	t.mistakes(place("first", "n"))
	if c := t.capsule("first"); c.Submitted != order || c.Spec.Module != "other" {
		t.Failf("capsule \"first\" was number %d and is number %d, of module %q", order, c.Submitted, c.Spec.Module)
	}
	t.commits(gang("g", 0, "x", "y"))
	t.commits(orbit.Nominate{Gang: "g", Parts: []orbit.NominatedRoom{{Node: "n", Room: orbit.Resources{orbit.CPU: 1}}}, Ends: someday})
	view := t.view()
	t.commits(t.respec("x", 2)) // ends what was nominated for the gang as it was
	if g := t.now().Gang("g"); g.Nomination.Lives() {
		t.Failf("a member of gang \"g\" has another size, and the gang is nominated still, for %v", g.Nomination.Parts)
	}
	backfill := t.respec("y", 1)
	backfill.Spec.Backfills, backfill.Spec.RunsAtMost = true, 1
	t.mistakes(backfill)
	t.loses(view, place("x", "n"), place("y", "n"))
	t.commits(node("n", 8), place("x", "n"), place("y", "n"))
	t.commits(cancel("first"))
	t.mistakes(t.respec("first", 1))
}

// checkRespecPlaced gives placed capsules other groups, rules, ranks and extras. Nothing of that is judged but extras;
// later placements are judged by the new specs.
func checkRespecPlaced(t *trial) {
	n := node("n", 8)
	n.Node.Extras = []orbit.Extra{{Name: "ip", Amount: 2}}
	apart := cpu(1)
	apart.Group, apart.Apart = "loud", []orbit.Apart{{Group: "loud", Level: orbit.NodeKey}}
	t.commits(n, node("m", 8), submit(movable(cpu(1)), "a", "b"), submit(apart, "c", "d"), place("a", "n"), place("b", "n"),
		orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "g", Expected: 1, IgnoreReady: true}})
	with := func(id orbit.CapsuleID, change func(*orbit.Spec)) orbit.Respec {
		r := t.respec(id, 1)
		r.Spec = r.Spec.Clone()
		change(r.Spec)
		return r
	}
	view := t.view()
	t.commits(with("a", func(s *orbit.Spec) { s.Group, s.Groups = "loud", []string{"g"} }))
	t.loses(view, place("c", "n")) // it came to be loud after the view
	t.mistakes(place("c", "n"))
	t.mistakes(evictedTo(t.evict("a"), "m")...) // the budget counts it now
	t.commits(with("b", func(s *orbit.Spec) { s.Groups = []string{"g"} }))
	t.commits(evictedTo(t.evict("a"), "m")...)
	t.commits(with("b", func(s *orbit.Spec) { s.Groups, s.Priority, s.Movable = []string{"loud"}, 7, false }))
	t.commits(with("a", func(s *orbit.Spec) { s.Group, s.Groups = "", nil }))
	t.commits(place("c", "m")) // nothing is loud there any more
	t.commits(with("b", func(s *orbit.Spec) { s.Extras = []orbit.Extra{{Name: "ip", Amount: 2}} }))
	t.mistakes(with("b", func(s *orbit.Spec) { s.Extras = []orbit.Extra{{Name: "ip", Amount: 3}} }))
	t.commits(with("b", func(s *orbit.Spec) { s.Extras = nil }))
	t.commits(with("b", func(s *orbit.Spec) { s.Require = []orbit.Predicate{{Key: "disk", Op: "Exists"}} })) // counts from its next placement on
	t.isOn("b", "n")
	t.mistakes(with("b", func(s *orbit.Spec) { s.Devices = orbit.DeviceRequest{Count: 1, Milli: 1} }))
	if c := t.capsule("b"); c.Spec.Priority != 7 || c.Spec.Movable || !c.Spec.IsIn("loud") {
		t.Failf("capsule \"b\" has the spec %+v", c.Spec)
	}
}

// checkRespecApplied records what another party has changed. Capacity is not judged, and nothing else is admitted there.
func checkRespecApplied(t *trial) {
	t.commits(node("n", 4), submit(cpu(2), "a", "b"), submit(cpu(1), "w"), place("a", "n"), place("b", "n"))
	t.mistakes(t.respec("a", 9))
	t.commits(applied(t.respec("a", 9)))
	t.overcommitted("n")
	t.mistakes(place("w", "n"))
	t.mistakes(t.respec("b", 3))
	t.commits(t.respec("b", 1)) // a node without an agent: what shrinks gives room back at once
	t.overcommitted("n")
	t.commits(cancel("b"))
	t.overcommitted("n")
	t.commits(applied(t.respec("a", 3)), place("w", "n"))
	t.overcommitted()
	if err := t.now().Verify(); err != nil {
		t.Failf("%v", err)
	}
}

// checkRespecStopping gives other groups and rules to what has left its node and still runs there. Who comes is judged by them.
func checkRespecStopping(t *trial) {
	loud, apart := cpu(1), cpu(1)
	loud.Group, apart.Apart = "loud", []orbit.Apart{{Group: "loud", Level: orbit.NodeKey}}
	t.commits(confirming("n", 4), confirming("m", 4), submit(movable(cpu(1)), "a", "b"), submit(apart, "c"), place("a", "n"), place("b", "n"))
	stays := orbit.Respec{Capsule: "a", Since: t.capsule("a").PlacedAt, Spec: loud, Stopping: true}
	t.commits(t.begins("a"), t.begins("b"))
	t.mistakes(stays) // it does not stop
	t.commits(cancel("a"))
	t.commits(evictedTo(t.evict("b"), "m")...)
	view := t.view()
	larger := stays
	larger.Spec = cpu(2)
	t.mistakes(larger)
	t.invalid(orbit.Respec{Capsule: "a", Spec: loud, Stopping: true})
	t.invalid(applied(stays))
	t.commits(stays)
	t.loses(view, place("c", "n")) // it came to be loud after the view
	t.mistakes(place("c", "n"))
	if c := t.capsule("a"); c.Spec.Group != "" || c.Remains().Spec.Group != "loud" {
		t.Failf("capsule \"a\" has the spec %+v, and stops with %+v", c.Spec, c.Remains().Spec)
	}
	t.commits(t.stops("a"))
	t.mistakes(stays) // it has stopped
	moved := stays
	moved.Capsule, moved.Since = "b", t.capsule("b").Remains().Since
	t.commits(moved) // the instance that it left; on its new node it is as before
	t.mistakes(place("c", "n"))
	if c := t.capsule("b"); c.Spec.Group != "" || c.Respecified {
		t.Failf("capsule \"b\" has the spec %+v on node %q", c.Spec, c.Node)
	}
	moved.Spec = cpu(1)
	t.commits(moved) // it is loud no longer
	t.commits(place("c", "n"))
}

// checkRespecEvicts lets a capsule grow in the room of others that it outranks.
func checkRespecEvicts(t *trial) {
	t.commits(node("n", 4), submit(ranked(5, 2), "a"), submit(cpu(1), "low", "low2"), submit(ranked(5, 2), "w"), place("a", "n"), place("low", "n"), place("low2", "n"))
	grow := t.respec("a", 3)
	out := func(id orbit.CapsuleID) orbit.Evict {
		e := t.evict(id)
		e.For = "a"
		return e
	}
	t.mistakes(grow)
	t.mistakes(out("low"), applied(grow))
	t.mistakes(out("low"), t.respec("a", 2)) // it grows by nothing
	t.commits(out("low"), out("low2"), grow)
	t.isOn("low", "n")
	t.isOn("low2", "")
	t.isOn("a", "n")
	t.mistakes(out("low"), t.respec("a", 5))
}

// nominated claims 1 CPU on a node.
func nominated(c orbit.CapsuleID, n orbit.NodeID) orbit.Nominate {
	return orbit.Nominate{Capsule: c, Parts: []orbit.NominatedRoom{{Node: n, Room: orbit.Resources{orbit.CPU: 1}}}, Ends: someday}
}

// checkRespecBeside changes the size of capsules beside others that have left the node and still run there. Growth must fit beside
// those, and shrinking frees room only when the capsule does not use it any more.
func checkRespecBeside(t *trial) {
	t.commits(confirming("n", 4), submit(cpu(2), "old", "a"), submit(cpu(1), "b"), place("old", "n"), place("a", "n"))
	t.commits(t.begins("old"), t.begins("a"))
	t.mistakes(t.respec("a", 1)) // the capsule may still use 2
	t.commits(cancel("old"))
	t.mistakes(t.respec("a", 3)) // 2 and 3 of 4 would run
	t.commits(t.stops("old"))
	t.commits(t.respec("a", 4))
	t.mistakes(place("b", "n"))
	t.commits(applied(t.respec("a", 3)), place("b", "n"))
	t.waits("b", false)
	t.commits(t.begins("b"))
	t.commits(stopped("b"), place("b", "n"))
	t.commits(t.respec("b", 1)) // the size that it has already
	t.commits(stopped("a"))
	t.commits(place("a", "n"))
	view := t.view()
	t.commits(t.respec("a", 1))
	t.loses(view, t.begins("a")) // the agent has seen the size 3 and would start it with that
	t.loses(view, t.serves("a", true))
	t.commits(t.begins("a"))
	view = t.view()
	t.commits(t.respec("a", 2))
	t.admits(planned(view, t.serves("a", true))) // it runs already
}
