package whatif_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/whatif"
)

// A defragmentation is shown before it is made: moves, gain and cost; and then made just so, or not at all if what it rests
// on has changed.
func TestDefragIsShownBefore(t *testing.T) {
	for _, changes := range []bool{false, true} {
		l := &orbit.MemoryLedger{}
		for i := range 4 {
			id := fmt.Sprint("n", i)
			s := movable(int64(2 + i))
			s.Group = "web"
			commit(t, l, put(id, 16, nil), submitted("c"+id, s), orbit.Place{Capsule: orbit.CapsuleID("c" + id), Node: orbit.NodeID(id)})
		}
		commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "web", Group: "web", Expected: 4, Missing: 1}}, submitted("late", wants(1, 0)))
		before := snapshot(t, l)
		var shown nav.DefragRound
		trial := &whatif.Trial{Step: func(ctx context.Context, fork orbit.Ledger) error {
			round := (&nav.Defrag{Ledger: fork, Goal: nav.EmptyNodes{Cordon: true}, MinStay: 1}).Pass(ctx)
			shown.Gain, shown.Work, shown.Steps = shown.Gain+round.Gain, shown.Work+round.Work, shown.Steps+round.Steps
			shown.Moved = append(shown.Moved, round.Moved...)
			return nil
		}}
		report, err := trial.Plan(t.Context(), before)
		require.NoError(t, err)
		require.Equal(t, before.Revision(), snapshot(t, l).Revision(), "nothing has happened")
		require.Len(t, report.Moved, 3)
		require.Len(t, shown.Moved, 3)
		require.Equal(t, 3.0, shown.Gain)
		cost, work := report.Disruption(), 0.0
		for _, m := range report.Moved {
			work += float64(before.Capsule(m.Capsule).Spec.Envelope.Reservation[orbit.CPU]) / 16
		}
		require.Equal(t, whatif.Disruption{Moves: 3, Work: work, Budgets: []whatif.BudgetUse{{ID: "web", Moved: 3, Most: 1, Spare: 1}}}, cost)
		require.InDelta(t, shown.Work, cost.Work, 1e-9)
		if changes {
			commit(t, l, orbit.Place{Capsule: "late", Node: "n0"})
			done, err := report.Commit(t.Context(), l)
			require.ErrorIs(t, err, orbit.ErrConflict)
			require.Zero(t, done, "n0 is the first to be emptied")
			continue
		}
		done, err := report.Commit(t.Context(), l)
		require.NoError(t, err)
		require.Equal(t, 3, done)
		now := snapshot(t, l)
		for c := range report.After.Capsules() {
			require.Equal(t, c.Node, now.Capsule(c.ID).Node)
		}
		changed, err := l.Changes(t.Context(), before.Revision())
		require.NoError(t, err)
		sent := 0
		for _, p := range report.Proposals() {
			sent += len(p.Do)
		}
		require.Len(t, changed, sent, "what was shown and nothing else")
	}
}
