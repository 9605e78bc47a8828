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
