package ledgertest

import (
	"math"

	"github.com/orbitsched/orbit"
)

// This file checks that no node gets more than its capacity.

// checkCapacity fills nodes with one commit after another, and with one proposal. A ledger that judges one commitment
// at a time, or ignores holds, would commit too much.
func checkCapacity(t *trial) {
	t.commits(node("n", 10), node("m", 5), submit(cpu(4), "a", "b", "c"), submit(cpu(3), "d", "e"))
	t.commits(place("a", "n"))
	t.commits(place("b", "n"))
	r := t.mistakes(place("c", "n"))
	if name := t.now().DimensionName(orbit.CPU); r.Dimension != name || r.Want != 4 || r.Free != 2 || r.Node != "n" || r.Do != 0 {
		t.Failf("the receipt says commitment %d, node %q, wants %d of %q, %d free; it must say 0, n, 4 of %q, 2", r.Do, r.Node, r.Want, r.Dimension, r.Free, name)
	}
	t.mistakes(place("d", "m"), place("e", "m"))
	t.mistakes(place("d", "m"), hold("h", "m", 3))
	t.commits(place("d", "m"), hold("h", "m", 2))
	t.mistakes(hold("h2", "m", 1))
	if got := t.member("m").Used(); got != (orbit.Resources{orbit.CPU: 5}) {
		t.Failf("node m counts %v as used; a capsule of 3 and a hold of 2 are on it", got)
	}
}

// checkDimensions fills each dimension in turn, also those of the importer.
func checkDimensions(t *trial) {
	n := node("n", 0)
	for d := range n.Node.Capacity {
		n.Node.Capacity[d] = int64(10 + d)
	}
	t.commits(n)
	for d := range n.Node.Capacity {
		want := n.Node.Capacity
		want[d]++
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: want}}
		id := ids[orbit.CapsuleID]("c", d+1)[d]
		t.commits(submit(spec, id))
		if r, name := t.mistakes(place(id, "n")), t.now().DimensionName(d); r.Dimension != name {
			t.Failf("the receipt says that %q is short; it is %q", r.Dimension, name)
		}
		t.mistakes(orbit.Hold{ID: "h", Node: "n", Room: want, Ends: someday})
	}
	whole := &orbit.Spec{Envelope: orbit.Envelope{Reservation: n.Node.Capacity}}
	t.commits(submit(whole, "whole"), place("whole", "n"))
}

// checkShrink reduces the capacity below what is in use, to nothing and back.
func checkShrink(t *trial) {
	t.commits(node("n", 5), submit(movable(cpu(2)), "a", "b", "c"), submit(&orbit.Spec{}, "free"), place("a", "n"), place("b", "n"))
	for _, room := range []int64{3, 0} {
		t.commits(node("n", room))
		if free := t.free("n"); free != room-4 {
			t.Failf("node n of %d, with 4 used, has %d free; it must have %d", room, free, room-4)
		}
		t.mistakes(place("c", "n"))
		t.mistakes(hold("h", "n", 1))
	}
	t.mistakes(t.evict("a"), place("a", "n"))
	t.commits(place("free", "n")) // asks for none of the resource that is short
	t.commits(stopped("a"))       // leaving is always possible
	t.mistakes(place("a", "n"))
	t.commits(node("n", 6))
	t.commits(place("c", "n"), place("a", "n"))
}

// checkWrap uses numbers near the largest, whose sums would overflow.
func checkWrap(t *trial) {
	const most = math.MaxInt64
	t.commits(node("n", most), node("m", most-1), submit(cpu(most), "huge", "huge2"), submit(cpu(1), "one"))
	t.mistakes(place("huge", "m"))
	t.mistakes(place("huge", "n"), place("huge2", "n"))
	t.mistakes(place("huge", "n"), place("huge2", "n"), place("one", "n"))
	t.commits(place("huge", "n"))
	for _, do := range []orbit.Commitment{place("one", "n"), place("huge2", "n"), hold("h", "n", most)} {
		if r := t.mistakes(do); r.Free != 0 {
			t.Failf("the receipt says that %d are free; node n is full", r.Free)
		}
	}
	t.refuses(orbit.ErrInfeasible, bets(t.view(), orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{orbit.CPU: most}}))
	t.commits(node("n", 0))
	if free := t.free("n"); free != -most {
		t.Failf("node n of 0, with %d used, has %d free", int64(most), free)
	}
	t.commits(cancel("huge"))
}

// checkHolds makes holds, competes with them and ends them.
func checkHolds(t *trial) {
	t.commits(node("n", 5), submit(cpu(3), "a"))
	view := t.view()
	t.commits(hold("h", "n", 3))
	t.loses(view, place("a", "n"))
	t.mistakes(hold("h2", "n", 3))
	t.mistakes(hold("h", "n", 1)) // the id is taken
	t.mistakes(orbit.RemoveNode{Node: "n"})
	if h, ok := t.now().Hold("h"); !ok || h.Node != "n" || h.Room[orbit.CPU] != 3 || h.For != "holder" || !h.Ends.Equal(someday) {
		t.Failf("the hold reads %v, %v", h, ok)
	}
	t.commits(unhold("h"), place("a", "n")) // the owner of the hold swaps it for a placement
	if free := t.free("n"); free != 2 {
		t.Failf("node n has %d free after the swap; it must have 2", free)
	}
	t.loses(view, unhold("h"), mark("late", "holder"))
	t.commits(cancel("a"), hold("h", "n", 5)) // the id is free again, and so is the room
}

