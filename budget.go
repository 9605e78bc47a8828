package orbit

import (
	"fmt"
)

// BudgetID names a budget.
type BudgetID string

// Budget bounds how many members of a group or a module may be missing at once through wishes. A wish is a commitment
// that takes a member off its node though it could stay: an [Evict] to make way, an Evict to move it, or a [Release]
// back to pending from a cordoned node. A proposal with a wish is refused if it leaves fewer than Expected minus Missing
// members healthy: placed on a node that is not Lost, and ready there. On a node that confirms ([Node.Confirms]) a member
// is ready while its agent says so ([Confirm]), so a member that was moved is missing until it serves; on any other node it
// is ready as soon as it is placed, so the bound holds for each commit by itself.
//
// A budget never refuses the loss of a node or the release of a member for good, but these members are missing too, and
// so are members that wait. To make a group smaller, release members for good and put the budget with a smaller
// Expected in the same proposal. A member that a budget covers may be moved, as if it were [Spec.Movable],
// and work of any priority may ask for that: it restarts elsewhere, and no more than Missing of them are missing. To forbid it,
// set nav.Preempting.Moves to -1, as nav.Evicting does. docs/commitments.md has all conditions.
type Budget struct {
	// ID identifies the budget.
	ID BudgetID `json:"id"`
	// Group is the group that the budget covers ([Spec.MemberOf]); empty if Module is set.
	Group string `json:"group,omitempty"`
	// Module is the module that the budget covers ([Spec.Module]); empty if Group is set.
	Module string `json:"module,omitempty"`
	// Expected is how many members should be healthy when none is missing.
	Expected int `json:"expected"`
	// Missing is how many of them may be missing; 0 if MissingPercent is set.
	Missing int `json:"missing,omitempty"`
	// MissingPercent is how much of Expected may be missing, in percent, rounded up to whole members; 0 if Missing is
	// set.
	MissingPercent int `json:"missingPercent,omitempty"`
	// IgnoreReady counts members as healthy when they are placed, whether they are ready or not.
	IgnoreReady bool `json:"ignoreReady,omitempty"`
	// FreeUnready lets a wish pass that touches no healthy member, however many are healthy. Set it where members that
	// never become ready would keep a node from being drained for ever; without it, a member that is about to become
	// ready is kept like the others.
	FreeUnready bool `json:"freeUnready,omitempty"`
	// Above is the lowest priority that may evict members although the budget forbids it; 0: no priority may. Moves and
	// releases are made for no priority, so the budget always holds for them.
	Above int32 `json:"above,omitempty"`
}

// BudgetState is a budget and how many of its members are healthy, at one revision.
type BudgetState struct {
	// Budget is the budget as the last PutBudget gave it.
	Budget Budget
	// Changed is the revision at which it was put.
	Changed Revision
	// Healthy is how many members are placed on nodes that are not Lost, and ready unless the budget says IgnoreReady.
	Healthy int
}

// Spare returns how many healthy members wishes of one proposal may take away. A negative number says how many are
// lacking already.
func (b *BudgetState) Spare() int { return b.Healthy - b.Budget.needed() }

// mostExpected bounds the numbers of a budget, so that no computation with them overflows.
const mostExpected = 1 << 24

// needed returns how many members have to be healthy after a wish.
func (b *Budget) needed() int {
	missing := b.Missing + (b.Expected*b.MissingPercent+99)/100
	return max(0, b.Expected-missing)
}

// passes reports whether an eviction for work of this priority is allowed although the budget forbids it. Nil: the wish
// is for no other work, or for work whose priority is not known.
func (b *Budget) passes(priority *int32) bool {
	return priority != nil && b.Above != 0 && *priority >= b.Above
}

// binds reports whether a wish must keep the budget. Priority is that of the work for which the wish is made, as for passes; was is the
// health of the capsule that it takes off its node.
func (b *Budget) binds(priority *int32, was health) bool {
	return !b.passes(priority) && (!b.FreeUnready || b.counts(was) > 0)
}

// members returns the group or the module that the budget covers.
func (b *Budget) members() memberSet {
	if b.Module != "" {
		return memberSet{true, b.Module}
	}
	return memberSet{false, b.Group}
}

// faults returns everything that is wrong with b, except with its names, which are checked elsewhere.
func (b *Budget) faults() (out []string) {
	if (b.Group == "") == (b.Module == "") {
		out = append(out, fmt.Sprintf("budget %q covers group %q and module %q; set exactly one", b.ID, b.Group, b.Module))
	}
	if b.Expected < 0 || b.Expected > mostExpected || b.Missing < 0 || b.Missing > mostExpected {
		out = append(out, fmt.Sprintf("budget %q: Missing is %d and Expected is %d; both must be from 0 to %d",
			b.ID, b.Missing, b.Expected, mostExpected))
	}
	if b.MissingPercent < 0 || b.MissingPercent > 100 || b.MissingPercent != 0 && b.Missing != 0 {
		out = append(out, fmt.Sprintf("budget %q: MissingPercent is %d, Missing is %d; one must be 0, MissingPercent from 0 to 100",
			b.ID, b.MissingPercent, b.Missing))
	}
	return out
}

// refusal returns the reason for refusing a proposal that would leave only so many members healthy.
func (b *Budget) refusal(healthy int) string {
	return fmt.Sprintf("budget %q: %d healthy of %d after this, %d needed", b.ID, healthy, b.Expected, b.needed())
}

// rejection returns the refusal of a wish that would leave only this number of members healthy. The caller completes it.
func (b *Budget) rejection(c CapsuleID, healthy int) Rejection {
	return Rejection{Capsule: c, Budget: b.ID, Want: int64(b.needed()), Free: int64(healthy), Reason: b.refusal(healthy)}
}

// memberSet is the name of a module, if module is true, or else of a group.
type memberSet struct {
	module bool
	name   string
}

// less orders groups before modules, and each by name.
func (m memberSet) less(o memberSet) bool {
	if m.module != o.module {
		return o.module
	}
	return m.name < o.name
}

// String returns a name that says whether it is that of a group or of a module, so that the two cannot be confused.
func (m memberSet) String() string {
	if m.module {
		return "module/" + m.name
	}
	return "group/" + m.name
}

// budgetRecord is a budget in the state's table of budgets. States share it, so it is replaced and never written to.
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

// health counts the capsules that are placed on nodes which are not Lost, and those of them that are ready.
type health struct{ placed, ready int }

// plus returns h with o added; with the sign -1, with o subtracted.
func (h health) plus(o health, sign int) health {
	return health{h.placed + sign*o.placed, h.ready + sign*o.ready}
}

// below reports whether one of the counts is lower than in o.
func (h health) below(o health) bool { return h.placed < o.placed || h.ready < o.ready }

// worst returns the lower number of placed and the lower number of ready members.
func worst(a, b health) health { return health{min(a.placed, b.placed), min(a.ready, b.ready)} }

// counts returns how many members are healthy by the budget.
func (b *Budget) counts(h health) int {
	if b.IgnoreReady {
		return h.placed
	}
	return h.ready
}

// coverage is what a state keeps of a group or a module that has budgets. States share it, so it is replaced and never
// written to.
type coverage struct {
	of memberSet
	// Ordered by id.
	budgets []*budgetRecord
	healthy health
	// The last revision at which the number of healthy members fell; if it has not fallen, the revision of the first
	// budget.
	left Revision
}
