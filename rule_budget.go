package orbit

// A budget says how many members of a group or module have to be healthy. The ledger refuses a voluntary disruption (a
// wish, see [Budget]) that leaves fewer, unless it is for work of priority [Budget.Above] or higher, or the budget says
// [Budget.FreeUnready] and the capsule that leaves is not healthy.

// check implements [Commitment].
func (c PutBudget) check(v *validator) Commitment {
	v.id("budget id", string(c.Budget.ID))
	v.text("group", c.Budget.Group, v.limits.IDBytes)
	v.text("module", c.Budget.Module, v.limits.IDBytes)
	v.failAll(c.Budget.faults())
	return nil
}

// execute implements [Commitment].
func (c PutBudget) execute(t *tx) (NodeID, error) {
	t.putBudget(&c.Budget)
	return "", nil
}

func (PutBudget) subject() CapsuleID { return "" }

func (PutBudget) effect() effect {
	return effect{victims: true}
}

// check implements [Commitment].
func (c RemoveBudget) check(v *validator) Commitment {
	v.ref("budget id", string(c.Budget))
	return nil
}

// execute implements [Commitment].
func (c RemoveBudget) execute(t *tx) (NodeID, error) {
	return "", t.removeBudget(c.Budget)
}

func (RemoveBudget) subject() CapsuleID { return "" }

func (RemoveBudget) effect() effect {
	return effect{victims: true}
}

// txBudget is the entry of one budget in the write-set.
type txBudget struct {
	// The record before the proposal, and the record after it; nil: there is no such budget.
	was, now *budgetRecord
	// What coverage.left becomes if the group or module had no budget before: the revision of this proposal, because
	// the state has not recorded until now when members stopped being healthy. For a restored state, the revision of
	// its dump.
	left Revision
}

// budget returns the entry of a budget, with a nil record if there is none.
func (t *tx) budget(id BudgetID) *txBudget {
	if e := t.budgets.find(id); e != nil {
		return e
	}
	was, _ := t.s.budgets.Get(&budgetRecord{Budget: Budget{ID: id}})
	e := t.budgets.add(id)
	e.was, e.now = was, was
	return e
}

// putBudget makes or replaces a budget.
func (t *tx) putBudget(b *Budget) {
	e := t.budget(b.ID)
	e.now, e.left = &budgetRecord{*b, t.rev}, t.rev
}

// removeBudget ends a budget.
func (t *tx) removeBudget(id BudgetID) error {
	e := t.budget(id)
	if e.now == nil {
		return t.refuse(Rejection{Budget: id}, t.s.left.Budgets, "there is no budget %q", id)
	}
	e.now = nil
	return nil
}

// judgeBudgets judges that wishes leave enough healthy members in each group and module that budgets cover.
func (t *tx) judgeBudgets() error {
	if t.s.budgets.Len() == 0 && len(t.budgets.keys) == 0 {
		return nil
	}
	healthy := map[memberSet]health{}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.wished {
			continue
		}
		evictor := t.evictor(e)
		before, _ := t.health(e)
		spec := e.now.Spec
		if e.was != nil && e.was.Placed() { // this proposal may have adopted it again with a spec of other groups
			spec = e.was.Spec
		}
		for of := range spec.memberships {
			for b := range t.budgetsOf(of) {
				if !b.binds(evictor, before) {
					continue
				}
				if _, known := healthy[of]; !known {
					healthy[of] = t.healthyThroughout(of)
				}
				if left := b.counts(healthy[of]); left < b.needed() {
					return t.refuseWish(e, b, left)
				}
			}
		}
	}
	return nil
}

