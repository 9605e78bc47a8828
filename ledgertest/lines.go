package ledgertest

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// This file has short cases. The name of each is the rule, in one sentence.

// line is a case on nodes and capsules of its own.
type line struct {
	name string
	run  func(t *trial)
}

// all runs the cases one after another on one ledger. A failure names the case.
func (t *trial) all(lines []line) {
	for _, l := range lines {
		t.Where = l.name + ": "
		l.run(t)
		t.clear()
	}
	t.Where = ""
}

// clear removes the budgets, capsules, queues and nodes that a case has left.
func (t *trial) clear() {
	s := t.now()
	var do []orbit.Commitment
	for b := range s.Budgets() {
		do = append(do, orbit.RemoveBudget{Budget: b.Budget.ID})
	}
	for c := range s.Capsules() {
		if !c.Released() {
			do = append(do, cancel(c.ID))
		}
	}
	if len(do) > 0 {
		t.each(do...)
	}
	if do = removals(s); len(do) > 0 {
		t.each(do...)
	}
	do = nil
	for n := range s.Nodes() {
		do = append(do, lost(n.Node.ID), orbit.RemoveNode{Node: n.Node.ID})
	}
	for pair := range slices.Chunk(do, 2) {
		t.commits(pair...)
	}
}

// remainsLines says which capsules wait for remains, which are capsules that have left a node and still run
// there.
var remainsLines = []line{
	{"a placement waits only in what it asks for", func(t *trial) {
		n := confirming("n", 4)
		n.Node.Capacity[orbit.Memory] = 4
		memory := cpu(0)
		memory.Envelope.Reservation[orbit.Memory] = 4
		t.commits(n, submit(cpu(4), "r"), submit(memory, "other"), submit(cpu(1), "same"), place("r", "n"))
		t.commits(t.begins("r"))
		t.commits(cancel("r"), place("other", "n"), place("same", "n"))
		t.waits("other", false)
		t.waits("same", true)
		t.commits(t.begins("other"))
		t.mistakes(t.begins("same"))
	}},
	{"a victim that has begun leaves remains; who evicted it waits for them, and so does the victim elsewhere", func(t *trial) {
		t.commits(confirming("n", 4), confirming("m", 4), submit(ranked(1, 4), "v"), submit(ranked(9, 4), "a"), place("v", "n"))
		t.commits(t.begins("v"))
		t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "a"), place("a", "n"))
		t.remain("n", "v")
		t.commits(place("v", "m"))
		t.mistakes(t.begins("a"))
		t.mistakes(t.begins("v"))
		t.commits(t.stops("v"))
		t.commits(t.begins("a"), t.begins("v"))
	}},
	{"a victim that has not begun leaves nothing", func(t *trial) {
		t.commits(confirming("n", 4), submit(ranked(1, 4), "v"), submit(ranked(9, 4), "a"), place("v", "n"))
		t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "a"), place("a", "n"))
		t.remain("n")
		t.commits(t.begins("a"))
	}},
	{"where nobody confirms a newcomer begins at once, so it gets no room that remains or a victim that has begun still use", func(t *trial) {
		t.commits(confirming("n", 4), submit(ranked(1, 2), "v", "w"), submit(ranked(9, 4), "a"), place("v", "n"), place("w", "n"))
		t.commits(t.begins("v"))
		t.commits(node("n", 4)) // its agent is gone
		view := t.view()
		t.mistakes(t.evictFor("v", "a"), t.evictFor("w", "a"), place("a", "n"))
		t.commits(cancel("v"))
		t.loses(view, t.evictFor("w", "a"), place("a", "n"))
		t.commits(t.stops("v"))
		t.evicts([]orbit.CapsuleID{"w"}, t.evictFor("w", "a"), place("a", "n"))
	}},
	{"where nobody confirms the room of remains spares no victim, and a victim that has begun frees none", func(t *trial) {
		t.commits(confirming("n", 6), submit(cpu(1), "r", "x"), submit(ranked(1, 1), "v", "u"), submit(ranked(1, 2), "w"), submit(ranked(9, 2), "a", "b"),
			place("r", "n"), place("x", "n"), place("v", "n"), place("u", "n"))
		t.commits(t.begins("r"), t.begins("u"))
		t.commits(node("n", 6)) // its agent is gone
		t.commits(cancel("r"), cancel("x"))
		t.commits(place("w", "n"))
		if free := t.free("n"); free != 1 {
			t.Failf("%d are free beside what stops; it must be 1", free)
		}
		t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("u", "a"), t.evictFor("v", "a"), place("a", "n"))
		t.mistakes(t.evictFor("u", "b"), place("b", "n"))
		t.commits(t.stops("r"))
		t.evicts([]orbit.CapsuleID{"w"}, t.evictFor("u", "b"), t.evictFor("w", "b"), place("b", "n"))
	}},
	{"a victim that has left already is passed over, and the newcomer waits for its remains", func(t *trial) {
		t.commits(confirming("n", 4), submit(ranked(1, 4), "v"), submit(ranked(9, 4), "a"), place("v", "n"))
		t.commits(t.begins("v"))
		was := t.evictFor("v", "a")
		t.commits(cordoned(confirming("n", 4)))
		t.commits(release("v"))
		t.commits(confirming("n", 4))
		t.evicts(nil, was, place("a", "n"))
		t.remain("n", "v")
		t.waits("a", true)
	}},
	{"on a lost node nothing begins or says that it serves; that a capsule has stopped is accepted", func(t *trial) {
		t.commits(confirming("n", 4), submit(cpu(1), "x", "y"), place("x", "n"), place("y", "n"))
		t.commits(t.serves("x", true))
		t.commits(lost("n"))
		t.mistakes(t.serves("x", false))
		t.mistakes(t.begins("y"))
		t.commits(stopped("x"))
		t.isOn("x", "")
		t.remain("n")
	}},
	{"what ran before the node joined anew counts no more", func(t *trial) {
		t.commits(confirming("n", 4), submit(cpu(4), "x", "p"), place("x", "n"))
		t.commits(t.begins("x"))
		t.commits(cancel("x"))
		stop := t.stops("x")
		t.commits(lost("n"), orbit.RemoveNode{Node: "n"}, confirming("n", 4), place("p", "n"))
		t.waits("p", false)
		t.mistakes(stop)
		t.commits(t.begins("p"))
	}},
	{"a proposal with a Confirm may end capsules, but return, evict or adopt none, and put no node and no budget", func(t *trial) {
		t.commits(confirming("n", 4), submit(ranked(1, 1), "a", "b"), submit(ranked(9, 4), "c"), place("a", "n"), place("b", "n"))
		for _, do := range []orbit.Commitment{release("b"), t.evict("b"), t.evictFor("b", "c"), adopt("z", cpu(1), "n"), confirming("n", 9), budget("b", "g", 1, 1)} {
			t.invalid(t.begins("a"), do)
		}
		t.commits(t.begins("a"), cancel("b"))
	}},
}

