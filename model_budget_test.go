package orbit

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What the model says of budgets, and the drafts that speak of them.

type modelBudget struct {
	Budget
	changed Revision
}

// members names what is covered, as in "g db" and "m web".
func (b *Budget) modelMembers() string {
	if b.Group != "" {
		return "g " + b.Group
	}
	return "m " + b.Module
}

// modelMemberships lists what a capsule of the spec is a member of, in the same words.
func modelMemberships(s *Spec) (out []string) {
	for _, group := range modelGroupsOf(s) {
		out = append(out, "g "+group)
	}
	if s.Module != "" {
		out = append(out, "m "+s.Module)
	}
	return out
}

// modelNeeded is Expected less what may be missing.
func modelNeeded(b Budget) int {
	missing := b.Missing
	for missing*100 < b.Expected*b.MissingPercent {
		missing++
	}
	return max(0, b.Expected-missing)
}

// covers reports whether something has a budget.
func (m *model) covers(of string) bool {
	for _, b := range m.budgets {
		if b.modelMembers() == of {
			return true
		}
	}
	return false
}

// covered reports whether a member of any of these has a budget.
func (m *model) covered(s *Spec) bool { return slices.ContainsFunc(modelMemberships(s), m.covers) }

// healthy counts members on nodes that are not lost, but for some.
func (m *model) healthy(of string, but map[CapsuleID]bool) (n int) {
	for id, c := range m.capsules {
		if c.node != "" && !but[id] && m.nodes[c.node].State != Lost && slices.Contains(modelMemberships(c.spec), of) {
			n++
		}
	}
	return n
}

func (r *modelRound) putBudget(b Budget) *refusal {
	r.now.budgets[b.ID] = modelBudget{b, r.now.rev}
	return nil
}

func (r *modelRound) removeBudget(id BudgetID) *refusal {
	if _, ok := r.now.budgets[id]; !ok {
		return lostTo(r.was.left.Budgets)
	}
	delete(r.now.budgets, id)
	return nil
}

// evictor is the priority for which a capsule is evicted.
func (r *modelRound) evictor(id CapsuleID) (priority int32, is bool) {
	for _, at := range r.wishes.victims {
		e := r.p.Do[at].(Evict)
		if e.Capsule != id {
			continue
		}
		newcomers := r.newcomers()
		for _, cause := range r.causes(e) {
			return newcomers[cause], true
		}
	}
	return 0, false
}

// overspent judges the budgets of all that wishes touch, those before the proposal and those after it.
func (r *modelRound) overspent() (out []*refusal) {
	judge := func(b modelBudget) {
		for id := range r.wishes.wished {
			priority, evicted := r.evictor(id)
			if !slices.Contains(modelMemberships(r.now.capsules[id].spec), b.modelMembers()) || evicted && b.Above != 0 && priority >= b.Above {
				continue
			}
			if r.now.healthy(b.modelMembers(), r.arrived) < modelNeeded(b.Budget) {
				newest := r.was.rev
				if r.was.covers(b.modelMembers()) {
					newest = r.was.leftOf[b.modelMembers()]
				}
				out = append(out, lostTo(max(newest, r.was.budgets[b.ID].changed)))
			}
		}
	}
	for _, b := range r.was.budgets {
		judge(b)
	}
	for id, b := range r.now.budgets {
		if r.was.budgets[id] != b {
			judge(b)
		}
	}
	return out
}

// dateBudgets notes when something came to be covered, or lost a member since, and when a budget ended.
func (r *modelRound) dateBudgets() {
	for id, b := range r.was.budgets {
		if now, ok := r.now.budgets[id]; !ok || now.modelMembers() != b.modelMembers() {
			r.now.left.Budgets = r.now.rev
		}
	}
	for _, of := range []string{"g db", "g web", "m m"} {
		switch was, is := r.was.covers(of), r.now.covers(of); {
		case !is:
			delete(r.now.leftOf, of)
			continue
		case !was:
			r.now.leftOf[of] = r.now.rev
		}
		for id, c := range r.was.capsules {
			member := slices.Contains(modelMemberships(c.spec), of) && c.node != "" && r.was.nodes[c.node].State != Lost
			if now := r.now.capsules[id]; member && (now.node != c.node || r.now.nodes[now.node].State == Lost) {
				r.now.leftOf[of] = r.now.rev
			}
		}
	}
}

