package ledgertest

import (
	"time"

	"github.com/orbitsched/orbit"
)

// This file checks devices and requirements on nodes.

// checkDevices shares device instances between capsules and holds, up to the capacity of each instance.
func checkDevices(t *trial) {
	t.commits(gpuNode("n", 2), submit(gpu(1, 600), "a", "b"), submit(gpu(1, 400), "c"), submit(gpu(2, 1), "pair"))
	t.commits(placeOn("a", "n", 0b01))
	t.mistakes(placeOn("b", "n", 0b01))
	t.mistakes(placeOn("b", "n", 0b100)) // there is none
	t.mistakes(placeOn("b", "n", 0))     // asks for one
	t.mistakes(placeOn("b", "n", 0b11))
	t.mistakes(placeOn("pair", "n", 0b01))
	t.commits(placeOn("c", "n", 0b01))
	t.mistakes(placeOn("pair", "n", 0b11)) // the first has nothing left
	t.commits(orbit.Hold{ID: "h", Node: "n", Devices: 0b10, Milli: 401, Ends: someday})
	t.mistakes(placeOn("b", "n", 0b10))
	n := t.member("n")
	if n.DeviceFree(0) != 0 || n.DeviceFree(1) != 599 {
		t.Failf("the devices of n have %d and %d free; it must be 0 and 599", n.DeviceFree(0), n.DeviceFree(1))
	}
	t.commits(unhold("h"), placeOn("b", "n", 0b10))
}

// checkSickDevice makes a device unhealthy on which a capsule runs.
func checkSickDevice(t *trial) {
	t.commits(gpuNode("n", 2), submit(movable(gpu(1, 600)), "a", "b"), placeOn("a", "n", 1))
	view := t.view()
	sick := gpuNode("n", 2)
	sick.Node.Devices.Unhealthy = 1
	t.commits(sick)
	t.loses(view, placeOn("b", "n", 1))
	t.mistakes(orbit.Hold{ID: "h", Node: "n", Devices: 1, Milli: 1, Ends: someday})
	if free := t.member("n").DeviceFree(0); free != 0 {
		t.Failf("a sick device has %d free", free)
	}
	t.commits(gpuNode("n", 2))
	t.mistakes(placeOn("b", "n", 1)) // what runs there has kept its share
	t.commits(placeOn("b", "n", 2))
	t.mistakes(t.evict("b"), placeOn("b", "n", 2), gpuNode("n", 1)) // and in one proposal
}

// checkRequirements places where labels, the device model or schedulability forbid it.
func checkRequirements(t *trial) {
	plain, ssd := node("plain", 9), node("ssd", 9)
	ssd.Node.Labels["disk"] = "ssd"
	spec := cpu(1)
	spec.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}
	picky := gpu(1, 500)
	picky.Devices.Models = []string{"m2", "m3"}
	t.commits(plain, ssd, gpuNode("gpus", 1), submit(spec, "a", "b"), submit(picky, "p"))
	t.mistakes(place("a", "plain"))
	t.mistakes(place("a", "nowhere"))
	t.mistakes(placeOn("p", "gpus", 1)) // is an m1
	t.commits(place("a", "ssd"))
	view := t.view()
	t.commits(node("ssd", 9)) // loses the label; what runs stays
	t.isOn("a", "ssd")
	t.loses(view, place("b", "ssd"))
	drained := ssd
	drained.Node.State = orbit.Cordoned
	t.commits(drained)
	t.mistakes(place("b", "ssd"))
	t.mistakes(hold("h", "ssd", 1))
	t.commits(ssd)
	t.commits(place("b", "ssd"))
}

