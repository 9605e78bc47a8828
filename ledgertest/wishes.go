package ledgertest

import (
	"cmp"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file checks wishes: releases, moves and evictions that take capsules off their nodes by choice.

// drained describes a cordoned node with a capacity of 4.
func drained(id orbit.NodeID) orbit.PutNode {
	n := node(id, 4)
	n.Node.State = orbit.Cordoned
	return n
}

// checkReturns releases back to pending from nodes in each state.
func checkReturns(t *trial) {
	t.commits(node("n", 4), node("m", 4), submit(cpu(2), "low", "lower"), submit(cpu(2), "other"), place("low", "n"), place("lower", "n"))
	t.mistakes(release("low"))
	t.mistakes(release("low"), place("other", "n"))
	t.mistakes(drained("n"), release("low"), node("n", 4), place("other", "n")) // a cordon only for this proposal, to give the room to another
	t.invalid(stopped("low"), place("other", "n"))
	view := t.view()
	t.commits(drained("n"))
	t.mistakes(node("n", 4), release("low"), drained("n"))
	t.mistakes(node("n", 4), cancel("lower"), place("other", "n"), drained("n"), release("low")) // displaced while it took work
	t.commits(release("low"))
	t.commits(node("n", 4))
	t.loses(view, release("lower"))
	t.commits(stopped("lower"))
	t.commits(place("low", "n"), place("lower", "n"))
	t.commits(lost("n"), release("low"))
	t.mistakes(node("n", 4))
	t.mistakes(drained("n"))
	t.mistakes(place("low", "n"))
	t.commits(release("lower"), orbit.RemoveNode{Node: "n"}, node("n", 4), place("lower", "n"))
	t.isOn("lower", "n")
}

// checkGangReturns releases gangs: whole, down to the minimum, and one of which only one member has to leave.
func checkGangReturns(t *trial) {
	t.commits(node("n", 4), node("m", 4), gang("g", 2, "x", "y", "z"), place("x", "n"), place("y", "m"), place("z", "m"))
	t.mistakes(release("x"), release("y"), release("z"))
	t.commits(drained("n"))
	t.mistakes(release("x"), release("y"))
	t.mistakes(release("y"))
	t.commits(release("x")) // two are left, as many as it may begin with
	t.commits(drained("m"))
	t.mistakes(release("y"))
	t.mistakes(node("m", 4), release("y"), release("z"))
	t.commits(release("y"), release("z")) // nothing is left
}

// checkMoves takes capsules off their nodes to place them again.
func checkMoves(t *trial) {
	t.commits(node("n", 4), node("m", 4), submit(cpu(2), "fixed"), submit(movable(cpu(2)), "free"), place("fixed", "n"), place("free", "n"))
	t.mistakes(t.evict("fixed"), place("fixed", "m"))
	t.mistakes(t.evict("free"))
	view, was := t.view(), t.evict("free")
	t.commits(was, place("free", "m"))
	t.mistakes(t.evict("free"), place("free", "n"), place("free", "m"))
	t.commits(t.evict("free"), place("free", "n"))
	t.loses(view, was, place("free", "m")) // the capsule is on this node again, but by a newer placement
	t.mistakes(was, place("free", "m"))
	t.commits(drained("n"))
	t.mistakes(node("n", 4), t.evict("fixed"), place("fixed", "m"))
	t.commits(t.evict("fixed"), place("fixed", "m"), t.evict("free"), place("free", "m"))
	t.isOn("fixed", "m")
	t.isOn("free", "m")
	t.invalid(orbit.Evict{Capsule: "free", From: "m"}, place("free", "n"))
}

// checkGangMoves moves members of gangs. As many members must be placed afterwards as before.
func checkGangMoves(t *trial) {
	g := gang("g", 2, "x", "y", "z")
	movable(g.Gang.Roles[0].Spec)
	t.commits(node("n", 4), node("m", 4), g, place("x", "n"), place("y", "n"), place("z", "n"))
	t.commits(t.evict("x"), place("x", "m"))
	t.commits(stopped("y"), stopped("z"))
	t.commits(t.evict("x"), place("x", "n")) // the gang is short, and the move makes it no shorter
	t.mistakes(place("y", "n"), t.evict("x"))
	t.commits(t.evict("x"), place("x", "m"), place("y", "n"))
	if g := t.now().Gang("g"); g.Total() != 2 {
		t.Failf("%d members of the gang are placed; two are", g.Total())
	}
}

// evictFor returns the eviction of a capsule from its present node to make way for another.
func (t *trial) evictFor(id, cause orbit.CapsuleID) orbit.Evict {
	e := t.evict(id)
	e.For = cause
	return e
}

// evicts requires that the commitments are committed, and that the history has exactly the evictions of the wanted
// capsules. The other named victims are spared.
func (t *trial) evicts(want []orbit.CapsuleID, do ...orbit.Commitment) {
	view := t.view()
	p := orbit.Proposal{ID: orbit.NewProposalID(), View: view, Do: do}
	reduced, err := t.now().Judge(p)
	t.Must(err, "State.Judge")
	t.admits(p)
	var got []orbit.CapsuleID
	list := t.changes(t.ledger, view)
	for _, c := range list {
		if e, ok := c.Do.(orbit.Evict); ok {
			got = append(got, e.Capsule)
			if !slices.Contains(do, c.Do) {
				t.Failf("the history says %+v, which %s does not: who went for whom is lost", e, harness.Describe(p))
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Failf("%s evicts %v; it must evict %v", harness.Describe(p), got, want)
	}
	if len(list) != len(reduced.Do) {
		t.Failf("%s is %d changes; State.Judge leaves %d", harness.Describe(p), len(list), len(reduced.Do))
	}
	for _, id := range want {
		t.isOn(id, "")
	}
	t.again(p, list[0].Revision)
}

// checkEvictions evicts capsules for more urgent ones, both where they have to leave and where they need not.
func checkEvictions(t *trial) {
	t.commits(node("n", 4), node("m", 4), submit(ranked(5, 2), "v", "w", "x"), submit(ranked(10, 2), "a", "a2", "a3"), submit(ranked(0, 2), "b"),
		submit(ranked(5, 1), "equal"), submit(ranked(20, 2), "c"), place("v", "n"))
	t.mistakes(t.evictFor("v", "a"), place("a", "n"), place("b", "n")) // v is spared, and b has no room
	t.isOn("v", "n")
	t.commits(place("w", "n"))
	t.mistakes(t.evictFor("v", "equal"), place("equal", "n"))
	t.mistakes(t.evictFor("v", "b"), place("b", "n"))
	t.mistakes(t.evictFor("v", "a"))
	t.mistakes(t.evictFor("v", "a"), place("c", "n"))
	t.mistakes(t.evictFor("v", "a"), place("a", "n"), place("v", "m"))
	t.mistakes(t.evictFor("v", "a"), place("a", "m"), place("c", "n")) // v is in the way of c and not of a
	old := t.evictFor("w", "a")
	t.evicts([]orbit.CapsuleID{"w"}, t.evictFor("v", "a"), old, place("a", "n")) // one of the two is enough, the later one
	t.evicts(nil, t.evictFor("v", "a2"), place("a2", "m"))
	t.commits(place("w", "m"))
	t.commits(stopped("w"))
	old.For = "a3"
	t.evicts(nil, place("a3", "m"), old, t.evictFor("v", "a3")) // w has gone by itself, and v is not in the way
	t.commits(cancel("a3"), place("w", "m"))
	old.From = "m"
	t.evicts([]orbit.CapsuleID{"v"}, orbit.Evict{Capsule: "w", From: "m", Since: old.Since, For: "c"}, t.evictFor("v", "c"), place("c", "n")) // w has been placed anew since
	t.isOn("w", "m")
}

// checkSparing evicts capsules that need not leave: the newcomer does not outrank them, or asks for none of the
// resource that they use.
func checkSparing(t *trial) {
	t.commits(node("n", 4), submit(ranked(5, 2), "v"), submit(ranked(10, 2), "a", "a2"), submit(ranked(5, 2), "equal"), submit(ranked(6, 2), "above"), place("v", "n"))
	t.mistakes(t.evictFor("v", "a"), place("a", "n"), place("equal", "n")) // an equal does not outrank it
	t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "a"), place("a", "n"), place("above", "n"))

	both, core := ranked(5, 1), ranked(9, 1)
	both.Envelope.Reservation[orbit.Memory] = 2
	m := node("m", 4)
	m.Node.Capacity[orbit.Memory] = 4
	t.commits(m, submit(both, "w"), submit(core, "b", "b2"), place("w", "m"))
	m.Node.Capacity[orbit.Memory] = 1 // less than is in use
	t.commits(m)
	t.evicts(nil, t.evictFor("w", "b"), place("b", "m")) // w is spared, because b asks for no memory
	t.isOn("w", "m")
	m.Node.Capacity[orbit.CPU] = 2
	t.commits(m)
	t.evicts([]orbit.CapsuleID{"w"}, t.evictFor("w", "b2"), place("b2", "m"))
}

// checkGangEvictions evicts members of gangs and evicts for gangs.
func checkGangEvictions(t *trial) {
	crew := gang("g", 2, "x", "y", "z")
	crew.Gang.Roles[0].Spec.Priority = 3
	mixed := orbit.Submit{Gang: &orbit.Gang{ID: "up", Roles: []orbit.Role{
		{Name: "boss", Spec: ranked(9, 1), Members: []orbit.CapsuleID{"boss"}},
		{Name: "hand", Spec: ranked(3, 1), Members: []orbit.CapsuleID{"hand"}}}}}
	t.commits(node("n", 2), node("m", 1), crew, mixed, submit(ranked(5, 1), "a", "b", "c"), place("x", "n"), place("y", "n"), place("z", "m"))
	forGang := t.evict("x")
	forGang.ForGang = "up"
	t.mistakes(forGang, place("boss", "n"), place("hand", "n")) // a gang evicts at the priority of its lowest role
	t.mistakes(t.evictFor("x", "boss"), place("boss", "n"), place("hand", "n"))
	t.evicts([]orbit.CapsuleID{"x"}, t.evictFor("x", "a"), place("a", "n")) // the minimum still runs
	t.mistakes(t.evictFor("y", "b"), place("b", "n"))                       // fewer than the minimum would run
	t.evicts([]orbit.CapsuleID{"y", "z"}, t.evictFor("y", "b"), t.evictFor("z", "b"), place("b", "n"))
	t.commits(cancel("a"), cancel("b"))
	t.commits(place("x", "n"), place("y", "n"), place("z", "m"))
	t.evicts([]orbit.CapsuleID{"y"}, t.evictFor("x", "c"), t.evictFor("y", "c"), t.evictFor("z", "c"), place("c", "n")) // the whole gang is named, and as many members as can run are spared
}

// checkEvictionsBesideNominations evicts a capsule on a node with room that is nominated for work of higher rank.
func checkEvictionsBesideNominations(t *trial) {
	t.commits(node("n", 4), submit(ranked(5, 2), "v"), submit(ranked(10, 2), "a"), submit(ranked(50, 2), "high"), place("v", "n"))
	t.commits(nominate("high", 2, "n"))
	t.mistakes(place("a", "n"))
	t.evicts([]orbit.CapsuleID{"v"}, t.evictFor("v", "a"), place("a", "n")) // both have room, and v has none beside them
}

// checkProtection tries to take protected capsules off their nodes. Wishes are refused until the protection has ended.
// An end and a lost node take them off at once.
func checkProtection(t *trial) {
	longest := cmp.Or(t.limits.Protect, 10*time.Minute)
	t.commits(node("n", 4), node("m", 4), submit(movable(ranked(1, 2)), "a", "b", "c"), submit(ranked(9, 4), "urgent"))
	shield := orbit.Protect{Capsule: "a", For: longest}
	t.invalid(shield) // Protect is allowed only beside the placement of the capsule
	t.invalid(shield, place("b", "n"))
	t.invalid(place("a", "n"), shield, shield)
	t.invalid(place("a", "n"), orbit.Protect{Capsule: "a", For: longest + 1})
	t.invalid(place("a", "n"), orbit.Protect{Capsule: "a", For: -1})
	t.invalid(place("a", "n"), orbit.Protect{Capsule: "a"})
	at := place("a", "n")
	at.At = 1e18
	view := t.view()
	t.commits(shield, at)
	t.commits(place("b", "n"))
	refused := func(r orbit.Rejection) {
		if r.Capsule != "a" || r.Protected != longest || r.Until != orbit.Instant(1e18+longest) {
			t.Failf("it is refused as %q: capsule %q, protected for %v until %d; it must be \"a\", %v, %d", r.Reason, r.Capsule, r.Protected, r.Until,
				longest, 1e18+int64(longest))
		}
	}
	refused(t.mistakes(t.move("a", "m")...))
	refused(t.loses(view, t.move("a", "m")...))
	refused(t.mistakes(t.evictFor("a", "urgent"), t.evictFor("b", "urgent"), place("urgent", "n")))
	end := orbit.Protect{Capsule: "a", Since: t.capsule("a").PlacedAt}
	refused(t.mistakes(append([]orbit.Commitment{end}, t.move("a", "m")...)...)) // ending the protection in the same commit does not help
	t.commits(drained("n"))
	refused(t.mistakes(release("a")))
	wrong := end
	wrong.Since++
	t.mistakes(wrong)
	t.mistakes(end, end)
	view = t.view()
	t.commits(end)
	t.loses(view, end)
	t.mistakes(end)
	t.commits(release("a"))

	shield.For = 1
	t.commits(place("a", "m"), shield)
	t.commits(cancel("a")) // its owner ends it
	t.commits(place("c", "m"), orbit.Protect{Capsule: "c", For: 1})
	t.commits(stopped("c"), cancel("b"))
	t.commits(node("n", 4))
	t.commits(place("c", "n")) // it is not protected any more
	t.commits(t.move("c", "m")...)
	t.commits(stopped("c"))
	t.commits(place("c", "n"), orbit.Protect{Capsule: "c", For: 1})
	if got := t.now().Protected("c"); got != 1 {
		t.Failf("capsule \"c\" is protected for %v; it must be 1ns", got)
	}
	t.commits(lost("n"))
	t.commits(t.move("c", "m")...) // a protection does not hold a capsule on a lost node
	if got := t.now().Protected("c"); got != 0 {
		t.Failf("capsule \"c\" is protected for %v; that ended with its placement", got)
	}
}
