package ledgertest

import "github.com/orbitsched/orbit"

// This file checks where a member of a group with an Even rule may be placed, and compares the rule with the
// documentation of Kubernetes, line by line.

// evenLines has cases of where a member of a group with an Even rule may be placed.
var evenLines = []line{
	{"a domain has at most one more than the one with the fewest", func(t *trial) {
		t.zones("a", "b", "c")
		t.spread(level(), "a", "b")
		t.commits(submit(level(), "y", "z"))
		t.mistakes(place("y", "na"))
		t.mistakes(place("y", "nb"))
		t.commits(place("y", "nc"))
		t.commits(place("z", "nb"))
	}},
	{"or as many more as MaxSkew says", func(t *trial) {
		t.zones("a", "b")
		skew := level(func(e *orbit.Even) { e.MaxSkew = 2 })
		t.spread(skew, "a", "a")
		t.commits(submit(skew, "y"))
		t.mistakes(place("y", "na"))
		t.commits(place("y", "nb"))
	}},
	{"a level of nodes", func(t *trial) {
		t.zones("a", "b")
		each := level(func(e *orbit.Even) { e.Level = orbit.NodeKey })
		t.spread(each, "a")
		t.commits(submit(each, "y"))
		t.mistakes(place("y", "na"))
		t.commits(place("y", "nb"))
	}},
	{"departures are not judged, and what comes next repairs them", func(t *trial) {
		t.zones("a", "b", "c")
		t.spread(level(), "a", "b", "c", "a", "b", "c")
		t.commits(cancel("x1"), cancel("x4"))
		t.skewed("a: 2, fewest 0", "c: 2, fewest 0")
		t.commits(submit(level(), "y"))
		t.mistakes(place("y", "na"))
		t.commits(place("y", "nb"))
		t.skewed()
	}},
	{"a move that raises no count is taken, and one from more to fewer", func(t *trial) {
		t.zones("a", "b")
		t.commits(in("a", "ra", "na2"))
		t.spread(level(), "a", "b", "a", "b", "a", "b")
		t.commits(cancel("x1"), cancel("x3"), cancel("x5"))
		t.skewed("a: 3, fewest 0")
		t.commits(t.move("x0", "na2")...)
		t.commits(t.move("x0", "nb")...)
		t.mistakes(append(t.move("x0", "na"), t.move("x2", "na2")...)...)
		t.skewed()
	}},
	{"a release and a place in one proposal raise no count", func(t *trial) {
		t.zones("a", "b")
		t.spread(level(), "a", "b", "a", "b")
		t.commits(cancel("x1"), cancel("x3"))
		t.commits(submit(level(), "y"))
		t.mistakes(place("y", "na"))
		t.commits(place("y", "na"), cancel("x0"))
	}},
	{"a gang of nine over three zones is one question, in any order", func(t *trial) {
		nine := func(id orbit.GangID, members ...orbit.CapsuleID) orbit.Submit {
			g := gang(id, 0, members...)
			g.Gang.Roles[0].Spec = level()
			return g
		}
		places := func(members []orbit.CapsuleID, zones string) (do []orbit.Commitment) {
			for i, id := range members {
				do = append(do, place(id, orbit.NodeID("n"+zones[i:i+1])))
			}
			return do
		}
		t.zones("a", "b", "c")
		members := ids[orbit.CapsuleID]("m", 9)
		t.commits(nine("nine", members...))
		t.mistakes(places(members, "aaaabbbcc")...)
		t.commits(places(members, "aaabbbccc")...)
		t.skewed()
	}},
	{"who has no rule counts, and may be anywhere", func(t *trial) {
		t.zones("a", "b")
		t.commits(submit(level(), "x", "y"))
		t.spread(grouped("g"), "a", "a", "a")
		t.mistakes(place("x", "na"))
		t.commits(place("x", "nb"))
	}},
	{"a new domain with one small node holds the fewest, unless domains are declared", func(t *trial) {
		t.zones("a", "b")
		t.spread(level(), "a", "b")
		t.commits(submit(level(), "x", "y"), submit(level(among("a", "b")), "z"))
		small := in("c", "rc", "nc")
		small.Node.Capacity[orbit.CPU] = 1
		t.commits(small)
		t.mistakes(place("x", "na"))
		t.commits(place("x", "nc")) // full
		t.commits(place("y", "na"))
		t.commits(place("z", "nb"))
	}},
	{"a domain of which all nodes are lost holds nothing", func(t *trial) {
		t.zones("a", "b", "c")
		t.spread(level(), "a", "b")
		t.commits(submit(level(), "y", "z"))
		t.mistakes(place("y", "na"))
		gone := in("c", "rc", "nc")
		gone.Node.State = orbit.Lost
		t.commits(gone)
		t.commits(place("y", "na"))
		t.commits(orbit.RemoveNode{Node: "nc"}, in("c", "rc", "nc")) // it joins anew
		t.mistakes(place("z", "nb"))
		t.commits(place("z", "nc"))
	}},
	{"a domain whose last node has left holds nothing", func(t *trial) {
		t.zones("a", "b", "c")
		t.spread(level(), "a", "b")
		t.commits(submit(level(), "y"))
		t.mistakes(place("y", "na"))
		t.commits(orbit.RemoveNode{Node: "nc"})
		t.commits(place("y", "na"))
	}},
}