func checkRemainsByLine(t *trial) { t.all(remainsLines) }

// sparingLines says which victims of an eviction are spared, and which are not.
var sparingLines = []line{
	{"a victim on another device instance is spared, and so is one that leaves enough of the same instance", func(t *trial) {
		low, high, half := gpu(1, 600), gpu(1, 600), gpu(1, 400)
		high.Priority, half.Priority = 9, 9
		t.commits(gpuNode("n", 2), submit(low, "v", "w"), submit(high, "a", "c"), submit(half, "b"), placeOn("v", "n", 1))
		t.evicts(nil, t.evictFor("v", "a"), placeOn("a", "n", 2))
		t.evicts(nil, t.evictFor("v", "b"), placeOn("b", "n", 1))
		t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "c"), placeOn("c", "n", 1))
	}},
	{"a move is never undone, and the room that it frees may spare a victim", func(t *trial) {
		t.commits(node("n", 4), node("m", 4), submit(movable(ranked(1, 2)), "v", "free"), submit(ranked(9, 2), "a"), place("v", "n"), place("free", "n"))
		t.commits(t.evict("free"), place("free", "m"), t.evictFor("v", "a"), place("a", "n"))
		t.isOn("v", "n")
		t.isOn("free", "m")
		t.isOn("a", "n")
	}},
	{"a capsule that is moved counts as a newcomer on its new node, and may evict there", func(t *trial) {
		t.commits(node("n", 4), node("m", 4), submit(ranked(1, 4), "v"), submit(movable(ranked(9, 4)), "free"), place("v", "n"), place("free", "m"))
		t.commits(t.evictFor("v", "free"), t.evict("free"), place("free", "n"))
		t.isOn("v", "")
		t.isOn("free", "n")
	}},
	{"no capsule is evicted for itself, for another victim, or for one that does not exist", func(t *trial) {
		t.commits(node("n", 4), node("m", 4), submit(ranked(1, 4), "v"), submit(ranked(9, 4), "w"), submit(ranked(5, 4), "a"), place("v", "n"), place("w", "m"))
		t.mistakes(t.evictFor("v", "v"), place("v", "n"))
		t.mistakes(t.evictFor("v", "v"))
		t.mistakes(t.evictFor("v", "w"), t.evictFor("w", "v"), place("v", "m"), place("w", "n"))
		t.mistakes(t.evictFor("v", "nosuch"), place("a", "n"))
		t.isOn("v", "n")
		gone := orbit.Evict{Capsule: "nosuch", From: "n", Since: 1, For: "a"}
		t.evicts([]orbit.CapsuleID{"v"}, gone, t.evictFor("v", "a"), place("a", "n"))
	}},
	{"who is named twice leaves once", func(t *trial) {
		t.commits(node("n", 4), submit(ranked(1, 2), "v", "w"), submit(ranked(9, 2), "a"), place("v", "n"), place("w", "n"))
		t.evicts([]orbit.CapsuleID{"w"}, t.evictFor("w", "a"), t.evictFor("w", "a"), place("a", "n"))
		t.isOn("v", "n")
	}},
	{"a gang that has changed since the view is a conflict", func(t *trial) {
		t.commits(node("n", 3), gang("g1", 2, "x", "y", "z"), submit(ranked(9, 2), "a"), place("x", "n"), place("y", "n"), place("z", "n"))
		view := t.view()
		t.commits(stopped("z"))
		t.loses(view, t.evictFor("x", "a"), place("a", "n"))
		t.mistakes(t.evictFor("x", "a"), place("a", "n"))
	}},
	{"a gang that losses have left below its minimum is evicted only whole", func(t *trial) {
		t.commits(node("n", 3), gang("g2", 0, "x2", "y2", "z2"), submit(ranked(9, 2), "a"), place("x2", "n"), place("y2", "n"), place("z2", "n"))
		t.commits(stopped("z2"))
		t.mistakes(t.evictFor("x2", "a"), place("a", "n"))
		t.evicts([]orbit.CapsuleID{"x2", "y2"}, t.evictFor("x2", "a"), t.evictFor("y2", "a"), place("a", "n"))
	}},
	{"a gang that evicts is named whole in the history", func(t *trial) {
		t.commits(node("n", 2), submit(ranked(1, 1), "v", "w"))
		urgent := gang("up", 0, "x3", "y3")
		urgent.Gang.Roles[0].Spec.Priority = 9
		t.commits(urgent, place("v", "n"), place("w", "n"))
		v, w := t.evict("v"), t.evict("w")
		v.ForGang, w.ForGang = "up", "up"
		t.evicts([]orbit.CapsuleID{"v", "w"}, v, w, place("x3", "n"), place("y3", "n"))
	}},
	{"a budget that yields to evictions for priority 1 or more still holds against a drain", func(t *trial) {
		b := budget("db", "db", 1, 0)
		b.Budget.Above = 1
		t.commits(node("n", 1), b, submit(ranked(9, 1), "a"))
		t.placed(grouped("db"), "v")
		t.commits(drained("n"))
		t.breaks("db", 1, 0, t.mistakes(release("v")))
		t.commits(node("n", 1))
		t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "a"), place("a", "n"))
	}},
	{"without a view an id means the capsule that has it now; with a view it may also mean the one that the proposal submits", func(t *trial) {
		t.commits(node("n", 4), submit(cpu(1), "db-0"))
		view := t.view()
		t.commits(cancel("db-0"))
		t.commits(submit(cpu(1), "db-0"))
		t.loses(view, place("db-0", "n"))
		t.admits(orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{place("db-0", "n")}})
		t.commits(cancel("db-0"), submit(cpu(2), "db-0"), place("db-0", "n"))
		t.isOn("db-0", "n")
	}},
}

