package ledgertest

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file checks queues: what the capsules that name one may use, lend, borrow and take back. Amounts are in milli-cores.

// queue puts a queue with this much CPU of its own. The functions change it before it is put.
func queue(id, parent orbit.QueueID, nominal int64, with ...func(*orbit.Queue)) orbit.PutQueue {
	q := orbit.Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": nominal}}
	for _, f := range with {
		f(&q)
	}
	return orbit.PutQueue{Queue: q}
}

func borrowing(most int64) func(*orbit.Queue) {
	return func(q *orbit.Queue) { q.Borrow = map[string]int64{"cpu": most} }
}

func lending(most int64) func(*orbit.Queue) {
	return func(q *orbit.Queue) { q.Lend = map[string]int64{"cpu": most} }
}

// charged returns a spec that names a queue and asks for n of CPU.
func charged(q orbit.QueueID, n int64) *orbit.Spec {
	spec := cpu(n)
	spec.Queue = q
	return spec
}

// inQueue submits a capsule and places it on node "n".
func inQueue(q orbit.QueueID, n int64, id orbit.CapsuleID) []orbit.Commitment {
	return []orbit.Commitment{submit(charged(q, n), id), place(id, "n")}
}

// respecs gives a capsule another spec in place.
func (t *trial) respecs(id orbit.CapsuleID, spec *orbit.Spec) orbit.Respec {
	return orbit.Respec{Capsule: id, Since: t.capsule(id).PlacedAt, Spec: spec}
}

// uses requires what queues use and have left of CPU, as every handle shows it.
func (t *trial) uses(id orbit.QueueID, used, left int64) {
	for _, l := range t.handles() {
		q, ok := t.seenBy(l).Queue(id)
		if !ok || q.Used()["cpu"] != used || q.Available()["cpu"] != left {
			t.Failf("queue %q uses %v and has %v left; it must use %d and have %d left", id, q.Used(), q.Available(), used, left)
		}
	}
}

// lacks requires that a rejection names a queue, the queue of its path where the quota is used up, and how much the capsule wants of how
// much.
func (t *trial) lacks(id, level orbit.QueueID, want, free int64, r orbit.Rejection) {
	if r.Queue != id || r.Level != level || r.Dimension != "cpu" || r.Want != want || r.Free != free {
		t.Failf("it is refused as %q: queue %q at %q, %q, %d wanted, %d free; it must be %q at %q, %d, %d", r.Reason, r.Queue, r.Level, r.Dimension, r.Want, r.Free, id, level, want, free)
	}
}

// teams are two queues that share 10: "a" with 6 and "b" with 4.
func (t *trial) teams(more ...orbit.Commitment) {
	t.commits(slices.Concat([]orbit.Commitment{node("n", 100), node("m", 100), queue("all", "", 0), queue("a", "all", 6), queue("b", "all", 4)}, more)...)
}