func checkEven(t *trial) { t.all(evenLines) }

// kubernetesLines has the statements of the Kubernetes documentation on topologySpreadConstraints, and where orbit
// differs.
var kubernetesLines = []line{
	{"a node without the key takes nobody with the rule", func(t *trial) {
		t.zones("a")
		t.commits(in("", "r", "bare"), submit(level(), "x"), submit(grouped("g"), "y"))
		t.mistakes(place("x", "bare"))
		t.commits(place("x", "na"), place("y", "bare"))
	}},
	{"who is on a node without the key is in no domain, and does not count", func(t *trial) {
		t.zones("a", "b")
		t.commits(in("", "r", "bare"), submit(grouped("g"), "o", "p"), place("o", "bare"), place("p", "bare"))
		t.commits(submit(level(), "x", "y"), place("x", "na"), place("y", "nb"))
	}},
	{"self match: who is not in the group goes where it is even already, and changes nothing", func(t *trial) {
		other := movable(grouped("other"))
		other.Even = []orbit.Even{{Group: "g", Level: "zone"}}
		t.zones("a", "b")
		t.commits(submit(other, "o", "p", "q"), submit(grouped("g"), "x", "y", "z"), place("x", "na"))
		t.commits(place("o", "na"), place("p", "na")) // one more than the fewest is allowed, and they count as none
		t.commits(place("y", "na"))
		t.mistakes(place("q", "na"))
		t.mistakes(t.move("p", "na")...)
		t.skewed() // nobody with the rule is in the group
		t.commits(place("q", "nb"))
		t.commits(place("z", "nb"))
		t.commits(t.move("q", "na")...)
	}},
	{"self match: of members and others in one proposal only the members count", func(t *trial) {
		other := grouped("other")
		other.Even = []orbit.Even{{Group: "g", Level: "zone"}}
		t.zones("a", "b")
		t.commits(submit(other, "o"), submit(grouped("g"), "x", "y"))
		t.mistakes(place("o", "na"), place("x", "na"), place("y", "na"))
		t.commits(place("o", "na"), place("x", "na"), place("y", "nb"))
	}},
	{"self match: each group of a capsule is its own", func(t *trial) {
		member := grouped("other")
		member.Groups, member.Even = []string{"g"}, []orbit.Even{{Group: "g", Level: "zone"}}
		t.zones("a", "b")
		t.commits(submit(member, "x", "y"), place("x", "na"))
		t.mistakes(place("y", "na"))
		t.commits(place("y", "nb"))
	}},
	{"minDomains: while there are fewer, 0 is the fewest", func(t *trial) {
		least := level(func(e *orbit.Even) { e.MinDomains = 3 })
		t.zones("a", "b")
		t.spread(least, "a", "b")
		t.commits(submit(least, "y", "z"))
		t.mistakes(place("y", "na"))
		t.mistakes(place("y", "nb"))
		t.zones("c")
		t.commits(place("y", "nc"))
		t.commits(place("z", "na"))
	}},
	{"minDomains of what is declared: a domain without a node is none", func(t *trial) {
		least := level(among("a", "b", "c"), func(e *orbit.Even) { e.MinDomains = 3 })
		t.zones("a", "b")
		t.spread(least, "a", "b")
		t.commits(submit(least, "y"))
		t.mistakes(place("y", "na"))
		t.zones("c")
		t.commits(place("y", "nc"))
	}},
	{"nodeAffinityPolicy Honor: only domains with a node that meets Require", func(t *trial) {
		t.zones("a", "b", "c")
		t.commits(in("c", "rc", "nc2"))
		spec := level()
		spec.Require = []orbit.Predicate{{Key: "rack", Op: "In", Values: []string{"ra", "rb"}}}
		t.spread(spec, "a", "b", "a", "b")
		t.mistakes(submit(spec, "y"), place("y", "nc"))
		t.skewed()
	}},
	{"nodeAffinityPolicy Ignore: declared domains count whatever Require says", func(t *trial) {
		t.zones("a", "b", "c")
		spec := level(among("a", "b", "c"))
		spec.Require = []orbit.Predicate{{Key: "rack", Op: "In", Values: []string{"ra", "rb"}}}
		t.spread(spec, "a", "b")
		t.commits(submit(spec, "y"))
		t.mistakes(place("y", "na"))
		t.commits(submit(grouped("g"), "o"), place("o", "nc"))
		t.commits(place("y", "na"))
	}},
	{"nodeTaintsPolicy Ignore: domains of cordoned and of tainted nodes count", func(t *trial) {
		for _, change := range []func(n *orbit.Node){
			func(n *orbit.Node) { n.State = orbit.Cordoned },
			func(n *orbit.Node) { n.Taints = []orbit.Taint{{Key: "k", Effect: "NoSchedule"}} },
		} {
			t.zones("a", "b")
			shut := in("c", "rc", "nc")
			change(&shut.Node)
			t.commits(shut)
			t.spread(level(), "a", "b")
			t.commits(submit(level(), "y"))
			t.mistakes(place("y", "na"))
			t.mistakes(place("y", "nc"))
			t.clear()
		}
	}},
	{"nodeTaintsPolicy Honor: domains of cordoned and of tainted nodes do not count, and follow the nodes", func(t *trial) {
		honors := level(func(e *orbit.Even) { e.HonorTaints = true })
		tolerant := level(func(e *orbit.Even) { e.HonorTaints = true })
		tolerant.Tolerate = []orbit.Toleration{{Key: "k", Op: "Exists"}}
		for _, shut := range []func(n *orbit.Node){
			func(n *orbit.Node) { n.State = orbit.Cordoned },
			func(n *orbit.Node) { n.Taints = []orbit.Taint{{Key: "k", Effect: "NoExecute"}} },
		} {
			t.zones("a", "b", "c")
			t.spread(honors, "a", "b")
			t.commits(submit(honors, "x", "y", "z"), submit(tolerant, "w"), submit(level(), "v"))
			t.mistakes(place("x", "na"))
			n := in("c", "rc", "nc")
			shut(&n.Node)
			t.commits(n)
			t.mistakes(place("v", "na")) // its rule counts the zone
			if len(n.Node.Taints) > 0 {
				t.mistakes(place("w", "na")) // it may go there
			}
			t.commits(place("x", "na"))
			t.commits(in("c", "rc", "nc2")) // another node there
			t.mistakes(place("y", "nb"))
			t.mistakes(orbit.RemoveNode{Node: "nc"}, place("y", "nb"))
			t.commits(orbit.RemoveNode{Node: "nc2"}, place("y", "nb"))
			t.zones("c")
			t.mistakes(place("z", "na"))
			t.commits(place("z", "nc"))
			t.clear()
		}
	}},
	{"nodeTaintsPolicy Honor: a taint that only prefers others matters not, and declared domains follow the nodes, too", func(t *trial) {
		honors := level(among("a", "b", "c"), func(e *orbit.Even) { e.HonorTaints = true })
		t.zones("a", "b")
		n := in("c", "rc", "nc")
		n.Node.Taints = []orbit.Taint{{Key: "k", Effect: "PreferNoSchedule"}}
		t.commits(n)
		t.spread(honors, "a", "b")
		t.commits(submit(honors, "x", "y"))
		t.mistakes(place("x", "na"))
		t.commits(cordoned(n))
		t.commits(place("x", "na"))
		t.commits(place("y", "nb"))
		t.skewed()
	}},
	{"nodeAffinityPolicy Ignore: domains count whatever Require says", func(t *trial) {
		ignores := level(func(e *orbit.Even) { e.IgnoreRequire = true })
		ignores.Require = []orbit.Predicate{{Key: "rack", Op: "In", Values: []string{"ra", "rb"}}}
		t.zones("a", "b", "c")
		t.spread(ignores, "a", "b")
		t.commits(submit(ignores, "y"))
		t.mistakes(place("y", "na"))
		t.commits(submit(grouped("g"), "o"), place("o", "nc"))
		t.commits(place("y", "na"))
	}},
	{"nodeTaintsPolicy Honor: what is not declared is not waited for, and takes nobody", func(t *trial) {
		t.zones("a", "b")
		t.commits(cordoned(in("c", "rc", "nc")))
		two := level(among("a", "b"))
		t.spread(two, "a", "b", "a", "b")
		t.zones("c")
		t.mistakes(submit(two, "y"), place("y", "nc"))
	}},
	{"several rules: all are kept, each by its own domains (kubernetes counts only nodes with all keys: declare the others)", func(t *trial) {
		both := level()
		both.Even = append(both.Even, orbit.Even{Group: "g", Level: "rack"})
		t.commits(in("a", "r1", "na"), in("a", "r2", "na2"), in("b", "r3", "nb"), submit(both, "x", "y", "z", "v"), place("x", "na"))
		t.mistakes(place("y", "na2")) // the zone
		t.commits(place("y", "nb"))
		t.mistakes(place("z", "na")) // the rack
		t.commits(place("z", "na2"))
		t.commits(in("c", "", "nc"))
		t.mistakes(place("v", "nb")) // zone c has none of the group
		named := level(among("a", "b"))
		named.Even = append(named.Even, both.Even[1])
		t.commits(submit(named, "w"), place("w", "nb"))
	}},
	{"what terminates is not counted", func(t *trial) {
		t.commits(off("a", "ra", "na"), off("b", "rb", "nb"), submit(level(), "x", "y"), place("x", "na"))
		t.commits(t.begins("x"))
		t.mistakes(place("y", "na"))
		t.commits(cancel("x"))
		t.remain("na", "x")
		t.commits(place("y", "na"))
	}},
	{"judged at placements only: uncordoned, relabelled, left uneven, all goes on", func(t *trial) {
		t.zones("a", "b")
		t.spread(level(), "a", "b", "a", "b")
		t.commits(in("a", "ra", "nb"))
		t.commits(in("b", "rb", "nb2"))
		t.skewed("a: 4, fewest 0")
		t.commits(t.move("x1", "nb2")...)
		t.commits(t.move("x3", "nb2")...)
		t.skewed()
	}},
	{"only who has the rule is judged by it, and by its own", func(t *trial) {
		t.zones("a", "b")
		wide := level(func(e *orbit.Even) { e.MaxSkew = 3 })
		t.spread(wide, "a", "a", "a")
		t.skewed()
		t.commits(submit(level(), "y"))
		t.mistakes(place("y", "na"))
		t.commits(place("y", "nb"))
		t.skewed("a: 3, fewest 1")
	}},
}

func checkEvenByLine(t *trial) { t.all(kubernetesLines) }
