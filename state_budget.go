package orbit

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// This file has how a state counts the healthy members of groups and modules that have budgets ([Budget]).

// coverage returns the coverage of a group or a module, nil if it has no budget.
func (s *State) coverage(of memberSet) *coverage {
	c, _ := s.covered.Get(&coverage{of: of})
	return c
}

// isCovered reports whether capsules of the spec are covered by a budget.
func (s *State) isCovered(spec *Spec) bool {
	if s.covered.Len() > 0 {
		for of := range spec.memberships {
			if s.coverage(of) != nil {
				return true
			}
		}
	}
	return false
}

// health returns the health of a capsule: zero if it is not placed.
func (s *State) health(c *Capsule) health {
	if !c.Placed() {
		return health{}
	}
	return s.Node(c.Node).Node.health(c)
}

// healthy counts the healthy members of a group or a module. If a budget covers them, the count is at hand. Otherwise
// healthy visits, for a group, its nodes and all capsules on those nodes that confirm or have loans; and for a module,
// every capsule.
func (s *State) healthy(of memberSet) (sum health) {
	if c := s.coverage(of); c != nil {
		return c.healthy
	}
	if of.module {
		for c := range s.Capsules() {
			if c.Spec.isMember(of) {
				sum = sum.plus(s.health(c), 1)
			}
		}
		return sum
	}
	for n, count := range s.GroupNodes(of.name) {
		if !n.Node.Confirms && n.loans == nil {
			sum = sum.plus(n.Node.health(&Capsule{}), count)
			continue
		}
		for c := range s.On(n.Node.ID) {
			if c.Spec.isMember(of) {
				sum = sum.plus(n.Node.health(c), 1)
			}
		}
	}
	return sum
}

// countHealthy updates the counts of healthy members for a capsule whose health changes from before to after.
func (s *State) countHealthy(member *Spec, before, after health) {
	if before == after {
		return
	}
	for of := range member.memberships {
		if c := s.coverage(of); c != nil {
			now := *c
			now.healthy = c.healthy.plus(before, -1).plus(after, 1)
			if after.below(before) {
				now.left = s.rev
			}
			s.covered.ReplaceOrInsert(&now)
		}
	}
}

// countModules counts the healthy members of all these modules in one pass over the capsules, and returns the counts.
func (s *State) countModules(modules map[string]*health) map[string]*health {
	if len(modules) == 0 {
		return nil
	}
	var last *Spec
	var sum *health
	for c := range s.Capsules() {
		if c.Spec != last {
			last, sum = c.Spec, modules[c.Spec.Module]
		}
		if sum != nil {
			*sum = sum.plus(s.health(c), 1)
		}
	}
	return modules
}

// cover adds a budget to the coverage of its group or module, or makes the coverage if this is the first budget.
// Modules has the counts of modules that had no budget yet. Left becomes the coverage's left if cover makes it.
func (s *State) cover(b *budgetRecord, left Revision, modules map[string]*health) {
	of := b.members()
	c := s.coverage(of)
	switch {
	case c != nil:
		known := *c
		c = &known
	case of.module:
		c = &coverage{of: of, healthy: *modules[of.name], left: left}
	default:
		c = &coverage{of: of, healthy: s.healthy(of), left: left}
	}
	c.budgets = append(leaveOut(c.budgets, b.ID), b)
	slices.SortFunc(c.budgets, func(a, b *budgetRecord) int { return cmp.Compare(a.ID, b.ID) })
	s.covered.ReplaceOrInsert(c)
}

// uncover removes a budget from the coverage of its group or module, and the coverage with the last budget.
func (s *State) uncover(b *budgetRecord) {
	c := *s.coverage(b.members())
	if c.budgets = leaveOut(c.budgets, b.ID); len(c.budgets) == 0 {
		s.covered.Delete(&c)
		return
	}
	s.covered.ReplaceOrInsert(&c)
}

// Budget returns the state of the budget with this id, and whether there is one.
func (s *State) Budget(id BudgetID) (BudgetState, bool) {
	b, ok := s.budgets.Get(&budgetRecord{Budget: Budget{ID: id}})
	if !ok {
		return BudgetState{}, false
	}
	return b.standing(s), true
}

// Budgets yields all budgets, ordered by id.
func (s *State) Budgets() iter.Seq[BudgetState] {
	return func(yield func(BudgetState) bool) {
		s.budgets.Ascend(func(b *budgetRecord) bool { return yield(b.standing(s)) })
	}
}

// BudgetsOf yields the budgets that cover capsules of the spec.
func (s *State) BudgetsOf(spec *Spec) iter.Seq[BudgetState] {
	return func(yield func(BudgetState) bool) {
		if spec == nil {
			return
		}
		for of := range spec.memberships {
			c := s.coverage(of)
			for i := 0; c != nil && i < len(c.budgets); i++ {
				if !yield(c.budgets[i].standing(s)) {
					return
				}
			}
		}
	}
}

// wishes reports whether a step is a wish to take c off its node, and the priority of the evictor. Nil: there is no
// evictor, or it is not in the state.
func (s *State) wishes(c *Capsule, do Commitment) (evictor *int32, is bool) {
	w, ok := do.(interface {
		wish(s *State, of *Capsule) bool
	})
	if !ok || !w.wish(s, c) {
		return nil, false
	}
	if do, ok := do.(Evict); ok && (do.For != "" || do.ForGang != "") {
		if priority := s.evictor(&do); priority < math.MaxInt32 { // else the plan submits it, and its priority is not looked up
			return &priority, true
		}
	}
	return nil, true
}

// misses reports whether the members of a capsule's groups would miss it: it is healthy, and does not merely wait to begin.
func (s *State) misses(c *Capsule) bool {
	return s.health(c).placed > 0 && !c.waitsToBegin(s.Node(c.Node).Node)
}

// leaveOut returns a copy of the list without the budget that has this id.
func leaveOut(list []*budgetRecord, id BudgetID) []*budgetRecord {
	return slices.DeleteFunc(slices.Clone(list), func(b *budgetRecord) bool { return b.ID == id })
}

// standing returns the budget with the count of its healthy members.
func (b *budgetRecord) standing(s *State) BudgetState {
	return BudgetState{b.Budget, b.changed, b.counts(s.coverage(b.members()).healthy)}
}