// checkAlternatives places where one of several terms holds, and where a node is named by its id.
func checkAlternatives(t *trial) {
	is := func(key string, values ...string) orbit.Predicate {
		return orbit.Predicate{Key: key, Op: "In", Values: values}
	}
	anyOf := func(terms ...[]orbit.Predicate) []orbit.Predicate {
		return []orbit.Predicate{{Op: "AnyOf", Terms: terms}}
	}
	either, pinned := cpu(1), cpu(1)
	either.Require = anyOf([]orbit.Predicate{is("rack", "r-a"), {Key: "disk", Op: "Exists"}}, []orbit.Predicate{is("rack", "r-b")}, []orbit.Predicate{is(orbit.NodeKey, "c", "gone")})
	pinned.Require = []orbit.Predicate{is(orbit.NodeKey, "a")}
	posing := node("d", 9)
	posing.Node.Labels[orbit.NodeKey] = "a"
	t.commits(node("a", 9), node("b", 9), node("c", 9), posing, submit(either, "e0", "e1"), submit(pinned, "p"))
	t.mistakes(place("e0", "a")) // has no disk
	t.mistakes(place("e0", "d"))
	t.commits(place("e0", "b"), place("e1", "c"))
	t.mistakes(place("p", "d")) // has the label, and another id
	t.mistakes(place("p", "b"))
	t.commits(place("p", "a"))
	for _, bad := range [][]orbit.Predicate{anyOf(), anyOf([]orbit.Predicate{}), anyOf(anyOf([]orbit.Predicate{is("k", "v")})), {{Key: "k", Op: "Exists", Terms: [][]orbit.Predicate{{is("k", "v")}}}}} {
		spec := cpu(1)
		spec.Require = bad
		t.invalid(submit(spec, "z"))
	}
}

// checkTaints places capsules that tolerate the taints of a node and others that do not, and moves the latter away.
func checkTaints(t *trial) {
	tainted := func(id orbit.NodeID, taints ...orbit.Taint) orbit.PutNode {
		n := node(id, 9)
		n.Node.Taints = taints
		return n
	}
	spec := func(tolerate ...orbit.Toleration) *orbit.Spec {
		s := cpu(1)
		s.Tolerate = tolerate
		return s
	}
	reserved, sick := orbit.Taint{Key: "reserved", Value: "gpu", Effect: "NoSchedule"}, orbit.Taint{Key: "sick", Effect: "NoExecute"}
	t.commits(tainted("n", reserved, orbit.Taint{Key: "old", Effect: "PreferNoSchedule"}), tainted("m"), submit(spec(), "plain", "runs"),
		submit(spec(orbit.Toleration{Key: "reserved", Value: "gpu"}), "equal"), submit(spec(orbit.Toleration{Key: "reserved", Value: "ssd"}), "other"),
		submit(spec(orbit.Toleration{Key: "reserved", Op: "Exists", Effect: "NoExecute"}), "effect"), submit(spec(orbit.Toleration{Op: "Exists"}), "all"))
	t.mistakes(place("plain", "n"))
	t.mistakes(place("other", "n"))
	t.mistakes(place("effect", "n"))
	t.commits(place("equal", "n"), place("all", "n"), hold("h", "n", 1))
	t.commits(place("runs", "m"))
	t.mistakes(evictedTo(t.evict("runs"), "m")...) // it is not movable
	view := t.view()
	t.commits(tainted("m", reserved))
	t.isOn("runs", "m")
	t.loses(view, place("plain", "m"))
	t.mistakes(evictedTo(t.evict("runs"), "m")...)
	t.commits(tainted("o"))
	t.mistakes(append(evictedTo(t.evict("runs"), "o"), tainted("m", sick))...) // a taint of the same proposal is no reason for the move
	t.commits(tainted("m", sick))
	t.mistakes(evictedTo(t.evict("runs"), "m")...)
	t.commits(evictedTo(t.evict("runs"), "o")...)
	t.commits(submit(spec(orbit.Toleration{Key: "sick", Op: "Exists", Effect: "NoExecute", For: time.Minute}, orbit.Toleration{Key: "reserved", Op: "Exists"}), "a-while"), place("a-while", "m"))
	t.mistakes(evictedTo(t.evict("all"), "o")...)
	t.commits(evictedTo(t.evict("a-while"), "o")...) // allowed at once, although For has not passed: no rule reads a clock
	t.commits(adopt("found", spec(), "m"))           // an adoption is a fact, which no taint refuses
	t.invalid(tainted("n", orbit.Taint{Key: "k", Effect: "Never"}))
	t.invalid(tainted("n", orbit.Taint{Effect: "NoSchedule"}))
	for _, bad := range []orbit.Toleration{{}, {Key: "k", Op: "In"}, {Op: "Equal"}, {Key: "k", Op: "Exists", Value: "v"}, {Key: "k", Effect: "Never"},
		{Op: "Exists", For: time.Minute}, {Op: "Exists", Effect: "NoExecute", For: -time.Minute}} {
		t.invalid(submit(spec(bad), "z"))
	}
}
