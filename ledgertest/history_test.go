package ledgertest_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
)

var bg = context.Background()

// story is a short recording: two nodes, three capsules, a conflict, a mistake, reads of all kinds.
func story(t *testing.T) ledgertest.History {
	l := &orbit.MemoryLedger{}
	r, err := ledgertest.NewRecorder(bg, l)
	require.NoError(t, err)
	one, two := r.Handle(l), r.Handle(l)
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 2}}}
	propose := func(l orbit.Ledger, view orbit.Revision, do ...orbit.Commitment) {
		_, _ = l.Propose(bg, orbit.Proposal{ID: orbit.NewProposalID(), View: view, Do: do})
	}
	room := orbit.Resources{orbit.CPU: 3}
	propose(one, 0, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: room}}, orbit.PutNode{Node: orbit.Node{ID: "m", Capacity: room}})
	propose(one, 1, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: spec})
	_, _ = two.Snapshot(bg)
	propose(one, 2, orbit.Place{Capsule: "a", Node: "n"})
	propose(two, 2, orbit.Place{Capsule: "b", Node: "n"}) // a conflict
	_, _ = two.Wait(bg, 2)
	_, _ = two.Changes(bg, 1)
	propose(two, 3, orbit.Place{Capsule: "b", Node: "nowhere"}) // a mistake
	propose(two, 3, orbit.Place{Capsule: "b", Node: "m"})
	propose(one, 4, orbit.Mark{Key: "k", Value: "v"})
	propose(one, 4, orbit.Mark{})
	_, _ = one.Snapshot(bg)
	h, err := r.History(bg)
	require.NoError(t, err)
	return h
}

// nth is the n-th call of a kind, with an error or without, of which the check must take note.
func nth(h *ledgertest.History, kind ledgertest.Kind, is error, n int) *ledgertest.Call {
	for i := range h.Calls {
		if c := &h.Calls[i]; c.Kind == kind && errors.Is(c.Err, is) {
			if n--; n < 0 {
				return c
			}
		}
	}
	panic("there is no such call")
}

func TestStoryIsTrue(t *testing.T) {
	h := story(t)
	require.NoError(t, h.Check())
	require.Len(t, h.Calls, 12)
	assert.Equal(t, "Propose", h.Calls[0].Kind.String())
}

// receipt is the rejection of a call, a copy of its own.
func receipt(c *ledgertest.Call) *orbit.Rejection {
	var r *orbit.Rejection
	if !errors.As(c.Err, &r) {
		panic("there is no receipt")
	}
	own := *r
	c.Err = &own
	return &own
}

