package ledgertest

import "github.com/orbitsched/orbit"

// Who is taken off a node because somebody wants that.

// drained is node with a capacity of 4, cordoned.
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
	t.mistakes(drained("n"), release("low"), node("n", 4), place("other", "n")) // cordoned, released, taken back, given to another
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

// checkGangReturns releases gangs: whole, down to the minimum, and of which one member alone has to go.
func checkGangReturns(t *trial) {
	t.commits(node("n", 4), node("m", 4), gang("g", 2, "x", "y", "z"), place("x", "n"), place("y", "m"), place("z", "m"))
	t.mistakes(release("x"), release("y"), release("z"))
	t.commits(drained("n"))
	t.mistakes(release("x"), release("y"))
	t.mistakes(release("y"))
	t.commits(release("x")) // two are left, as many as it may begin with
	t.commits(drained("m"))
	t.mistakes(release("y"))
	t.commits(stopped("z"))
	t.mistakes(node("m", 4), release("y"))
	t.commits(release("y")) // the last one: nothing is left
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
	t.loses(view, was, place("free", "m")) // it is there again, but not since then
	t.mistakes(was, place("free", "m"))
	t.commits(drained("n"))
	t.mistakes(node("n", 4), t.evict("fixed"), place("fixed", "m"))
	t.commits(t.evict("fixed"), place("fixed", "m"), t.evict("free"), place("free", "m"))
	t.isOn("fixed", "m")
	t.isOn("free", "m")
	t.invalid(orbit.Evict{Capsule: "free", From: "m"}, place("free", "n"))
}

// checkGangMoves moves members of gangs, of which as many are placed afterwards.
func checkGangMoves(t *trial) {
	g := gang("g", 2, "x", "y", "z")
	movable(g.Gang.Roles[0].Spec)
	t.commits(node("n", 4), node("m", 4), g, place("x", "n"), place("y", "n"), place("z", "n"))
	t.commits(t.evict("x"), place("x", "m"))
	t.commits(stopped("y"), stopped("z"))
	t.commits(t.evict("x"), place("x", "n")) // it is short, and no shorter
	t.mistakes(place("y", "n"), t.evict("x"))
	t.commits(t.evict("x"), place("x", "m"), place("y", "n"))
	if g := t.now().Gang("g"); g.Total() != 2 {
		t.Failf("%d members of the gang are placed; two are", g.Total())
	}
}
