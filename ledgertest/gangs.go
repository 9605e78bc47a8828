package ledgertest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// This file checks that a gang begins whole, or with the minimum of each role, or not at all.

// crew submits a gang of two roles: one boss, and three workers of which at least two must be placed.
func crew(id string) orbit.Submit {
	name := func(s string) orbit.CapsuleID { return orbit.CapsuleID(id + s) }
	return orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{
		{Name: "boss", Spec: cpu(1), Members: []orbit.CapsuleID{name("b")}},
		{Name: "crew", Spec: cpu(1), Members: []orbit.CapsuleID{name("x"), name("y"), name("z")}, Min: 2},
	}}}
}

// checkGang begins a gang with too few members, with enough of them, and again after it has ended.
func checkGang(t *trial) {
	t.commits(node("n", 9), node("m", 9), crew("g"))
	for _, few := range [][]orbit.CapsuleID{{"gb"}, {"gb", "gx"}, {"gx", "gy", "gz"}} {
		var do []orbit.Commitment
		for i, id := range few {
			do = append(do, place(id, []orbit.NodeID{"n", "m"}[i%2]))
		}
		t.mistakes(do...)
	}
	t.mistakes(place("gb", "n"), place("gx", "n"), place("gy", "n"), release("gy"))
	view := t.view()
	t.commits(place("gb", "n"), place("gx", "m"), place("gy", "n"))
	t.shape("g", 1, 2)
	t.refuses(orbit.ErrConflict, orbit.Proposal{View: view, If: []orbit.Precondition{orbit.GangUnplaced{Gang: "g"}}, Do: []orbit.Commitment{place("gz", "n")}})
	t.commits(place("gz", "n")) // topped up
	t.shape("g", 1, 3)
	t.commits(stopped("gx"), stopped("gy"), stopped("gz")) // a gang that has begun may fall below its minimum
	t.shape("g", 1, 0)
	t.commits(stopped("gb"))
	t.mistakes(place("gb", "n"), place("gx", "n")) // a gang without placed members must begin with its minimum again
	t.commits(place("gb", "n"), place("gx", "n"), place("gz", "n"))
}

// shape requires the number of placed members of each role.
func (t *trial) shape(id orbit.GangID, want ...int) {
	g := t.now().Gang(id)
	if g == nil {
		t.Failf("there is no gang %q", id)
	}
	if fmt.Sprint(g.Placed) != fmt.Sprint(want) {
		t.Failf("gang %q has %v placed, by role; it must have %v", id, g.Placed, want)
	}
	if short := g.Total() > 0 && g.Total() < 4; g.Short() != short {
		t.Failf("gang %q with %v placed of 1 and 3: short is %v", id, g.Placed, g.Short())
	}
}

// broken requires the gangs that run below a minimum, each with what its roles lack, as in "g [1 0]".
func (t *trial) broken(want ...string) {
	var got []string
	for g := range t.now().Broken() {
		lacks := make([]int, len(g.Gang.Roles))
		for i := range lacks {
			lacks[i] = g.Lacks(i)
		}
		got = append(got, fmt.Sprint(g.Gang.ID, " ", lacks))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Failf("below their minimums are %q; it must be %q", got, want)
	}
}

// checkGangDone ends members of gangs that wait and that run.
func checkGangDone(t *trial) {
	t.commits(node("n", 9), node("m", 9), gang("g", 0, "x", "y", "z"), place("x", "n"), place("y", "n"), place("z", "n"))
	t.commits(cancel("x"))
	t.broken()
	t.commits(stopped("y"))
	t.broken("g [1]")
	t.commits(stopped("z"))
	t.broken() // nothing of it runs
	t.mistakes(place("z", "m"))
	t.commits(place("z", "m"), place("y", "m"))
	t.commits(drained("m"))
	t.mistakes(release("y"))
	t.commits(release("y"), release("z"))
	t.commits(cancel("y"))
	t.commits(place("z", "n"))
	t.commits(submit(cpu(1), "x"), place("x", "n")) // a capsule of its own, though it has the id of a member
	t.broken()

	t.commits(crew("h"), place("hb", "n"), place("hx", "n"), place("hy", "n"))
	t.commits(cancel("hb"), stopped("hx"))
	t.broken("h [0 1]")
	t.commits(cancel("hz"), cancel("hx"))
	t.broken() // one is left, and runs
	t.commits(crew("w"), cancel("wb"))
	t.mistakes(place("wx", "n"))
	t.commits(place("wx", "n"), place("wz", "n")) // it has never run, and no boss is left
	urgent := crew("u")
	urgent.Gang.Roles[0].Spec = ranked(0, 1)
	urgent.Gang.Roles[1].Spec = ranked(9, 1)
	t.commits(node("k", 2), submit(ranked(5, 1), "a", "b"), place("a", "k"), place("b", "k"), urgent)
	makeWay := func(id orbit.CapsuleID) orbit.Evict {
		e := t.evict(id)
		e.ForGang = "u"
		return e
	}
	t.mistakes(makeWay("a"), makeWay("b"), place("ub", "n"), place("ux", "k"), place("uy", "k"))
	t.commits(cancel("ub"))
	t.evicts([]orbit.CapsuleID{"a", "b"}, makeWay("a"), makeWay("b"), place("ux", "k"), place("uy", "k"))
}

