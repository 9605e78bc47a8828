package orbit

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// BudgetID names a budget.
type BudgetID string

// Budget bounds how much of a group or a module may be missing because somebody wants that. A member is healthy if it is
// placed on a node that is not Lost, by another proposal than the one that is judged. A wish takes a member off its node: an
// [Evict] to make way, one to be moved, a [Release] back to pending from a cordoned node. After a proposal with one at least
// Expected less Missing members are healthy, or it is refused. Losses and ends are never refused, and count as missing; so do
// members that wait. Whoever makes a group smaller releases members for good, and puts the budget with a smaller Expected in
// the same proposal; an Expected that is too large only blocks wishes.
//
// A member that is covered by a budget may be moved, as one that is [Spec.Movable].
//
// A ledger counts placements; so the bound holds for each commit by itself: what one commit has moved is healthy for the next.
type Budget struct {
	// ID identifies the budget.
	ID BudgetID `json:"id"`
	// Group is the group that is covered ([Spec.MemberOf]); empty if Module is set.
	Group string `json:"group,omitempty"`
	// Module is the module that is covered ([Spec.Module]); empty if Group is set.
	Module string `json:"module,omitempty"`
	// Expected is how many members there should be.
	Expected int `json:"expected"`
	// Missing is how many of them may be missing; 0 if MissingPercent is set.
	Missing int `json:"missing,omitempty"`
	// MissingPercent is how much of Expected may be missing, in percent, rounded up to whole members; 0 if Missing is set.
	MissingPercent int `json:"missingPercent,omitempty"`
	// Above is the lowest priority for which members are evicted whatever the budget says; 0: none. What is moved or drained has
	// no priority.
	Above int32 `json:"above,omitempty"`
}

// PutBudget makes a budget, or replaces the one with the same id. Wishes of the same proposal keep to both, the one before and
// the one after.
type PutBudget struct {
	// Budget is the budget.
	Budget Budget `json:"budget"`
}

// RemoveBudget ends a budget. Wishes of the same proposal keep to it still.
type RemoveBudget struct {
	// Budget is the budget to end.
	Budget BudgetID `json:"budget"`
}

func (PutBudget) commitment()    {}
func (RemoveBudget) commitment() {}

// BudgetState is a budget and how it stands, at one revision.
type BudgetState struct {
	// Budget is the budget as it was put.
	Budget Budget
	// Changed is the revision at which it was put.
	Changed Revision
	// Healthy is how many members are placed on nodes that are not Lost.
	Healthy int
}

// Spare returns how many members one proposal may take away; negative if so many are too few already.
func (b *BudgetState) Spare() int { return b.Healthy - b.Budget.needed() }

// mostExpected keeps the arithmetic of budgets from wrapping.
const mostExpected = 1 << 24

// needed returns how many members have to be healthy after a wish.
func (b *Budget) needed() int {
	missing := b.Missing + (b.Expected*b.MissingPercent+99)/100
	return max(0, b.Expected-missing)
}

// passes reports whether an eviction for a priority is taken whatever the budget says; nil: it is for nobody.
func (b *Budget) passes(priority *int32) bool {
	return priority != nil && b.Above != 0 && *priority >= b.Above
}

// members returns what the budget covers.
func (b *Budget) members() memberSet {
	if b.Module != "" {
		return memberSet{true, b.Module}
	}
	return memberSet{false, b.Group}
}

// faults says everything that is wrong with b, except with its names.
func (b *Budget) faults() (out []string) {
	if (b.Group == "") == (b.Module == "") {
		out = append(out, fmt.Sprintf("budget %q covers group %q and module %q; it covers exactly one", b.ID, b.Group, b.Module))
	}
	if b.Expected < 0 || b.Expected > mostExpected || b.Missing < 0 || b.Missing > mostExpected {
		out = append(out, fmt.Sprintf("budget %q: %d missing of %d expected; both must be from 0 to %d", b.ID, b.Missing, b.Expected, mostExpected))
	}
	if b.MissingPercent < 0 || b.MissingPercent > 100 || b.MissingPercent != 0 && b.Missing != 0 {
		out = append(out, fmt.Sprintf("budget %q: %d percent missing beside %d; it must be from 0 to 100, and only one of them set", b.ID, b.MissingPercent, b.Missing))
	}
	return out
}

// refusal says by how much a wish leaves too few.
func (b *Budget) refusal(healthy int) string {
	return fmt.Sprintf("budget %q: %d healthy of %d after this, %d needed", b.ID, healthy, b.Expected, b.needed())
}