// describeBudgets lists the budgets in the words of budgetsIn.
func (m *model) describeBudgets() (out []string) {
	for _, id := range slices.Sorted(maps.Keys(m.budgets)) {
		b := m.budgets[id]
		out = append(out, fmt.Sprintf("budget %+v since %d healthy %d left %d", b.Budget, b.changed, m.healthy(b.modelMembers(), nil), m.leftOf[b.modelMembers()]))
	}
	return out
}

func budgetsIn(s *State) (out []string) {
	for b := range s.Budgets() {
		out = append(out, fmt.Sprintf("budget %+v since %d healthy %d left %d", b.Budget, b.Changed, b.Healthy, s.coverage(b.Budget.members()).left))
	}
	return out
}

func badBudget(b Budget) bool {
	return b.ID == "" || (b.Group == "") == (b.Module == "") || b.Expected < 0 || b.Missing < 0 || b.MissingPercent < 0 || b.MissingPercent > 100 ||
		b.Missing > 0 && b.MissingPercent > 0
}

var modelBudgets = []BudgetID{"b0", "b1", "b2"}

// draftBudget puts a budget that binds, or nearly does, or removes one; sometimes beside a wish.
func draftBudget(s *scribe) (out []Commitment) {
	if s.chance(4) {
		out = append(out, RemoveBudget{pickOne(s, modelBudgets)})
	} else {
		b := Budget{ID: pickOne(s, modelBudgets), Expected: rapid.IntRange(0, 4).Draw(s.T, "expected"), Above: rapid.Int32Range(0, 2).Draw(s.T, "above")}
		switch {
		case s.chance(2):
			b.Missing = rapid.IntRange(0, 2).Draw(s.T, "missing")
		case s.chance(2):
			b.MissingPercent = pickOne(s, []int{1, 33, 50, 100})
		}
		switch b.Group = pickOne(s, modelGroups); {
		case s.chance(3):
			b.Group, b.Module = "", "m"
		case s.chance(20):
			b.Module = "m"
		}
		out = append(out, PutBudget{b})
	}
	if s.chance(3) {
		out = append(out, pickOne(s, []draft{draftMove, draftEvict, draftDrain})(s)...)
	}
	return out
}

// TestBudgetsAgainstModel is TestLedgerAgainstModel with few members, much room, and wishes and budgets above all.
func TestBudgetsAgainstModel(t *testing.T) {
	t.Parallel()
	total := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		d := newDuel(Limits{}, false)
		d.drafts = []draft{
			draftBudget, draftBudget, draftBudget, draftMove, draftMove, draftMove, draftMove, draftEvict, draftEvict, draftEvict, draftDrain,
			draftRelease, draftPlace, draftPlace, draftGang, draftGang, draftSubmit, draftChange, draftEmpty,
		}
		for _, id := range modelNodes {
			n := Node{ID: id, Capacity: Resources{8, 8, 8, 8, 8, 8, 8, 8}, Labels: map[string]string{"rack": "r0"}}
			n.Devices.Count, n.Devices.Model = 3, "A100"
			d.send(t, Proposal{Do: []Commitment{PutNode{n}}})
		}
		for range 3 {
			s := &scribe{T: t, view: d.snapshot()}
			d.send(t, Proposal{Do: s.follow(draftSubmit(s))})
		}
		t.Repeat(d.actions())
		d.lookBack(t)
		for k, n := range d.count {
			total[k] += n
		}
	})
	t.Logf("outcomes: %v", total)
	if !t.Failed() && !testing.Short() && total["by a budget"] == 0 {
		t.Error("the generator never breaks a budget")
	}
}
