package orbit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A round tells of each proposal that the pass has sent, in order, and what became of it, with the state that it was planned on:
// but only to an engine with an OnRound, because it costs memory.
func TestRoundTellsWhatWasSent(t *testing.T) {
	for _, listened := range []bool{true, false} {
		for _, batches := range []bool{true, false} {
			t.Run(fmt.Sprintf("listened %v, batches %v", listened, batches), func(t *testing.T) {
				l := &MemoryLedger{}
				commit(t, l, PutNode{machine("n", 1)}, PutNode{machine("m", 1)}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: wants(1)})
				e := Engine{Ledger: l, Navigator: planFunc(func(_ context.Context, view *View, pending []*Capsule) (Plan, error) {
					commit(t, l, Submit{IDs: []CapsuleID{"rival"}, Spec: wants(1), Owner: "other"}, Place{Capsule: "rival", Node: "m"})
					return Plan{Proposals: []Proposal{
						{Do: []Commitment{Place{Capsule: "a", Node: "n"}}},
						{Do: []Commitment{Place{Capsule: "b", Node: "m"}}, If: []Precondition{NodeFreeOf{Node: "m", AtLeast: Resources{CPU: 1}}}},
						{Do: []Commitment{Place{Capsule: "ghost", Node: "n"}}},
						{}, // refused for its form
					}}, nil
				})}
				if !batches {
					e.Ledger = &bent{Ledger: l, propose: l.Propose}
				}
				if listened {
					e.OnRound = func(Round) {}
				}
				began := time.Now()
				round := e.Pass(t.Context())
				assert.Equal(t, []int{4, 1, 1, 1, 1}, []int{round.Proposed, round.Committed, round.Conflicts, round.Infeasible, round.Invalid})
				assert.False(t, round.Start.Before(began) || round.Start.After(time.Now()))
				if !listened {
					assert.Nil(t, round.Settled)
					assert.Nil(t, round.State)
					return
				}
				require.Len(t, round.Settled, 4)
				assert.Equal(t, round.View, round.State.Revision())
				assert.True(t, round.State.Capsule("a").Pending(), "the state is the one that was planned on")
				assert.Equal(t, []Commitment{Place{Capsule: "a", Node: "n", At: round.Settled[0].Proposal.Do[0].(Place).At}}, round.Settled[0].Proposal.Do)
				assert.Greater(t, round.Settled[0].Outcome.Revision, round.View)
				s, err := l.Snapshot(t.Context())
				require.NoError(t, err)
				assert.Equal(t, s.Capsule("a").PlacedBy, round.Settled[0].Proposal.ID)
				var lost *Rejection
				require.ErrorAs(t, round.Settled[1].Outcome.Err, &lost)
				assert.Equal(t, NodeFreeOf{Node: "m", AtLeast: Resources{CPU: 1}}, lost.Bet)
				assert.Equal(t, s.Capsule("rival").PlacedBy, lost.TakenBy)
				assert.ErrorIs(t, round.Settled[2].Outcome.Err, ErrInfeasible)
				assert.Equal(t, round.Settled[0].Proposal.ID[:8], round.Settled[2].Proposal.ID[:8], "the engine is known by its ids")
				assert.ErrorIs(t, round.Settled[3].Outcome.Err, ErrInvalid)
			})
		}
	}
}

// The release of a hold that another engine has released first is no conflict: neither in the counts nor in what was sent.
func TestRoundLeavesOutEndsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Hold{ID: "h", Node: "n", Room: Resources{CPU: 1}, Ends: time.Now()},
			Hold{ID: "mine", Node: "n", Room: Resources{CPU: 1}, Ends: time.Now()})
		e := Engine{Navigator: &greedy{}, OnRound: func(Round) {}, Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
			if p.Do[0] == (Release{Hold: "h"}) {
				commit(t, l, Release{Hold: "h"})
			}
			return l.Propose(ctx, p)
		}}}
		round := e.Pass(t.Context())
		assert.Equal(t, []int{1, 1, 0}, []int{round.Proposed, round.Committed, round.Conflicts})
		require.Len(t, round.Settled, 1)
		assert.Equal(t, []Commitment{Release{Hold: "mine"}}, round.Settled[0].Proposal.Do)
	})
}

// What was sent again because its outcome was unknown is told of in each of the passes.
func TestRoundTellsWhatWasSentAgain(t *testing.T) {
	l, lost := &MemoryLedger{}, true
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	e := Engine{Navigator: &greedy{}, OnRound: func(Round) {}, Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		rev, err := l.Propose(ctx, p)
		if lost {
			lost = false
			return 0, errors.Join(ErrUnknown, err)
		}
		return rev, err
	}}}
	first, second := e.Pass(t.Context()), e.Pass(t.Context())
	require.Len(t, first.Settled, 1)
	require.Len(t, second.Settled, 1)
	assert.ErrorIs(t, first.Settled[0].Outcome.Err, ErrUnknown)
	assert.NoError(t, second.Settled[0].Outcome.Err)
	assert.Equal(t, first.Settled[0].Proposal, second.Settled[0].Proposal)
}