func checkSparingByLine(t *trial) { t.all(sparingLines) }

// nominationLines says which work may use nominated room.
var nominationLines = []line{
	{"a nomination of priority 0 for all of a node does not refuse one core to priority 1000", func(t *trial) {
		t.commits(node("n", 8), submit(ranked(0, 8), "a"), submit(ranked(1000, 1), "b"))
		t.commits(nominate("a", 8, "n"))
		t.commits(place("b", "n"))
	}},
	{"of two gangs nominated on the same two nodes the one of higher rank starts, and the other after it", func(t *trial) {
		pair := func(id orbit.GangID, priority int32, members ...orbit.CapsuleID) orbit.Submit {
			g := gang(id, 0, members...)
			g.Gang.Roles[0].Spec = ranked(priority, 4)
			return g
		}
		claim := func(g orbit.GangID) orbit.Nominate {
			c := nominate("", 4, "n", "m")
			c.Gang = g
			return c
		}
		t.commits(node("n", 4), node("m", 4), pair("a", 1, "a1", "a2"), pair("b", 2, "b1", "b2"))
		t.commits(claim("a"))
		t.commits(claim("b"))
		t.mistakes(place("a1", "n"), place("a2", "m"))
		t.commits(place("b1", "n"), place("b2", "m"))
		t.commits(cancel("b1"), cancel("b2"))
		t.commits(place("a1", "n"), place("a2", "m"))
	}},
	{"a proposal that ends small work may not place other small work in the room; only the nominee may take it", func(t *trial) {
		t.commits(node("n", 8), submit(ranked(5, 8), "a"), submit(cpu(1), "s1", "s2"), place("s1", "n"))
		t.commits(nominate("a", 8, "n"))
		t.mistakes(cancel("s1"), place("s2", "n"))
		t.mistakes(place("s2", "n"), cancel("s1"))
		t.commits(cancel("s1"), place("a", "n"))
	}},
	{"a capsule is nominated for no more than it asks for, and on one node; or one core keeps all of a cluster free", func(t *trial) {
		spec := ranked(5, 2)
		spec.Devices = orbit.DeviceRequest{Count: 1, Milli: 500}
		n := node("n", 8)
		n.Node.Capacity[orbit.Memory], n.Node.Devices = 8, orbit.Devices{Model: "T4", Count: 4}
		t.commits(n, node("m", 8), submit(spec, "a"))
		claim := func(part orbit.NominatedRoom) orbit.Nominate {
			c := nominate("a", 2, "n")
			part.Node = "n"
			c.Parts[0] = part
			return c
		}
		t.mistakes(nominate("a", 3, "n"))
		t.mistakes(nominate("a", 1, "n", "m"))
		t.mistakes(claim(orbit.NominatedRoom{Room: orbit.Resources{orbit.Memory: 1}}))
		t.mistakes(claim(orbit.NominatedRoom{Devices: 3, Milli: 500}))
		t.mistakes(claim(orbit.NominatedRoom{Devices: 1, Milli: 501}))
		t.commits(claim(orbit.NominatedRoom{Room: orbit.Resources{orbit.CPU: 2}, Devices: 4, Milli: 500}))
	}},
	{"a gang is nominated on each node for no more than its members ask for that may be there, and for no more in all", func(t *trial) {
		n, labelled := node("n", 40), node("labelled", 40)
		labelled.Node.Labels = map[string]string{"disk": "ssd"}
		picky := ranked(5, 4)
		picky.Require = []orbit.Predicate{{Key: "disk", Op: "Exists"}}
		g := gang("bounded", 0, "bm1", "bm2")
		g.Gang.Roles = append(g.Gang.Roles, orbit.Role{Name: "picky", Spec: picky, Members: []orbit.CapsuleID{"bm3"}})
		g.Gang.Roles[0].Spec = ranked(5, 4)
		t.commits(n, node("m", 40), node("o", 40), labelled, g)
		claim := func(parts ...orbit.NominatedRoom) orbit.Nominate {
			return orbit.Nominate{Gang: "bounded", Parts: parts, Ends: someday}
		}
		on := func(id orbit.NodeID, room int64) orbit.NominatedRoom {
			return orbit.NominatedRoom{Node: id, Room: orbit.Resources{orbit.CPU: room}}
		}
		t.mistakes(claim(on("n", 9)))
		t.mistakes(claim(on("labelled", 13)))
		t.mistakes(claim(on("n", 8), on("labelled", 8)))
		t.mistakes(claim(on("n", 1), on("m", 1), on("o", 1), on("labelled", 1)))
		t.commits(claim(on("n", 8), on("labelled", 4)))
		t.commits(claim(on("labelled", 12)))
	}},
	{"a gang of which no member waits is not nominated", func(t *trial) {
		claim := nominate("", 1, "n")
		claim.Gang = "g"
		t.commits(node("n", 4), gang("g", 1, "m1", "m2"))
		view := t.view()
		t.commits(cancel("m1"))
		t.commits(claim)
		t.commits(cancel("m2"))
		t.mistakes(claim)
		t.loses(view, claim)
	}},
	{"only what is asked for is kept", func(t *trial) {
		n := node("n", 4)
		n.Node.Capacity[orbit.Memory] = 4
		memory := cpu(0)
		memory.Envelope.Reservation[orbit.Memory] = 4
		t.commits(n, submit(ranked(5, 4), "a"), submit(memory, "b"), submit(cpu(1), "c"))
		t.commits(nominate("a", 4, "n"))
		t.mistakes(place("c", "n"))
		t.commits(place("b", "n"))
	}},
	{"a nominee may evict, and an eviction frees no room for work that ranks below the nominee", func(t *trial) {
		t.commits(node("n", 4), submit(ranked(1, 4), "v"), submit(ranked(5, 4), "a"), submit(ranked(4, 4), "b"), place("v", "n"))
		t.commits(nominate("a", 4, "n"))
		t.mistakes(t.evictFor("v", "b"), place("b", "n"))
		t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "a"), place("a", "n"))
	}},
}

func checkNominationsByLine(t *trial) { t.all(nominationLines) }
