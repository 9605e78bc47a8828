package orbit

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// An engine whose proposals lose to others shows its navigator more and more parts, and moves; one whose proposals lose no
// more shows fewer, until there is one again. Without conflicts there is one, whatever else goes wrong.
func TestViewIsDividedWhileProposalsLose(t *testing.T) {
	l := &MemoryLedger{}
	for i := range 64 {
		commit(t, l, PutNode{machine(NodeID(fmt.Sprint("n", i)), 1000)})
	}
	answer := error(nil)
	bent := &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		if answer != nil {
			return 0, answer
		}
		return l.Propose(ctx, p)
	}}
	parts, first := 0, map[NodeID]bool{}
	engine := func(name string) *Engine {
		return &Engine{Name: name, Ledger: bent, Navigator: &greedy{before: func(v *View, _ []*Capsule) {
			parts, _ = v.Parts()
			clear(first)
			for n := range v.State().Nodes() {
				require.Less(t, v.Part(n), parts)
				if v.Part(n) == 0 {
					first[n.Node.ID] = true
				}
			}
		}}}
	}
	next := 0
	pass := func(e *Engine, want int) {
		next++
		commit(t, l, Submit{IDs: []CapsuleID{CapsuleID(fmt.Sprint(e.Name, next))}, Spec: wants(1), Owner: e.Name})
		e.Pass(t.Context())
		require.Equal(t, want, parts, "pass %d", next)
	}
	a, b := engine("a"), engine("b")
	for _, answer = range []error{nil, ErrUnavailable, &Rejection{Kind: ErrInfeasible}, nil} {
		pass(a, 1)
		require.Len(t, first, 64)
	}
	answer = &Rejection{Kind: ErrConflict}
	for _, want := range []int{1, 2, 4, 8, 8} {
		pass(a, want)
		pass(b, want)
	}
	shared := 0
	for range 24 {
		pass(a, 8)
		ofA := maps.Clone(first)
		pass(b, 8)
		require.NotEqual(t, 64, len(first))
		if maps.Equal(ofA, first) {
			shared++
		}
	}
	require.Less(t, shared, 8, "each begins with another part, whichever they move to")
	answer = nil
	for _, want := range []int{8, 4, 2} {
		for range 16 {
			pass(a, want)
		}
	}
	pass(a, 1)
	require.Len(t, first, 64)
}
