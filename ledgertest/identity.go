package ledgertest

import (
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file checks that a proposal which is sent twice has one effect.

// checkResent sends proposals again: at once, after other commits, and through the other handle.
func checkResent(t *trial) {
	t.commits(node("n", 5), submit(cpu(1), "a", "b"))
	placed := orbit.Proposal{ID: orbit.NewProposalID(), View: t.view(), If: []orbit.Precondition{orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{orbit.CPU: 5}}},
		Do: []orbit.Commitment{place("a", "n"), place("b", "n")}}
	placedAt := t.admits(placed)
	t.again(placed, placedAt)
	t.commits(stopped("b"))
	t.commits(hold("h", "n", 4)) // its bet no longer holds, and b is free again: neither matters
	t.again(placed, placedAt)
	if !t.capsule("b").Pending() {
		t.Failf("a proposal that was sent again has placed capsule b again")
	}
	marked := planned(t.view(), mark("m", "1"), orbit.Assign{Capsule: "b", Owner: "o"})
	first := t.admits(marked)
	t.commits(mark("m", "2"), orbit.Assign{Capsule: "b", From: "o"})
	t.again(marked, first)
	if value, _ := t.now().Mark("m"); value != "2" || t.capsule("b").Owner() != "" {
		t.Failf("a proposal that was sent again has set mark m to %q, and the owner of b to %q", value, t.capsule("b").Owner())
	}
	t.misused(orbit.Proposal{ID: marked.ID, Do: []orbit.Commitment{mark("m", "3")}}, first)
	t.misused(orbit.Proposal{ID: placed.ID, Do: []orbit.Commitment{place("b", "n")}}, placedAt)
}

// misused sends another proposal with the id of a committed one, and requires that it has no effect. The answer may be
// that of the committed one, because a ledger need not remember what it was.
func (t *trial) misused(p orbit.Proposal, first orbit.Revision) {
	before := t.now()
	for i, l := range t.handles() {
		if rev, err := l.Propose(t.ctx, p); !errors.Is(err, orbit.ErrInvalid) && (err != nil || rev != first) {
			t.Failf("%s has the id of another proposal, committed at %d; the answer of handle %d is %d, %v", harness.Describe(p), first, i, rev, err)
		}
	}
	t.unchanged(before, harness.Describe(p)+", with the id of another proposal,")
}

// again sends a committed proposal through each handle, and requires the same answer and no effect.
func (t *trial) again(p orbit.Proposal, first orbit.Revision) {
	before := t.now()
	for i, l := range t.handles() {
		if rev, err := l.Propose(t.ctx, p); err != nil || rev != first {
			t.Failf("%s was committed at %d; sent again, the answer of handle %d is %d, %v", harness.Describe(p), first, i, rev, err)
		}
	}
	t.unchanged(before, harness.Describe(p)+", sent again,")
}

// checkRefusedID sends a refused proposal again after it has become feasible. Only committed ids are remembered.
func checkRefusedID(t *trial) {
	t.commits(node("n", 1), submit(cpu(1), "a"), hold("h", "n", 1))
	p := planned(t.view(), place("a", "n"))
	t.refuses(orbit.ErrInfeasible, p)
	freed := t.commits(unhold("h"))
	if rev := t.admits(p); rev <= freed {
		t.Failf("%s was committed at %d, before there was room at %d", harness.Describe(p), rev, freed)
	}
	t.isOn("a", "n")
}

// checkNoID sends proposals without an id, which are never taken for repetitions.
func checkNoID(t *trial) {
	p := orbit.Proposal{View: t.view(), Do: []orbit.Commitment{mark("m", "v")}}
	one := t.admits(p)
	two := t.admits(p)
	if two <= one {
		t.Failf("a proposal without an id, sent twice, was committed at %d and %d; they are two", one, two)
	}
	t.commits(node("n", 2), submit(cpu(1), "a"))
	p = orbit.Proposal{View: t.view(), Do: []orbit.Commitment{place("a", "n")}}
	t.admits(p)
	t.refuses(orbit.ErrInfeasible, orbit.Proposal{View: t.view(), Do: p.Do})
}

// checkWindow places and releases one capsule as often as its record remembers, and makes as many other commits as the
// ledger remembers.
func checkWindow(t *trial) {
	n := min(t.limits.PlacementIDs, t.scaled(40))
	t.commits(node("n", 2), submit(cpu(1), "a"))
	first := planned(t.view(), place("a", "n"))
	at := t.admits(first)
	for range n - 1 {
		t.commits(stopped("a"))
		t.commits(place("a", "n"))
	}
	t.commits(stopped("a"))
	t.again(first, at)
	n = min(t.limits.ProposalIDs, t.scaled(100))
	other := planned(t.view(), mark("first", "v"))
	at = t.admits(other)
	for i := range n - 1 {
		t.commits(mark(fmt.Sprint("m", i%7), "v"))
	}
	t.again(other, at)
}
