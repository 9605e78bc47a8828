package whatif

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
)

// Disruption is what the moves of a trial cost.
type Disruption struct {
	// Moves is how many capsules move.
	Moves int
	// Work is the sum of the parts of their nodes that they take, so 1 is the work of a full node.
	Work float64
	// Budgets says how far the moves use the budgets that cover the capsules, by id.
	Budgets []BudgetUse
}

// BudgetUse is how far moves use one budget.
type BudgetUse struct {
	// ID is the id of the budget.
	ID orbit.BudgetID
	// Moved is how many members of the budget move in all, and Most how many in one commit.
	Moved, Most int
	// Spare is how many might move in one commit at the beginning.
	Spare int
}

// Disruption returns what the moves of the trial cost. Capsules that are evicted to make way are not moved: Displaced has them.
func (r *Report) Disruption() Disruption {
	out := Disruption{Moves: len(r.Moved)}
	for _, m := range r.Moved {
		if c := r.Before.Capsule(m.Capsule); c != nil && c.Placed() {
			out.Work += moves.Size(c, r.Before.Node(c.Node).Node)
		}
	}
	uses := map[orbit.BudgetID]*BudgetUse{}
	for i := range r.sent {
		now := map[orbit.BudgetID]int{}
		for _, do := range r.sent[i].Do {
			e, ok := do.(orbit.Evict)
			c := r.Before.Capsule(e.Capsule)
			if !ok || e.For != "" || e.ForGang != "" || c == nil {
				continue
			}
			for b := range r.Before.BudgetsOf(c.Spec) {
				u := uses[b.Budget.ID]
				if u == nil {
					u = &BudgetUse{ID: b.Budget.ID, Spare: b.Spare()}
					uses[b.Budget.ID] = u
				}
				now[u.ID]++
				u.Moved, u.Most = u.Moved+1, max(u.Most, now[u.ID])
			}
		}
	}
	for _, u := range uses {
		out.Budgets = append(out.Budgets, *u)
	}
	slices.SortFunc(out.Budgets, func(a, b BudgetUse) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