// Each lie is found, and named.
func TestLiesAreFound(t *testing.T) {
	propose := ledgertest.Propose
	for name, lie := range map[string]struct {
		tell func(h *ledgertest.History)
		says string
	}{
		"another revision":    {func(h *ledgertest.History) { nth(h, propose, nil, 2).Revision = 2 }, "the history has it at 3"},
		"never committed":     {func(h *ledgertest.History) { h.Changes = h.Changes[:len(h.Changes)-1] }, "the history has it at 0"},
		"not in the end":      {func(h *ledgertest.History) { h.Final = h.Base }, "leads to another state"},
		"out of order":        {func(h *ledgertest.History) { h.Changes[2], h.Changes[3] = h.Changes[3], h.Changes[2] }, "out of order"},
		"a gap in a proposal": {func(h *ledgertest.History) { h.Changes = h.Changes[1:] }, "out of order"},
		"half of a proposal":  {func(h *ledgertest.History) { h.Changes = slices.Delete(h.Changes, 1, 2) }, "torn"},
		"other content":       {func(h *ledgertest.History) { h.Changes[5].Do = orbit.Mark{Key: "k", Value: "w"} }, "torn"},
		"without a proposal": {func(h *ledgertest.History) {
			h.Calls = slices.DeleteFunc(h.Calls, func(c ledgertest.Call) bool { return c.Revision == 5 })
		}, "no caller has sent"},
		"applied twice":     {twice, "applied twice"},
		"against the rules": {func(h *ledgertest.History) { h.Changes[4].Do = orbit.Place{Capsule: "b", Node: "n"} }, "breaks a rule at revision 4"},
		"against its bet": {func(h *ledgertest.History) {
			nth(h, propose, nil, 2).Proposal.If = []orbit.Precondition{orbit.MarkAt{Key: "k", Revision: 9}}
		}, "did not hold"},
		"conflict, yet there": {func(h *ledgertest.History) { nth(h, propose, nil, 2).Err = orbit.ErrConflict }, "the history has it, at 3"},
		"not sent, yet there": {func(h *ledgertest.History) { nth(h, propose, nil, 4).Err = orbit.ErrUnavailable }, "the history has it, at 5"},
		"no receipt":          {func(h *ledgertest.History) { nth(h, propose, orbit.ErrConflict, 0).Err = orbit.ErrConflict }, "none that a ledger can give"},
		"no outcome":          {func(h *ledgertest.History) { nth(h, propose, orbit.ErrConflict, 0).Err = context.Canceled }, "none that a ledger can give"},
		"wrongly refused": {func(h *ledgertest.History) {
			nth(h, propose, orbit.ErrConflict, 0).Proposal.Do = []orbit.Commitment{orbit.Mark{Key: "x", Value: "v"}}
		}, "and wrongly"},
		"refused by mistake":   {func(h *ledgertest.History) { receipt(nth(h, propose, orbit.ErrConflict, 0)).Kind = orbit.ErrInfeasible }, "and wrongly"},
		"called malformed":     {func(h *ledgertest.History) { receipt(nth(h, propose, orbit.ErrConflict, 0)).Kind = orbit.ErrInvalid }, "and wrongly"},
		"short of another":     {func(h *ledgertest.History) { receipt(nth(h, propose, orbit.ErrConflict, 0)).Free++ }, "and wrongly"},
		"judged in the future": {func(h *ledgertest.History) { receipt(nth(h, propose, orbit.ErrConflict, 0)).At = 77 }, "which never was"},
		"judged in the past":   {func(h *ledgertest.History) { receipt(nth(h, propose, orbit.ErrInfeasible, 0)).At = 2 }, "stale: Propose"},
		"taken by none":        {func(h *ledgertest.History) { receipt(nth(h, propose, orbit.ErrConflict, 0)).TakenBy[0]++ }, "it says; the history has that at 0"},
		"taken long ago":       {func(h *ledgertest.History) { receipt(nth(h, propose, orbit.ErrConflict, 0)).TakenAt = 2 }, "its view was at 2"},
		"a stale snapshot":     {func(h *ledgertest.History) { nth(h, ledgertest.Snapshot, nil, 1).Revision = 3 }, "stale: Snapshot"},
		"a false snapshot": {func(h *ledgertest.History) {
			c := nth(h, ledgertest.Snapshot, nil, 1)
			c.State = h.Base
			c.Revision = 2
		}, "than a snapshot"},
		"a wait for nothing": {func(h *ledgertest.History) { nth(h, ledgertest.Wait, nil, 0).After = 3 }, "Wait for a revision after 3"},
		"a stale wait":       {func(h *ledgertest.History) { c := nth(h, ledgertest.Wait, nil, 0); c.After, c.Revision = 0, 2 }, "stale: Wait"},
		"stale changes":      {func(h *ledgertest.History) { nth(h, ledgertest.Changes, nil, 0).Changes = nil }, "stale: Changes"},
		"changes with a hole": {func(h *ledgertest.History) {
			c := nth(h, ledgertest.Changes, nil, 0)
			c.Changes = slices.Delete(slices.Clone(c.Changes), 0, 1)
		}, "the history has 2 there"},
		"an old commit": {func(h *ledgertest.History) { c := nth(h, propose, nil, 1); c.Start, c.End = 100, 101 }, "stale: proposal"},
	} {
		t.Run(name, func(t *testing.T) {
			h := story(t)
			h.Changes, h.Calls = slices.Clone(h.Changes), slices.Clone(h.Calls)
			lie.tell(&h)
			require.ErrorContains(t, h.Check(), lie.says)
		})
	}
}