// queueLines has cases of queues.
var queueLines = []line{
	{"a queue borrows what others leave, up to its root, and is told who borrows", func(t *trial) {
		t.teams()
		t.commits(inQueue("a", 9, "x")...)
		t.uses("a", 9, 1)
		t.uses("b", 0, 1)
		r := t.mistakes(inQueue("b", 2, "y")...)
		t.lacks("b", "all", 2, 1, r)
		if !slices.Equal(r.Borrowers, []orbit.QueueID{"a"}) {
			t.Failf("the receipt says that %v borrow; \"a\" does", r.Borrowers)
		}
		if s := t.now().Share("a").String(); s != "3/10" {
			t.Failf("the share of \"a\" is %s; it must be 3/10", s)
		}
		t.commits(inQueue("b", 1, "y")...)
		t.commits(inQueue("b", 0, "z")...) // asks for nothing that is divided
		t.commits(submit(cpu(50), "free"), place("free", "n"))
		t.uses("all", 10, 0)
	}},
	{"what is not lent stays, and nobody borrows more than its limit", func(t *trial) {
		t.teams(queue("a", "all", 6, borrowing(2)), queue("b", "all", 4, lending(1)))
		t.lacks("a", "all", 8, 7, t.mistakes(inQueue("a", 8, "x")...))
		t.commits(inQueue("a", 7, "x")...)
		t.uses("b", 0, 3)
		t.commits(inQueue("b", 3, "y")...)
		t.uses("b", 3, 0)
		t.commits(cancel("x"), cancel("y"), queue("b", "all", 4))
		t.lacks("a", "a", 9, 8, t.mistakes(inQueue("a", 9, "z")...))
		t.commits(inQueue("a", 8, "z")...)
	}},
	{"a limit of the team above holds for the queues below it", func(t *trial) {
		t.teams(queue("a", "all", 6, borrowing(1)), queue("a1", "a", 0), queue("a2", "a", 0))
		t.commits(inQueue("a1", 5, "x")...)
		t.lacks("a2", "a", 3, 2, t.mistakes(inQueue("a2", 3, "y")...))
		t.commits(inQueue("a2", 2, "y")...)
		t.uses("a", 7, 0)
		t.uses("all", 7, 3)
	}},
	{"the sum of a proposal is judged, in any order", func(t *trial) {
		t.teams()
		t.mistakes(append(inQueue("a", 5, "x"), inQueue("b", 6, "y")...)...)
		t.commits(append(inQueue("a", 5, "x"), inQueue("b", 5, "y")...)...)
		t.commits(append(inQueue("a", 5, "z"), cancel("x"))...)
		t.mistakes(append(inQueue("b", 6, "w"), cancel("z"))...)
		t.commits(append(append(inQueue("b", 6, "w"), cancel("z")), queue("b", "all", 5))...)
	}},
	{"growth and another queue are arrivals of what they add", func(t *trial) {
		t.teams()
		t.commits(append(inQueue("a", 5, "x"), inQueue("b", 4, "y")...)...)
		t.mistakes(t.respecs("x", charged("a", 7)))
		t.commits(t.respecs("x", charged("a", 6)))
		t.mistakes(t.respecs("x", charged("b", 7)))
		t.commits(t.respecs("x", charged("b", 6)))
		t.uses("a", 0, 0)
		t.uses("b", 10, 0)
		grown := t.respecs("x", charged("b", 8))
		grown.Applied = true
		t.commits(grown) // a fact
		t.uses("all", 12, -2)
		t.mistakes(t.respecs("x", charged("b", 9)))
		t.commits(t.respecs("x", charged("b", 7)), t.respecs("y", charged("b", 3))) // less, though not enough
	}},
	{"a quota that shrinks admits nothing and evicts nobody; what is found is a fact", func(t *trial) {
		t.teams()
		t.commits(append(inQueue("a", 6, "x"), inQueue("b", 4, "y")...)...)
		t.commits(queue("a", "all", 2))
		t.isOn("x", "n")
		t.lacks("b", "all", 1, -4, t.mistakes(inQueue("b", 1, "z")...))
		t.commits(append(inQueue("b", 4, "w"), cancel("y"))...) // b uses no more than before
		t.commits(orbit.Adopt{Capsule: "found", Spec: charged("a", 3), Node: "n"})
		t.uses("all", 13, -7)
	}},
	{"a conflict if somebody else was faster", func(t *trial) {
		t.teams(submit(charged("a", 8), "x"), submit(charged("b", 4), "y"))
		view := t.view()
		taken := t.commits(place("x", "n"))
		t.commits(mark("elsewhere", "v"))
		if r := t.loses(view, place("y", "m")); r.TakenAt != taken {
			t.Failf("the conflict is with revision %d; it must be %d, when the tree last got fuller", r.TakenAt, taken)
		}
		view = t.view()
		t.commits(cancel("x"), queue("b", "all", 3))
		t.commits(queue("a", "all", 0))
		t.loses(view, place("y", "m"))
	}},
	{"what is borrowed is taken back at any priority, and nothing else is", func(t *trial) {
		high := charged("b", 3)
		high.Priority = 9
		t.teams(submit(high, "b1", "b2", "b3"), submit(charged("a", 4), "a1"), submit(charged("a", 2), "a2"), submit(charged("a", 2), "a3"), submit(cpu(3), "free"))
		t.commits(place("b1", "n"), place("b2", "n"), place("b3", "n"))
		t.mistakes(t.evictFor("b1", "free"), place("free", "n"))
		t.evicts([]orbit.CapsuleID{"b1"}, t.evictFor("b1", "a1"), place("a1", "n"))                         // b: 9 of 4 before, 6 after
		t.evicts([]orbit.CapsuleID{"b3"}, t.evictFor("b2", "a2"), t.evictFor("b3", "a2"), place("a2", "n")) // one is enough, so b2 is spared
		t.uses("b", 3, 1)
		t.mistakes(t.evictFor("b2", "a3"), place("a3", "n")) // b borrows nothing any more
	}},
	{"who has the lower share for its weight takes back, and a tie takes nothing", func(t *trial) {
		t.commits(node("n", 100), queue("all", "", 12), queue("heavy", "all", 0, func(q *orbit.Queue) { q.Weight = 2 }), queue("light", "all", 0),
			submit(charged("heavy", 2), "h1", "h2", "h3", "h4", "h5"), submit(charged("light", 2), "l1", "l2", "l3"))
		for _, id := range []orbit.CapsuleID{"h1", "h2", "h3", "h4", "h5", "l1"} {
			t.commits(place(id, "n"))
		}
		t.evicts([]orbit.CapsuleID{"h5"}, t.evictFor("h5", "l2"), place("l2", "n")) // 8/12/2 and 4/12
		t.mistakes(t.evictFor("h4", "l3"), place("l3", "n"))
		t.mistakes(t.evictFor("l2", "h5"), place("h5", "n"))
	}},
	{"nobody takes anything back from another tree", func(t *trial) {
		t.teams(node("n", 9), queue("other", "", 9), submit(charged("a", 9), "x"), submit(charged("other", 4), "y"))
		t.commits(place("x", "n"))
		t.mistakes(t.evictFor("x", "y"), place("y", "n"))
	}},
	{"devices count for the model that is got, and extras count", func(t *trial) {
		n, ip := gpuNode("fast", 8), having("ip", 9)
		n.Node.Devices.Model = "A100"
		t.commits(n, gpuNode("slow", 8), ip, orbit.PutQueue{Queue: orbit.Queue{ID: "q", Nominal: map[string]int64{"device/A100": 1_500, "extra/ip": 2}}})
		spec, takes := gpu(1, 1_000), taking(2)
		spec.Queue, takes.Queue = "q", "q"
		t.commits(submit(spec, "x", "y"), submit(takes, "e", "f"), placeOn("x", "fast", 1), place("e", "ip"))
		if r := t.mistakes(placeOn("y", "fast", 2)); r.Dimension != "device/A100" {
			t.Failf("it is refused for %q; \"device/A100\" is what is missing", r.Dimension)
		}
		t.commits(placeOn("y", "slow", 1))
		if r := t.mistakes(place("f", "ip")); r.Dimension != "extra/ip" {
			t.Failf("it is refused for %q; \"extra/ip\" is what is missing", r.Dimension)
		}
	}},
	{"a gang counts whole; what waits, is held or still runs does not", func(t *trial) {
		crew := gang("g", 2, "x", "y")
		crew.Gang.Roles[0].Spec.Queue, crew.Gang.Roles[0].Spec.Envelope.Reservation[orbit.CPU] = "all", 6
		t.teams(confirming("k", 100), crew, hold("h", "n", 50), submit(charged("a", 6), "w"))
		t.mistakes(place("x", "n"), place("y", "n"))
		t.commits(queue("b", "all", 6))
		t.commits(place("x", "n"), place("y", "n"))
		t.mistakes(place("w", "k"))
		t.commits(cancel("x"), cancel("y"))
		t.commits(place("w", "k"))
		t.commits(t.begins("w"))
		t.commits(cancel("w"))
		t.uses("all", 0, 12)
		t.commits(unhold("h"))
	}},
	{"a queue is there as long as it is named, and a tree is a tree", func(t *trial) {
		t.mistakes(submit(charged("q", 1), "x"))
		t.mistakes(queue("q", "none", 1))
		t.commits(node("n", 100), node("m", 100), orbit.Adopt{Capsule: "known", Spec: charged("q", 2), Node: "n"})
		t.commits(queue("q", "", 1))
		t.uses("q", 2, -1) // it counts as soon as there is the queue
		t.commits(queue("p", "", 5))
		t.commits(queue("q", "p", 1))
		t.uses("p", 2, 4)
		t.mistakes(orbit.RemoveQueue{Queue: "q"})
		t.mistakes(orbit.RemoveQueue{Queue: "p"})
		t.invalid(queue("p", "q", 1))
		t.invalid(queue("p", "p", 1))
		t.invalid(queue("p", "", -1))
		t.invalid(queue("", "", 1))
		view := t.view()
		t.commits(cancel("known"), orbit.RemoveQueue{Queue: "q"})
		t.loses(view, submit(charged("q", 1), "x"))
		t.commits(orbit.RemoveQueue{Queue: "p"})
		t.mistakes(orbit.RemoveQueue{Queue: "p"})
	}},
}