// checkGangRebuild takes gangs off ready nodes that want to stay there.
func checkGangRebuild(t *trial) {
	t.commits(node("n", 2), node("m", 3), gang("g", 2, "x", "y", "z"), place("x", "n"), place("y", "n"))
	t.mistakes(release("x"), release("y"))
	t.commits(stopped("y"))
	t.mistakes(t.evict("x"), place("x", "m"))
	t.mistakes(release("x"), place("x", "m"))
	view := t.view()
	anew := []orbit.Commitment{t.evict("x"), place("x", "m"), place("z", "m"), place("y", "m")}
	t.commits(place("y", "n"))
	t.loses(view, anew...) // others have repaired it
	t.commits(stopped("y"))
	t.commits(anew...)
	t.broken()
	t.commits(stopped("y"), stopped("z"))
	t.commits(release("x"), place("x", "n"), place("y", "n"))
	t.commits(stopped("y"))
	t.commits(release("x"))
	t.isOn("x", "")

	t.commits(gang("h", 0, "a", "b", "c"), place("a", "m"), place("b", "m"), place("c", "m"))
	t.commits(stopped("a"))
	t.mistakes(release("b")) // half of what is left
	t.mistakes(t.evict("b"), place("b", "n"), place("a", "n"))
	b := gang("p", 0, "v", "w")
	b.Gang.Roles[0].Spec.Group = "p"
	t.commits(release("b"), release("c"), b, place("v", "m"), place("w", "m"), budget("p", "p", 2, 1))
	t.commits(stopped("v"))
	t.breaks("p", 1, 0, t.mistakes(release("w")))
}

// checkGangReplaces lets gangs that have lost members evict each other.
func checkGangReplaces(t *trial) {
	pair := func(id orbit.GangID, priority int32, members ...orbit.CapsuleID) orbit.Submit {
		g := gang(id, 0, members...)
		g.Gang.Roles[0].Spec = ranked(priority, 4)
		return g
	}
	makeWay := func(id orbit.CapsuleID, gang orbit.GangID) orbit.Evict {
		e := t.evict(id)
		e.ForGang = gang
		return e
	}
	t.commits(node("n1", 4), node("n2", 4), node("n3", 4), node("n4", 4), pair("a", 0, "a0", "a1"), pair("b", 0, "b0", "b1"))
	t.commits(place("a0", "n1"), place("a1", "n2"), place("b0", "n3"), place("b1", "n4"))
	t.mistakes(makeWay("b0", "a"), makeWay("b1", "a"), place("a1", "n3")) // both run whole
	t.commits(stopped("a1"))
	t.mistakes(makeWay("b0", "a"), makeWay("b1", "a"), place("a1", "n3"))
	t.commits(stopped("b1"))
	t.evicts(nil, makeWay("b0", "a"), place("a1", "n2")) // there is room beside it
	t.commits(stopped("a1"))
	t.commits(drained("n2"))
	t.commits(drained("n4"))
	t.mistakes(makeWay("a0", "b"), place("b1", "n1")) // it is the younger one
	single := makeWay("b0", "a")
	single.For, single.ForGang = "a1", ""
	t.mistakes(single, place("a1", "n3"))
	t.commits(submit(ranked(0, 4), "other"))
	t.mistakes(makeWay("b0", "a"), place("other", "n3"))
	view, old := t.view(), makeWay("b0", "a")
	t.commits(node("n4", 4), place("b1", "n4"))
	t.loses(view, old, place("a1", "n3")) // the other one is whole again
	t.commits(stopped("b1"))
	t.commits(drained("n4"))
	t.evicts([]orbit.CapsuleID{"b0"}, makeWay("b0", "a"), place("a1", "n3"))
	t.broken()

	t.commits(node("m1", 4), node("m2", 4), pair("c", 0, "c0", "c1"), pair("d", 1, "d0", "d1"))
	t.commits(node("n2", 4), place("c0", "m1"), place("c1", "n2"))
	t.commits(node("n4", 4), place("d0", "m2"), place("d1", "n4"))
	t.commits(stopped("c1"), stopped("d1"))
	t.commits(drained("n2"))
	t.commits(drained("n4"))
	t.mistakes(makeWay("d0", "c"), place("c1", "m2")) // it is the older one, but of lower priority
	t.evicts([]orbit.CapsuleID{"c0"}, makeWay("c0", "d"), place("d1", "m1"))
}

// checkGangAtOnce submits and places a gang in one proposal. The same rule holds.
func checkGangAtOnce(t *trial) {
	t.commits(node("n", 9))
	t.mistakes(gang("g", 2, "x", "y"), place("x", "n"))
	if s := t.now(); s.Capsule("x") != nil || s.Gang("g") != nil {
		t.Failf("a gang was refused, and is there")
	}
	t.commits(gang("g", 2, "x", "y"), place("x", "n"), place("y", "n"))
	t.mistakes(gang("g", 0, "z"))
}

// checkGangFull places a gang of the largest size that the limits allow, each member on a node of its own.
func checkGangFull(t *trial) {
	n := min(t.limits.GangMembers, 1000)
	members, nodes := ids[orbit.CapsuleID]("m", n), ids[orbit.NodeID]("n", n)
	var join []orbit.Commitment
	for _, id := range nodes {
		join = append(join, node(id, 1))
	}
	t.each(join...)
	t.commits(gang("g", 0, members...))
	var do []orbit.Commitment
	for i, id := range members {
		do = append(do, place(id, nodes[i]))
	}
	if n > 1 {
		t.mistakes(do[1:]...)
	}
	t.commits(do...)
	if total := t.now().Gang("g").Total(); total != n {
		t.Failf("%d of %d members are placed", total, n)
	}
	t.Notef("gang of %d, on as many nodes", n)
}