// twice appends the last commit once more.
func twice(h *ledgertest.History) {
	last := h.Changes[len(h.Changes)-1]
	last.Revision++
	h.Changes = append(h.Changes, last)
}

// What may be so is no lie: an unknown outcome, either way; a proposal that was sent again; others' commits, where
// there are others; a history of which the beginning is not asked for.
func TestWhatMayBe(t *testing.T) {
	h := story(t)
	nth(&h, ledgertest.Propose, nil, 3).Err = orbit.ErrUnknown
	nth(&h, ledgertest.Propose, orbit.ErrConflict, 0).Err = orbit.ErrUnknown
	require.NoError(t, h.Check())

	h = story(t)
	again := *nth(&h, ledgertest.Propose, nil, 1)
	again.Start, again.End = 100, 101
	h.Calls = append(h.Calls, again)
	require.NoError(t, h.Check())

	h = story(t)
	h.Calls, h.Shared = nil, true
	require.NoError(t, h.Check())
	h.Shared = false
	require.Error(t, h.Check())
}

// A recorder begins wherever the ledger is, and follows a ledger whose history is short.
func TestFollow(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 10}}
	for range 2 {
		r, err := ledgertest.NewRecorder(bg, l)
		require.NoError(t, err)
		h := r.Handle(l)
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error)
		go func() { done <- r.Follow(ctx) }()
		for i := range 30 {
			rev, err := h.Propose(bg, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: string(rune('a' + i))}}})
			require.NoError(t, err)
			for orbit.Revision(r.Reached()) < rev {
				_, err = l.Wait(bg, 0)
				require.NoError(t, err)
			}
		}
		cancel()
		require.NoError(t, <-done)
		history, err := r.History(bg)
		require.NoError(t, err)
		require.Len(t, history.Changes, 30)
		require.NoError(t, history.Check())
	}
}

// Without following, it says that the history is gone.
func TestHistoryIsGone(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 10}}
	r, err := ledgertest.NewRecorder(bg, l)
	require.NoError(t, err)
	for range 20 {
		_, err := r.Handle(l).Propose(bg, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}})
		require.NoError(t, err)
	}
	_, err = r.History(bg)
	require.ErrorIs(t, err, orbit.ErrCompacted)
	require.ErrorIs(t, r.Follow(bg), orbit.ErrCompacted)
}

// Proposals that share a revision have states of their own; a rejection may have been right at the first of them.
func TestRightInBetween(t *testing.T) {
	base, err := (&orbit.MemoryLedger{}).Snapshot(bg)
	require.NoError(t, err)
	set := func(seq int, key string) orbit.Change {
		return orbit.Change{Revision: 1, Seq: seq, ID: orbit.ProposalID{byte(seq + 1)}, Do: orbit.Mark{Key: key, Value: "v"}}
	}
	changes := []orbit.Change{set(0, "first"), set(1, "second")}
	between, err := base.Apply(changes[:1])
	require.NoError(t, err)
	bet := orbit.Proposal{ID: orbit.ProposalID{9}, If: []orbit.Precondition{orbit.MarkAt{Key: "second", Revision: 1}}, Do: []orbit.Commitment{orbit.Mark{Key: "k"}}}
	refused := ledgertest.Call{Start: 1, End: 2, Proposal: bet, Err: between.Check(bet)}
	require.Error(t, refused.Err)
	h := ledgertest.History{Base: base, Changes: changes, Calls: []ledgertest.Call{refused}, Shared: true}
	require.NoError(t, h.Check())
	bet.If = []orbit.Precondition{orbit.MarkAt{Key: "first", Revision: 1}}
	h.Calls[0].Proposal = bet // holds at both
	require.ErrorContains(t, h.Check(), "and wrongly")
}
