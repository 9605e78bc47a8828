package orbit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
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

// isHealthy reports whether a capsule is placed on a node that is not lost and, unless the budget does not ask, is ready there.
func (m *model) isHealthy(id CapsuleID, b Budget) bool {
	c := m.capsules[id]
	if c.node == "" || m.nodes[c.node].State == Lost || c.borrows != (modelNominee{}) {
		return false
	}
	return b.IgnoreReady || c.ready || !m.nodes[c.node].Confirms
}

// healthy lists the healthy members.
func (m *model) healthy(b Budget) (out []CapsuleID) {
	for id, c := range m.capsules {
		if slices.Contains(modelMemberships(c.spec), b.modelMembers()) && m.isHealthy(id, b) {
			out = append(out, id)
		}
	}
	return out
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
			spec := r.now.capsules[id].spec
			if was := r.was.capsules[id]; was.node != "" {
				spec = was.spec
			}
			if !slices.Contains(modelMemberships(spec), b.modelMembers()) || evicted && b.Above != 0 && priority >= b.Above {
				continue
			}
			rest := 0
			for _, member := range r.now.healthy(b.Budget) {
				rest += btoi(!r.arrived[member] && r.was.isHealthy(member, b.Budget))
			}
			switch {
			case rest >= modelNeeded(b.Budget):
			case b.FreeUnready && !r.was.isHealthy(id, b.Budget):
				r.now.freed++
			default:
				newest := r.was.rev
				if r.was.covers(b.modelMembers()) {
					newest = r.was.leftOf[b.modelMembers()]
				}
				was, ok := r.was.capsules[id]
				newest = max(newest, was.changed)
				if ok && b.FreeUnready {
					newest = max(newest, r.was.nodes[was.node].spec)
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
			for _, b := range []Budget{{}, {IgnoreReady: true}} {
				if slices.Contains(modelMemberships(c.spec), of) && r.was.isHealthy(id, b) && (!r.now.isHealthy(id, b) || r.anew[id] || !slices.Contains(modelMemberships(r.now.capsules[id].spec), of)) {
					r.now.leftOf[of] = r.now.rev
				}
			}
		}
	}
}

// describeBudgets lists the budgets in the words of budgetsIn.
func (m *model) describeBudgets() (out []string) {
	for _, id := range slices.Sorted(maps.Keys(m.budgets)) {
		b := m.budgets[id]
		out = append(out, fmt.Sprintf("budget %+v since %d healthy %d left %d", b.Budget, b.changed, len(m.healthy(b.Budget)), m.leftOf[b.modelMembers()]))
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
		b.IgnoreReady, b.FreeUnready = s.chance(3), s.chance(3)
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

// draftFail says that something is not ready any more.
func draftFail(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool { return c.Ready })
	return []Commitment{Confirm{Capsule: c.ID, Since: max(c.PlacedAt, 1), NotReady: true}}
}

// draftFree puts a budget that keeps nobody but who is ready, and moves one who is not.
func draftFree(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool { return c.Placed() && !c.Ready && modelMemberships(c.Spec) != nil })
	if c.Spec == nil || modelMemberships(c.Spec) == nil {
		return draftMove(s)
	}
	b := Budget{ID: pickOne(s, modelBudgets), Expected: 4, FreeUnready: true}
	b.Module = strings.TrimPrefix(modelMemberships(c.Spec)[0], "m ")
	if group, is := strings.CutPrefix(modelMemberships(c.Spec)[0], "g "); is {
		b.Group, b.Module = group, ""
	}
	return []Commitment{PutBudget{b}, Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}, s.put(c.ID, c.Spec)}
}

// draftFound wishes a member away, and finds it running with another spec, in one proposal.
func draftFound(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool {
		return c.Placed() && c.Gang() == "" && s.view.Node(c.Node).Node.State == Cordoned && modelMemberships(c.Spec) != nil
	})
	if c.Spec == nil || !c.Placed() {
		return draftEmpty(s)
	}
	spec := *s.spec()
	a := Adopt{Capsule: c.ID, Spec: &spec, Node: pickOne(s, modelNodes), Devices: DeviceSet(1<<spec.Devices.Count - 1)}
	return []Commitment{Release{Capsule: c.ID}, a}
}

// serve places what waits, and says that some of it is ready.
func (d *duel) serve(t *rapid.T) {
	s := &scribe{T: t, view: d.snapshot()}
	for _, id := range modelCapsules {
		c := s.view.Capsule(id)
		if c == nil || !c.Pending() {
			continue
		}
		d.send(t, Proposal{View: s.view.rev, Do: []Commitment{s.put(id, c.Spec)}})
		if c = d.snapshot().Capsule(id); c.Placed() {
			ready := s.chance(2)
			d.send(t, Proposal{Do: []Commitment{Confirm{Capsule: id, Since: c.PlacedAt, Begun: !ready, Ready: ready}}})
		}
	}
}

// TestBudgetsAgainstModel is TestLedgerAgainstModel with few members, much room, and wishes and budgets above all.
func TestBudgetsAgainstModel(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "by a budget", "ready", "not ready", "unready and free", "refused for protection") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{}, false)
			d.drafts = []draft{
				draftProtect, draftProtect,
				draftBudget, draftBudget, draftBudget, draftMove, draftMove, draftMove, draftMove, draftEvict, draftEvict, draftEvict, draftDrain,
				draftRelease, draftPlace, draftPlace, draftGang, draftGang, draftSubmit, draftChange, draftEmpty, draftFound, draftFound,
			}
			agents := rapid.Bool().Draw(t, "agents")
			if agents {
				d.drafts = append(d.drafts, draftConfirm, draftConfirm, draftConfirm, draftConfirm, draftFree, draftFree, draftFail, draftFail)
			}
			for i, id := range modelNodes {
				n := Node{ID: id, Confirms: agents && i > 0, Capacity: Resources{8, 8, 8, 8, 8, 8, 8, 8}, Labels: map[string]string{"rack": "r0"}}
				n.Devices.Count, n.Devices.Model = 3, "A100"
				d.send(t, Proposal{Do: []Commitment{PutNode{n}}})
			}
			for range 3 {
				s := &scribe{T: t, view: d.snapshot()}
				d.send(t, Proposal{Do: s.follow(draftSubmit(s))})
			}
			if agents {
				d.serve(t)
			}
			t.Repeat(d.actions())
			d.lookBack(t)
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}