// memberSet names a group or, if module is set, a module.
type memberSet struct {
	module bool
	name   string
}

// less orders groups and modules.
func (m memberSet) less(o memberSet) bool {
	if m.module != o.module {
		return o.module
	}
	return m.name < o.name
}

// String returns a name by which groups and modules cannot be taken for each other.
func (m memberSet) String() string {
	if m.module {
		return "module/" + m.name
	}
	return "group/" + m.name
}

// memberships yields the groups and the module that capsules of the spec are members of.
func (s *Spec) memberships(yield func(memberSet) bool) {
	for group := range s.MemberOf {
		if !yield(memberSet{false, group}) {
			return
		}
	}
	if s.Module != "" {
		yield(memberSet{true, s.Module})
	}
}

// isMember reports whether capsules of the spec are members.
func (s *Spec) isMember(of memberSet) bool {
	if of.module {
		return s.Module == of.name
	}
	return s.IsIn(of.name)
}

// budgetRecord is a budget in its table. It is never written to.
type budgetRecord struct {
	Budget
	changed Revision
}

// dumpBudget is a budget in a dump.
type dumpBudget struct {
	Budget
	Changed Revision `json:"changed"`
	Left    Revision `json:"left"`
}

// coverage is what is kept of a group or a module while it has budgets. It is never written to.
type coverage struct {
	of memberSet
	// Ordered by id.
	budgets []*budgetRecord
	// Members that are placed on nodes which are not Lost.
	healthy int
	// When one was last taken off its node, or the node was lost, or the first budget was put.
	left Revision
}

// coverage returns what is kept of a group or a module, nil if it has no budget.
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

// isHealthy reports whether a capsule is placed on a node that is not Lost.
func (s *State) isHealthy(c *Capsule) bool {
	return c.Placed() && s.Node(c.Node).Node.State != Lost
}

// healthy counts the members of a group or a module that are placed on nodes which are not Lost. Where there is no budget, a
// module costs a look at every record.
func (s *State) healthy(of memberSet) (n int) {
	if c := s.coverage(of); c != nil {
		return c.healthy
	}
	if !of.module {
		for node, count := range s.GroupNodes(of.name) {
			n += count * btoi(node.Node.State != Lost)
		}
		return n
	}
	for c := range s.Capsules() {
		n += btoi(c.Spec.isMember(of) && s.isHealthy(c))
	}
	return n
}

// countHealthy keeps the number of healthy members where there are budgets, for a capsule that comes to its node or leaves it.
func (s *State) countHealthy(member *Capsule, by int) {
	if s.covered.Len() == 0 || !s.isHealthy(member) {
		return
	}
	for of := range member.Spec.memberships {
		if c := s.coverage(of); c != nil {
			now := *c
			if now.healthy += by; by < 0 {
				now.left = s.rev
			}
			s.covered.ReplaceOrInsert(&now)
		}
	}
}

// cover files a budget with what it covers. Left is when a member of that was last taken off its node, as far as is known, if
// there was no budget before.
func (s *State) cover(b *budgetRecord, left Revision) {
	of := b.members()
	c := &coverage{of: of, healthy: s.healthy(of), left: left}
	if known := s.coverage(of); known != nil {
		*c = *known
	}
	c.budgets = append(leaveOut(c.budgets, b.ID), b)
	slices.SortFunc(c.budgets, func(a, b *budgetRecord) int { return cmp.Compare(a.ID, b.ID) })
	s.covered.ReplaceOrInsert(c)
}

// uncover undoes cover.
func (s *State) uncover(b *budgetRecord) {
	c := *s.coverage(b.members())
	if c.budgets = leaveOut(c.budgets, b.ID); len(c.budgets) == 0 {
		s.covered.Delete(&c)
		return
	}
	s.covered.ReplaceOrInsert(&c)
}

// leaveOut returns a copy of a list without the budget with an id.
func leaveOut(list []*budgetRecord, id BudgetID) []*budgetRecord {
	return slices.DeleteFunc(slices.Clone(list), func(b *budgetRecord) bool { return b.ID == id })
}

// Budget returns the budget with this id and how it stands, and whether there is one.
func (s *State) Budget(id BudgetID) (BudgetState, bool) {
	b, ok := s.budgets.Get(&budgetRecord{Budget: Budget{ID: id}})
	if !ok {
		return BudgetState{}, false
	}
	return b.standing(s), true
}

func (b *budgetRecord) standing(s *State) BudgetState {
	return BudgetState{b.Budget, b.changed, s.coverage(b.members()).healthy}
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
