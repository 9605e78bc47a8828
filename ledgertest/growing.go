package ledgertest

import "github.com/orbitsched/orbit"

// This file checks that members join a gang, and that a gang begins with its own minimum.

// joining submits members that join a gang: of a role of it, or of a new one.
func joining(id orbit.GangID, role string, spec *orbit.Spec, members ...orbit.CapsuleID) orbit.Submit {
	return orbit.Submit{Join: true, Gang: &orbit.Gang{ID: id, Roles: []orbit.Role{{Name: role, Spec: spec, Members: members}}}}
}

// checkGangGrows lets members join a gang that waits, and one that runs, and replaces members that are done.
func checkGangGrows(t *trial) {
	t.mistakes(joining("g", "crew", cpu(1), "z"))
	t.commits(node("n", 9), node("m", 9), gang("g", 0, "x", "y"))
	role := t.now().Gang("g").Gang.Roles[0]
	join := func(members ...orbit.CapsuleID) orbit.Submit { return joining("g", role.Name, role.Spec, members...) }
	view := t.view()
	t.commits(join("z"))
	t.loses(view, place("x", "n"), place("y", "n")) // it was whole
	t.mistakes(place("x", "n"), place("y", "n"))
	t.commits(place("x", "n"), place("y", "n"), place("z", "m"))
	t.broken()
	t.mistakes(join("z"))
	t.commits(join("v"), place("v", "n"))
	t.commits(cancel("v"), join("v", "w")) // in place of itself
	t.broken("g [2]")
	t.commits(place("v", "n"), place("w", "m"))
	t.broken()
	t.commits(joining("g", "boss", cpu(2), "b"))
	t.broken("g [0 1]")
	t.commits(place("b", "n"))
	t.checkJoinRefused("g", &role)

	view = t.view()
	t.commits(cancel("b"), cancel("v"), cancel("w"), cancel("x"), cancel("y"), cancel("z"))
	t.loses(view, join("u"))
	t.mistakes(join("u"))
	t.commits(gang("g", 0, "b", "v", "w", "x", "y", "z"))
	t.loses(view, join("u")) // the gang that was meant has ended
	t.commits(join("u"))
}

// checkJoinRefused lets members join a gang that is described otherwise than it is.
func (t *trial) checkJoinRefused(id orbit.GangID, role *orbit.Role) {
	for _, change := range []func(*orbit.Gang){
		func(g *orbit.Gang) { g.Min = 9 },
		func(g *orbit.Gang) { g.Levels = []string{"rack"} },
		func(g *orbit.Gang) { g.Loose = true },
		func(g *orbit.Gang) { g.Roles[0].Min = 3 },
		func(g *orbit.Gang) { g.Roles[0].Spec = cpu(7) },
		func(g *orbit.Gang) { g.Roles[0].Name, g.Roles[0].Min = "guard", 2 },
		func(g *orbit.Gang) { g.Roles[0].Name, g.Roles[0].Spec = "guard", ranked(-1, 1) },
		func(g *orbit.Gang) { g.Roles[0].Members = []orbit.CapsuleID{"x"} },
	} {
		other := joining(id, role.Name, role.Spec, "another")
		change(other.Gang)
		t.mistakes(other)
	}
	t.invalid(joining(id, role.Name, role.Spec))
	t.invalid(orbit.Submit{Join: true, IDs: []orbit.CapsuleID{"another"}, Spec: cpu(1)})
}

// checkGangMinimum begins a gang whose roles need few members and that needs more, and takes members off it.
func checkGangMinimum(t *trial) {
	c := crew("g")
	c.Gang.Roles[1].Min, c.Gang.Min = 1, 3
	t.commits(node("n", 9), node("m", 9), c)
	t.mistakes(place("gb", "n"), place("gx", "n"))
	t.mistakes(place("gx", "n"), place("gy", "n"), place("gz", "n"))
	t.commits(place("gb", "n"), place("gx", "n"), place("gy", "m"))
	t.commits(drained("m"))
	t.mistakes(release("gy"))
	t.commits(place("gz", "n"))
	t.commits(release("gy"))
	t.broken()
	t.commits(stopped("gz"))
	t.broken("g [0 0]")
	if lacks := t.now().Gang("g").LacksInAll(); lacks != 1 {
		t.Failf("gang %q lacks %d members in all; it must be 1", "g", lacks)
	}
	t.commits(cancel("gz"), cancel("gy")) // two are left, and run
	t.broken()
	t.commits(joining("g", "crew", cpu(1), "gw"))
	t.broken("g [0 0]")
	t.commits(place("gw", "n"))
	t.broken()
	large := crew("h")
	large.Gang.Min = 5
	t.invalid(large)
}
