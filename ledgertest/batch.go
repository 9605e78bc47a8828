package ledgertest

import (
	"errors"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file checks batches of independent proposals.

// batcher returns the ledger as a Batcher, or skips the case if it is none.
func (t *trial) batcher() orbit.Batcher {
	b, ok := t.ledger.(orbit.Batcher)
	if !ok {
		t.Skipf("the ledger is no orbit.Batcher")
	}
	return b
}

// outcomes sends a batch and requires one outcome for each proposal.
func (t *trial) outcomes(batch ...orbit.Proposal) []orbit.Outcome {
	out := t.batcher().ProposeBatch(t.ctx, batch)
	if len(out) != len(batch) {
		t.Failf("%d proposals have %d outcomes", len(batch), len(out))
	}
	return out
}

// checkBatch sends a batch of proposals, some of which hold and some of which fail, each in its own way. Each must have
// the outcome that it would have alone. A proposal that is in the batch twice is committed once.
func checkBatch(t *trial) {
	t.batcher()
	t.commits(node("n", 3), node("m", 3), node("k", 3), submit(cpu(1), "a", "b", "e"), submit(cpu(9), "big"), gang("g", 0, "x", "y"))
	old := t.view()
	t.commits(place("e", "k"))
	view := t.view()
	batch := []orbit.Proposal{
		planned(view, place("a", "n")),
		planned(view, place("big", "m")),
		planned(view, orbit.Place{}),
		planned(view, place("x", "m")),
		planned(old, place("e", "n")),
		planned(view, place("b", "n")),
		{},
		planned(view, mark("m", "v")),
		planned(view, unhold("none")),
		planned(view, stopped("e")),
	}
	batch = append(batch, batch[7])
	want := []error{nil, orbit.ErrInfeasible, orbit.ErrInvalid, orbit.ErrInfeasible, orbit.ErrConflict, nil, orbit.ErrInvalid, nil, orbit.ErrInfeasible, nil, nil}
	out := t.outcomes(batch...)
	for i, o := range out {
		switch {
		case !errors.Is(o.Err, want[i]):
			t.Failf("proposal %d of a batch, %s: outcome %d, %v; it must be %v", i, harness.Describe(batch[i]), o.Revision, o.Err, want[i])
		case o.Err == nil && o.Revision <= view:
			t.Failf("proposal %d of a batch was committed at %d; the view was at %d before", i, o.Revision, view)
		case o.Err != nil && o.Revision != 0:
			t.Failf("proposal %d of a batch was refused, and with revision %d", i, o.Revision)
		}
	}
	if out[7].Revision != out[10].Revision {
		t.Failf("one proposal, twice in a batch, was committed at %d and %d", out[7].Revision, out[10].Revision)
	}
	t.Must(t.now().Verify(), "the state after a batch")
	for id, on := range map[orbit.CapsuleID]orbit.NodeID{"a": "n", "b": "n", "e": "", "x": "", "y": "", "big": ""} {
		t.isOn(id, on)
	}
	t.follows(t.base, t.ledger)
	before := t.now()
	for i, o := range t.outcomes(batch[0], batch[5], batch[7]) {
		if o.Err != nil {
			t.Failf("proposal %d of a batch, sent again, has the outcome %v", i, o.Err)
		}
	}
	t.unchanged(before, "a batch that was sent again")
	if got := t.outcomes(); len(got) != 0 {
		t.Failf("an empty batch has %d outcomes", len(got))
	}
}

// checkBatchRivals sends a batch of proposals that compete for the same capsule and the same device.
func checkBatchRivals(t *trial) {
	t.batcher()
	t.commits(node("n", 9), node("m", 9), gpuNode("d", 1), submit(cpu(1), "a"), submit(gpu(1, 600), "p", "q", "r"))
	view := t.view()
	var batch []orbit.Proposal
	for _, do := range []orbit.Place{place("a", "n"), place("a", "m"), placeOn("p", "d", 1), placeOn("q", "d", 1), placeOn("r", "d", 1), place("a", "n")} {
		batch = append(batch, planned(view, do))
	}
	won := map[bool]int{}
	for i, o := range t.outcomes(batch...) {
		if o.Err == nil {
			won[i == 0 || i == 1 || i == 5]++
		} else if !errors.Is(o.Err, orbit.ErrConflict) {
			t.Failf("proposal %d of a batch has lost to another: %v; it must be a conflict", i, o.Err)
		}
	}
	if won[true] != 1 || won[false] != 1 {
		t.Failf("of three that want capsule a %d have it, of three that want a device %d; it must be one each", won[true], won[false])
	}
	t.Must(t.now().Verify(), "the state after a batch")
	t.follows(t.base, t.ledger)
}

// checkBatchWide sends a batch that is too large for one transaction of most stores.
func checkBatchWide(t *trial) {
	n := t.scaled(500)
	t.commits(node("n", int64(n/2)))
	t.submitted(cpu(1), ids[orbit.CapsuleID]("c", n)...)
	view, batch := t.view(), make([]orbit.Proposal, n)
	for i, id := range ids[orbit.CapsuleID]("c", n) {
		batch[i] = planned(view, place(id, "n"))
	}
	committed := 0
	for i, o := range t.outcomes(batch...) {
		if o.Err == nil {
			committed++
		} else if !errors.Is(o.Err, orbit.ErrConflict) {
			t.Failf("proposal %d of %d that want the same node: %v; it must be committed or a conflict", i, n, o.Err)
		}
	}
	if committed != n/2 || t.member("n").Capsules != n/2 {
		t.Failf("%d of %d are said to be committed, %d are on the node, which has room for %d", committed, n, t.member("n").Capsules, n/2)
	}
	t.Must(t.now().Verify(), "the state after a batch")
}