// refuseWish refuses a proposal whose wish would break a budget. The refusal is a conflict if, after the proposal's
// view, the wish may have become forbidden: a member has stopped being healthy; the budget was put or replaced; or the
// capsule has changed, which may have waited to begin in the view and was then free to leave. If no budget covered the
// members before the proposal, the state does not know when one stopped being healthy. Then any commit after the view
// makes the refusal a conflict.
func (t *tx) refuseWish(e *txCapsule, b *budgetRecord, healthy int) error {
	newest := t.s.rev
	if c := t.s.coverage(b.members()); c != nil {
		newest = c.left
	}
	if own := t.budgets.find(b.ID); own == nil {
		newest = max(newest, b.changed)
	} else if own.was != nil {
		newest = max(newest, own.was.changed)
	}
	newest = max(newest, e.newest())
	if b.FreeUnready && e.was != nil && e.was.Placed() { // in the view it may have been unready, and so free to leave
		newest = max(newest, t.nodes.find(e.was.Node).newestSpec())
	}
	t.at = -1
	r := b.rejection(e.now.ID, healthy)
	r.advice = "wait until more members are placed and ready, or take fewer away"
	return t.refuse(r, newest, "%s", r.Reason)
}

// budgetsOf yields the budgets of a group or a module: those before the proposal, even if it replaces or removes them,
// and those that it makes or replaces. So a proposal cannot weaken a budget for the benefit of its own wishes.
func (t *tx) budgetsOf(of memberSet) func(func(*budgetRecord) bool) {
	return func(yield func(*budgetRecord) bool) {
		if c := t.s.coverage(of); c != nil {
			for _, b := range c.budgets {
				if !yield(b) {
					return
				}
			}
		}
		for i := range t.budgets.entries {
			if e := &t.budgets.entries[i]; e.now != nil && e.now != e.was && e.now.members() == of && !yield(e.now) {
				return
			}
		}
	}
}

// healthyThroughout counts the members that are healthy both before and after the proposal. A member that the proposal
// itself has placed does not count.
func (t *tx) healthyThroughout(of memberSet) health {
	sum := t.s.healthy(of)
	t.eachHealth(func(spec *Spec, before, after health, arrives bool) {
		if spec.isMember(of) {
			stays := btoi(!arrives)
			// The minimum, because a proposal that sets Confirms of a node to false does not make members there ready.
			sum = sum.plus(before, -1).plus(worst(before, after), stays)
		}
	})
	return sum
}

// plannedMembers is what a plan does with the members of a group or a module that has budgets.
type plannedMembers struct {
	// How many healthy members fewer there may be because of its earlier proposals.
	missing health
	// How many healthy members the proposal in the making takes off their nodes, and how many of these are healthy where it
	// places them again; and the budgets that its wishes must keep, in the order of the first such wish.
	leave, again health
	wished       []*budgetRecord
}

// hedgeHealth counts as missing what a proposal takes off its nodes and does not place again where it is as healthy. What it
// places again is healthy whether it commits or not.
func (p *planSum) hedgeHealth() {
	for _, m := range p.members {
		*m = plannedMembers{missing: m.missing.plus(m.leave, 1).plus(m.again, -1)}
	}
}

// eachHealth calls visit for each capsule whose health the proposal may change, with its health before and after, and with
// whether the proposal has placed it. These are the capsules of the write-set, and those on nodes that the proposal
// makes Lost, makes Ready or Cordoned after they were Lost, or whose Confirms it changes.
func (t *tx) eachHealth(visit func(spec *Spec, before, after health, arrives bool)) {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		before, after := t.health(e)
		switch {
		case e.anew:
			visit(e.was.Spec, before, health{}, false)
			visit(e.now.Spec, health{}, after, e.arrives)
		case e.was != nil && e.was.Spec != e.now.Spec:
			leaves, joins := e.was.Spec.membersBeyond(e.now.Spec), e.now.Spec.membersBeyond(e.was.Spec)
			visit(leaves, before, health{}, false)
			visit(joins, health{}, after, e.arrives)
			visit(e.now.Spec.membersBeyond(joins), before, after, e.arrives)
		default:
			visit(e.now.Spec, before, after, e.arrives && e.now.surging() == nil)
		}
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if e.was == nil || e.gone || e.was.Node == e.now.Node {
			continue
		}
		if was, now := e.was.Node, e.now.Node; was.Confirms != now.Confirms || (was.State == Lost) != (now.State == Lost) {
			for c := range t.s.On(now.ID) {
				if t.capsules.find(c.ID) == nil {
					visit(c.Spec, was.health(c), now.health(c), false)
				}
			}
		}
	}
}