// checkSwap releases and places in one proposal, in either order. What a proposal releases is free for its own places.
func checkSwap(t *trial) {
	t.commits(node("n", 3), gpuNode("d", 1), submit(cpu(3), "low", "mid", "last", "high"), submit(gpu(1, 1000), "p", "q"))
	t.commits(place("low", "n"), placeOn("p", "d", 1))
	for _, do := range [][]orbit.Commitment{
		{cancel("low"), place("mid", "n")},
		{place("last", "n"), cancel("mid")},
		{cancel("p"), placeOn("q", "d", 1)},
		{hold("h", "n", 3), orbit.Release{Capsule: "last", From: "n", Final: true}},
		{unhold("h"), place("high", "n")},
	} {
		s := t.now()
		t.Must(s.Check(orbit.Proposal{View: s.Revision(), Do: do}), "State.Check of a swap")
		t.commits(do...)
	}
	t.isOn("high", "n")
}

// ranked returns a spec with a priority.
func ranked(priority int32, room int64) *orbit.Spec {
	s := cpu(room)
	s.Priority = priority
	return s
}

// nominate nominates a capsule for this much CPU on each of the nodes; without nodes it ends the nomination.
func nominate(c orbit.CapsuleID, room int64, nodes ...orbit.NodeID) orbit.Nominate {
	n := orbit.Nominate{Capsule: c}
	for _, id := range nodes {
		n.Parts = append(n.Parts, orbit.NominatedRoom{Node: id, Room: orbit.Resources{orbit.CPU: room}})
		n.Ends = someday
	}
	return n
}

// checkNominations checks that work of lower rank does not get nominated room, not even room that it releases in the
// same proposal. A hold can still be swapped for a placement. The nomination ends on all nodes when the nominee is
// placed or the nomination is ended.
func checkNominations(t *trial) {
	all := t.now().Limits()
	t.commits(node("n", 8), node("m", 8), submit(ranked(5, 8), "a"), submit(ranked(4, 1), "low", "lower"), submit(ranked(6, 1), "high"))
	t.commits(place("low", "n"))
	view := t.view()
	t.commits(hold("h", "n", 1))
	made := t.commits(nominate("a", 8, "n"))
	t.loses(view, place("lower", "n"))
	t.mistakes(place("lower", "n"))
	t.mistakes(cancel("low"), place("lower", "n"))
	t.mistakes(hold("h2", "n", 1))
	t.mistakes(place("a", "n")) // low and the hold are still there
	t.mistakes(orbit.RemoveNode{Node: "n"})
	t.commits(place("high", "n"))
	t.commits(unhold("h"), place("lower", "n"))
	if is := t.now().Capsule("a").Nomination(); !is.Lives() || is.Rank != 5 || is.First != made || is.Made != made || !is.Ends.Equal(someday) {
		t.Failf("the nomination reads %+v", is)
	}
	t.commits(cancel("low"), cancel("lower"), cancel("high"))
	t.commits(nominate("a", 8)) // ends it
	t.mistakes(nominate("a", 8))
	t.commits(nominate("a", 8, "n"))
	if is := t.now().Capsule("a").Nomination(); all.Renewals > 0 && is.First != made {
		t.Failf("a nomination that is renewed ranks since %d; it must since %d", is.First, made)
	}
	t.commits(place("a", "m")) // a placement on another node ends the nomination too
	if t.now().Capsule("a").Nomination().Lives() {
		t.Failf("a placed capsule is nominated")
	}
	t.commits(submit(ranked(0, 8), "z"), place("z", "n"))
	t.commits(cancel("z"), orbit.RemoveNode{Node: "n"})
}

// checkNominationShare makes nominations up to the share in the limits, and one too many.
func checkNominationShare(t *trial) {
	share := int64(t.now().Limits().NominatedShare)
	t.commits(node("n", 100), node("m", 100), submit(ranked(0, 101), "a", "b", "late"), submit(ranked(1, 100), "top"))
	t.commits(nominate("a", 100, "n")) // the only nomination may exceed the share
	t.commits(nominate("top", 1, "n")) // ends the nomination of a, which ranks lower and exceeds the share now
	view := t.view()
	made := t.now().Capsule("a").Nomination().Made
	t.commits(nominate("a", 1))
	gone := orbit.Nominate{Capsule: "a", Since: made}
	t.mistakes(gone)
	t.commits(gone, nominate("top", share, "n")) // ending a nomination that has made way already is no mistake here
	if share < 100 {
		t.loses(view, nominate("b", share+1, "m"))
		t.mistakes(nominate("b", share+1, "m"))
	}
	t.commits(nominate("b", share, "m"))
	t.mistakes(nominate("late", 1, "n"))
	t.commits(cancel("top"), nominate("late", 1, "n"))
	t.mistakes(nominate("x", 1, "n"))
	t.mistakes(nominate("b", 101, "m"))
}
