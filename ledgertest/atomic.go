package ledgertest

import (
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file checks that a proposal is committed as a whole or not at all.

// checkAtomic makes a long proposal fail at each of its commitments in turn, and commits it afterwards.
func checkAtomic(t *trial) {
	t.commits(node("n", 9), node("old", 1), submit(cpu(1), "a", "b"), place("a", "n"), hold("h", "n", 1), mark("m", "v"))
	whole := []orbit.Commitment{
		node("new", 3), submit(cpu(1), "c"), place("c", "new"), cancel("a"), place("b", "new"), unhold("h"),
		hold("h", "new", 1), orbit.Assign{Capsule: "b", Owner: "o"}, mark("m", ""), gang("g", 0, "x"), place("x", "n"), orbit.RemoveNode{Node: "old"}, release("c"),
	}
	for k := range len(whole) + 1 {
		for _, wrong := range []orbit.Commitment{place("absent", "n"), unhold("none"), orbit.Assign{Capsule: "b", From: "not me"}} {
			if r := t.mistakes(slices.Insert(slices.Clone(whole), k, wrong)...); r.Do != k {
				t.Failf("the receipt blames commitment %d of a proposal that fails at %d", r.Do, k)
			}
		}
	}
	before := t.now()
	lost := orbit.Proposal{ID: orbit.NewProposalID(), View: before.Revision(), If: []orbit.Precondition{orbit.MarkAt{Key: "none", Revision: 1}}, Do: whole}
	t.refuses(orbit.ErrInfeasible, lost)
	t.Must(before.Check(orbit.Proposal{View: before.Revision(), Do: whole}), "State.Check of the whole")
	t.unchanged(before, "a dry run")
	t.commits(whole...)
	s := t.now()
	if c := s.Capsule("b"); c.Node != "new" || c.Owner() != "o" || s.Node("old") != nil || s.Gang("g").Total() != 1 || !s.Capsule("a").Released() {
		t.Failf("only a part of the proposal can be seen:\n%s", difference(before, s))
	}
}

// checkTwiceInOne uses an id twice in one proposal. That is a mistake of the proposer and never a conflict.
func checkTwiceInOne(t *trial) {
	t.commits(node("n", 9), gang("old", 0, "o"), submit(cpu(1), "a"))
	for _, do := range [][]orbit.Commitment{
		{hold("h", "n", 1), hold("h", "n", 1)},
		{gang("g", 0, "x"), gang("g", 0, "y")},
		{place("o", "n"), gang("old", 0, "y")},
		{place("a", "n"), place("a", "n")},
		{orbit.RemoveNode{Node: "n"}, orbit.RemoveNode{Node: "n"}},
		{place("a", "n"), release("a"), release("a")},
	} {
		if r := t.mistakes(do...); r.Do != len(do)-1 || r.TakenAt > r.At {
			t.Failf("the receipt of %s blames commitment %d, taken at %d, judged at %d", harness.Describe(orbit.Proposal{Do: do}), r.Do, r.TakenAt, r.At)
		}
	}
	p := orbit.Proposal{Do: []orbit.Commitment{submit(cpu(1), "z"), submit(cpu(1), "z")}}
	t.refuses(orbit.ErrInvalid, p)
	t.commits(mark("m", "1"), mark("m", "2"), place("a", "n"), release("a"), place("a", "n")) // what undoes itself is fine
	if value, _ := t.now().Mark("m"); value != "2" {
		t.Failf("a mark set to 1 and then to 2 in one proposal reads %q", value)
	}
}

// checkKept changes all slices and maps of a proposal after its commit, and checks that the ledger has not written to
// them.
func checkKept(t *trial) {
	labels, carried := map[string]string{"disk": "ssd"}, map[string]string{"team": "a"}
	spec := cpu(1)
	spec.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"nvme", "ssd"}}}
	members := []orbit.CapsuleID{"a", "b"}
	g := gang("g", 0, "x", "y")
	do := []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 9}, Labels: labels}},
		orbit.Submit{IDs: members, Spec: spec, Labels: carried}, g,
	}
	sent := harness.Text(do)
	t.commits(do...)
	if harness.Text(do) != sent {
		t.Failf("the ledger has written to the proposal: it was %s and is %s", sent, harness.Text(do))
	}
	before, made := t.now(), harness.Text(t.changes(t.ledger, t.base.Revision()))
	was := content(before)
	labels["disk"], members[0], spec.Require[0].Values[1], spec.Envelope.Reservation[orbit.CPU] = "gone", "z", "gone", 99
	carried["team"] = "gone"
	g.Gang.Roles[0].Members[0], g.Gang.Roles[0].Name, do[0] = "z", "gone", nil
	if is := content(before); !slices.Equal(was, is) {
		t.Failf("a state has changed when the caller wrote to its own slices and maps")
	}
	t.unchanged(before, "writing to one's own slices and maps")
	if is := harness.Text(t.changes(t.ledger, t.base.Revision())); is != made {
		t.Failf("the history has changed when the caller wrote to its own slices and maps: it was %s and is %s", made, is)
	}
	t.commits(place("a", "n"), place("x", "n"), place("y", "n"))
}