// health returns the health of a capsule of the write-set before the proposal and after it.
func (t *tx) health(e *txCapsule) (before, after health) {
	if e.was != nil {
		before = t.s.health(e.was)
	}
	if !e.now.Placed() {
		return before, after
	}
	if n := t.nodes.find(e.now.Node); n != nil {
		return before, n.now.Node.health(&e.now)
	}
	return before, t.s.health(&e.now)
}

// firstOfModules returns an empty count for each module that gets its first budget by this proposal, because the state
// has no count of its members yet. There may be many: a restored state gets all its budgets at once.
func (t *tx) firstOfModules() map[string]*health {
	var modules map[string]*health
	for i := range t.budgets.entries {
		if b := t.budgets.entries[i].now; b != nil && b.Module != "" && t.s.coverage(b.members()) == nil {
			if modules == nil {
				modules = map[string]*health{}
			}
			modules[b.Module] = &health{}
		}
	}
	return modules
}

// publishHealth counts the members that the proposal makes healthy or unhealthy, for the budgets that there are already.
func (s *State) publishHealth(t *tx) {
	if s.covered.Len() > 0 {
		t.eachHealth(func(spec *Spec, before, after health, _ bool) { s.countHealthy(spec, before, after) })
	}
}

// publishBudgets writes budgets that have been put, then drops those that have ended. In this order a group that has a
// budget before and after the proposal is covered without a gap.
func (s *State) publishBudgets(t *tx) {
	modules := s.countModules(t.firstOfModules())
	for i := range t.budgets.entries {
		if e := &t.budgets.entries[i]; e.now != e.was && e.now != nil {
			s.budgets.ReplaceOrInsert(e.now)
			s.cover(e.now, e.left, modules)
		}
	}
	for i := range t.budgets.entries {
		e := &t.budgets.entries[i]
		if e.was == nil || e.now != nil && e.now.members() == e.was.members() {
			continue
		}
		s.left.Budgets = s.rev
		s.uncover(e.was)
		if e.now == nil {
			s.budgets.Delete(e.was)
		}
	}
}

// budgets recounts the healthy members of each group and module that has budgets. It also checks that each budget is
// found by what it covers.
func (v *verifier) budgets() {
	healthy := map[memberSet]health{}
	if v.s.covered.Len() > 0 {
		for c := range v.s.Capsules() {
			for of := range c.Spec.memberships {
				if n := v.s.Node(c.Node); v.s.coverage(of) != nil && n != nil {
					healthy[of] = healthy[of].plus(n.Node.health(c), 1)
				}
			}
		}
	}
	budgets := 0
	v.s.covered.Ascend(func(c *coverage) bool {
		if c.healthy != healthy[c.of] || len(c.budgets) == 0 {
			v.fail("%v counts %+v and %d budgets; there are %+v", c.of, c.healthy, len(c.budgets), healthy[c.of])
		}
		v.date(c.left, "the last to leave", c.of.String())
		budgets += len(c.budgets)
		for _, b := range c.budgets {
			v.date(b.changed, "budget", string(b.ID))
			if known, _ := v.s.budgets.Get(b); known != b || b.members() != c.of {
				v.fail("%v lists budget %q, but the table of budgets has another record of it, or it covers something else", c.of, b.ID)
			}
		}
		return true
	})
	if budgets != v.s.budgets.Len() {
		v.fail("%d budgets are found by what they cover; there are %d", budgets, v.s.budgets.Len())
	}
}
