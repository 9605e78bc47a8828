package orbit

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twoSteps is a state and a plan of two proposals, where the ledger takes the second one only after the first one.
type twoSteps struct {
	nodes []Node
	specs map[CapsuleID]*Spec
	runs  map[CapsuleID]NodeID
	waits []CapsuleID
	plan  func(s *State) [2][]Commitment
}

func twoStepPlans() map[string]twoSteps {
	even := wants(1)
	even.Group, even.Even = "w", []Even{{Group: "w", Level: NodeKey}}
	noisy, quiet := wants(1), wants(1)
	noisy.Group, noisy.Movable = "noisy", true
	quiet.Apart = []Apart{{Group: "noisy", Level: NodeKey}}
	large := wants(10)
	moves := func(s *State) []Commitment {
		return []Commitment{Evict{Capsule: "a", From: "n", Since: s.Capsule("a").PlacedAt}, Place{Capsule: "a", Node: "m"}}
	}
	two := []Node{machine("n", 10), machine("m", 10)}
	return map[string]twoSteps{
		"by rule Even": {two, map[CapsuleID]*Spec{"a": even, "b": even, "c": even}, map[CapsuleID]NodeID{"a": "n"}, []CapsuleID{"b", "c"},
			func(*State) [2][]Commitment {
				return [2][]Commitment{{Place{Capsule: "b", Node: "m"}}, {Place{Capsule: "c", Node: "n"}}}
			}},
		"by rule Apart": {two, map[CapsuleID]*Spec{"a": noisy, "c": quiet}, map[CapsuleID]NodeID{"a": "n"}, []CapsuleID{"c"},
			func(s *State) [2][]Commitment { return [2][]Commitment{moves(s), {Place{Capsule: "c", Node: "n"}}} }},
		"for want of room": {two, map[CapsuleID]*Spec{"a": noisy, "c": large}, map[CapsuleID]NodeID{"a": "n"}, []CapsuleID{"c"},
			func(s *State) [2][]Commitment { return [2][]Commitment{moves(s), {Place{Capsule: "c", Node: "n"}}} }},
	}
}

// build returns a ledger with the state, and an engine that plans on it once, through a ledger that answers proposals as
// the function says.
func (r *twoSteps) build(t *testing.T, propose func(l Ledger, p Proposal) (Revision, error)) (*MemoryLedger, *Engine) {
	l := &MemoryLedger{}
	for _, n := range r.nodes {
		commit(t, l, PutNode{n})
	}
	for id, spec := range r.specs {
		commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: spec})
	}
	for id, n := range r.runs {
		commit(t, l, Place{Capsule: id, Node: n})
	}
	return l, &Engine{OnRound: func(Round) {}, Ledger: &bent{Ledger: l, propose: func(_ context.Context, p Proposal) (Revision, error) { return propose(l, p) }},
		Navigator: once(func(_ context.Context, v *View, _ []*Capsule) (plan Plan, _ error) {
			for _, do := range r.plan(v.State()) {
				plan.Proposals = append(plan.Proposals, Proposal{Do: do})
			}
			return plan, nil
		})}
}

// A proposal that the ledger takes only after an earlier one of its plan, which was not committed or perhaps not, is no
// mistake of the navigator.
func TestRefusedForWantOfAnEarlierProposal(t *testing.T) {
	for kind, r := range twoStepPlans() {
		for name, first := range map[string]error{"unknown": ErrUnknown, "unavailable": ErrUnavailable, "conflict": &Rejection{Kind: ErrConflict}} {
			t.Run(fmt.Sprint(kind, ", ", name), func(t *testing.T) {
				calls := 0
				l, e := r.build(t, func(l Ledger, p Proposal) (Revision, error) {
					if calls++; calls == 1 {
						return 0, first
					}
					return l.Propose(t.Context(), p)
				})
				round := e.Pass(t.Context())
				require.Len(t, round.Settled, 2)
				assert.Zero(t, round.Infeasible)
				var receipt *Rejection
				require.ErrorAs(t, round.Settled[1].Outcome.Err, &receipt)
				require.ErrorIs(t, receipt, ErrConflict)
				assert.ErrorContains(t, receipt, "an earlier proposal of the plan")
				assert.Len(t, round.Errors, round.Unknown+round.Failed)
				parts, _ := e.view.Parts()
				assert.Equal(t, 1+btoi(name == "conflict"), parts, "it has not lost to another engine")
				for range 4 { // the navigator of later passes is greedy, and moves nothing
					e.Pass(t.Context())
				}
				assert.NoError(t, snapshotOf(t, l).Verify())
			})
		}
	}
}

// A proposal that does not hold even after all earlier proposals of its plan is a mistake, also if the outcome of one of them is
// unknown.
func TestMistakeAfterAnUnknownOutcomeIsCounted(t *testing.T) {
	r := twoStepPlans()["by rule Even"]
	r.plan = func(*State) [2][]Commitment {
		return [2][]Commitment{{Place{Capsule: "b", Node: "m"}}, {Place{Capsule: "c", Node: "gone"}}}
	}
	calls := 0
	_, e := r.build(t, func(l Ledger, p Proposal) (Revision, error) {
		if calls++; calls == 1 {
			return 0, ErrUnknown
		}
		return l.Propose(t.Context(), p)
	})
	round := e.Pass(t.Context())
	assert.Equal(t, [2]int{1, 0}, [2]int{round.Infeasible, round.Conflicts})
}