func checkQueues(t *trial) { t.all(queueLines) }

// removals returns the removals of all queues, each before that of its parent.
func removals(s *orbit.State) (out []orbit.Commitment) {
	depth := func(q orbit.QueueState) (n int) {
		for ok := true; ok && q.Queue.Parent != ""; n++ {
			q, ok = s.Queue(q.Queue.Parent)
		}
		return n
	}
	list := slices.SortedStableFunc(s.Queues(), func(a, b orbit.QueueState) int { return depth(b) - depth(a) })
	for _, q := range list {
		out = append(out, orbit.RemoveQueue{Queue: q.Queue.ID})
	}
	return out
}

// checkRaceQuota lets the racers place capsules of two queues, each on a node of its own, where the quota is enough for one of them.
func checkRaceQuota(t *trial) {
	rounds := t.scaled(12)
	for i := range racers {
		t.commits(node(orbit.NodeID(fmt.Sprint("n", i)), int64(rounds)))
	}
	contender := func(racer, round int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprintf("c%d-%d", round, racer)) }
	for k := range rounds {
		root := orbit.QueueID(fmt.Sprint("q", k))
		t.commits(queue(root, "", 0), queue(root+"a", root, 1), queue(root+"b", root, 0))
		for i := range racers {
			t.commits(submit(charged(root+orbit.QueueID("ab"[i%2:i%2+1]), 1), contender(i, k)))
		}
	}
	view := t.view()
	t.oneWins(rounds, func(racer, round int) orbit.Proposal {
		return planned(view, place(contender(racer, round), orbit.NodeID(fmt.Sprint("n", racer))))
	})
}
