package ledgertest

import "github.com/orbitsched/orbit"

// having describes a node with an amount of the extra "ip".
func having(id orbit.NodeID, amount int64) orbit.PutNode {
	n := in("a", "r", id)
	n.Node.Extras = []orbit.Extra{{Name: "ip", Amount: amount}}
	return n
}

// taking returns a spec that takes an amount of the extra "ip".
func taking(amount int64) *orbit.Spec {
	spec := movable(cpu(0))
	spec.Extras = []orbit.Extra{{Name: "ip", Amount: amount}}
	return spec
}

// extraFree requires that this much of the extra "ip" is free on node "n".
func (t *trial) extraFree(want int64) {
	if have := t.now().ExtraFree(t.now().Node("n"), "ip"); have != want {
		t.Failf("State.ExtraFree says %d of node \"n\"; it must be %d", have, want)
	}
}

// extraLines has cases of extras, which nodes have beside their resources and which placements take.
var extraLines = []line{
	{"a node gives what it has, and one without the name nothing", func(t *trial) {
		t.commits(having("n", 3), in("a", "r", "m"), submit(taking(2), "x", "y"), submit(taking(1), "z"))
		t.mistakes(place("x", "m"))
		t.commits(place("x", "n"))
		t.extraFree(1)
		r := t.mistakes(place("y", "n"))
		if r.Dimension != "ip" || r.Want != 2 || r.Free != 1 || r.Capsule != "y" || r.Node != "n" {
			t.Failf("it is refused as %q: capsule %q, node %q, %d of %q wanted, %d free", r.Reason, r.Capsule, r.Node, r.Want, r.Dimension, r.Free)
		}
		t.commits(place("z", "n"))
		t.extraFree(0)
	}},
	{"several of one proposal are judged together, and with what leaves in it", func(t *trial) {
		t.commits(having("n", 3), submit(taking(2), "x", "y"), submit(taking(1), "z"))
		t.mistakes(place("x", "n"), place("y", "n"))
		t.commits(place("x", "n"), place("z", "n"))
		t.commits(cancel("x"), place("y", "n"))
		t.extraFree(0)
	}},
	{"each name counts by itself", func(t *trial) {
		n, spec := having("n", 1), taking(1)
		n.Node.Extras = append(n.Node.Extras, orbit.Extra{Name: "key", Amount: 1})
		spec.Extras = append([]orbit.Extra{{Name: "key", Amount: 1}}, spec.Extras...)
		t.commits(n, submit(spec, "x"), submit(taking(1), "y"), place("y", "n"))
		t.mistakes(place("x", "n"))
		t.commits(cancel("y"), place("x", "n"))
	}},
	{"a conflict if somebody else was faster", func(t *trial) {
		t.commits(having("n", 1), submit(taking(1), "x", "y"))
		view := t.view()
		t.commits(place("x", "n"))
		taken := t.view()
		t.commits(mark("elsewhere", "v"))
		if r := t.loses(view, place("y", "n")); r.TakenAt != taken {
			t.Failf("the conflict is with revision %d; it must be %d, when the node last changed", r.TakenAt, taken)
		}
	}},
	{"what has left and still runs takes it from who does not wait for it", func(t *trial) {
		n := having("n", 1)
		n.Node.Confirms = true
		t.commits(n, submit(taking(1), "x", "y"), place("x", "n"))
		t.commits(t.begins("x"))
		t.commits(cancel("x"))
		t.extraFree(0)
		t.mistakes(place("y", "n")) // there is room for both
		t.commits(placeAfter("y", "n"))
	}},
	{"what is adopted, and a node that gets less, are facts", func(t *trial) {
		t.commits(having("n", 2), submit(taking(2), "x"), submit(taking(1), "y"), place("x", "n"))
		t.overcommitted()
		t.commits(having("n", 1))
		t.overcommitted("n")
		t.extraFree(-1)
		t.commits(having("n", 4))
		t.commits(orbit.Adopt{Capsule: "found", Spec: taking(3), Node: "n"})
		t.overcommitted("n")
		t.mistakes(place("y", "n"))
		t.commits(having("n", 6), place("y", "n"))
		t.overcommitted()
	}},
	{"who has an extra that is wanted makes way, and nobody in vain", func(t *trial) {
		t.commits(having("n", 2), submit(taking(1), "x", "y"), place("x", "n"), place("y", "n"))
		one, two := taking(1), taking(2)
		one.Priority, two.Priority = 1, 1
		evict := func(id, by orbit.CapsuleID) orbit.Evict {
			return orbit.Evict{Capsule: id, From: "n", Since: t.capsule(id).PlacedAt, For: by}
		}
		t.mistakes(submit(two, "b"), evict("x", "b"), place("b", "n"))
		t.commits(submit(one, "a"), evict("x", "a"), evict("y", "a"), place("a", "n"))
		t.isOn("x", "n") // there is enough for both
		t.isOn("y", "")
		t.commits(submit(taking(1), "z"), cancel("a"), place("z", "n"))
		t.commits(submit(two, "b"), evict("x", "b"), evict("z", "b"), place("b", "n"))
		t.isOn("x", "")
		t.isOn("z", "")
	}},
	{"who makes way is named for whom it keeps off, and goes back beside those that outrank it", func(t *trial) {
		t.commits(having("n", 3), having("m", 3), submit(taking(1), "x"), place("x", "n"))
		two, three := taking(2), taking(3)
		two.Priority, three.Priority = 1, 1
		out := orbit.Evict{Capsule: "x", From: "n", Since: t.capsule("x").PlacedAt, For: "a"}
		t.mistakes(submit(two, "a"), submit(taking(1), "y"), out, place("a", "n"), place("y", "n")) // "x" is spared, and "y" has nothing left
		t.commits(submit(two, "a"), out, place("a", "n"))
		t.isOn("x", "n")
		t.commits(cancel("a"))
		out.For = "c"
		t.mistakes(submit(three, "b"), submit(two, "c"), out, place("b", "n"), place("c", "m")) // "x" is in the way of "b"
		out.For = "b"
		t.commits(submit(three, "b"), submit(two, "c"), out, place("b", "n"), place("c", "m"))
		t.isOn("x", "")
	}},
	{"who makes way does not go back beside what still runs where no agent says when that ends", func(t *trial) {
		n := having("n", 2)
		n.Node.Confirms = true
		t.commits(n, submit(taking(1), "x", "y"), place("x", "n"))
		t.commits(t.begins("x"))
		t.commits(place("y", "n"), cancel("x"))
		t.commits(having("n", 2))
		one := taking(1)
		one.Priority = 1
		t.commits(submit(one, "a"), orbit.Evict{Capsule: "y", From: "n", Since: t.capsule("y").PlacedAt, For: "a"}, place("a", "n"))
		t.isOn("y", "")
	}},
	{"a name is given once, and amounts are counts", func(t *trial) {
		t.commits(having("n", 0))
		for _, bad := range [][]orbit.Extra{{{Name: "ip"}}, {{Amount: 1}}, {{Name: "ip", Amount: -1}}, {{Name: "ip", Amount: 1 << 62}}, {{Name: "ip", Amount: 1}, {Name: "ip", Amount: 1}}} {
			spec := taking(1)
			spec.Extras = bad
			t.invalid(submit(spec, "bad"))
		}
		for _, bad := range [][]orbit.Extra{{{Amount: 1}}, {{Name: "ip", Amount: -1}}, {{Name: "ip"}, {Name: "ip"}}} {
			n := having("bad", 0)
			n.Node.Extras = bad
			t.invalid(n)
		}
	}},
}

func checkExtras(t *trial) { t.all(extraLines) }
