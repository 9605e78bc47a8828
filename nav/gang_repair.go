package nav

import (
	"cmp"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// How a Gang repairs a broken gang ([orbit.GangState.Broken]) that could not be topped up for long: it moves the gang as
// a whole to a domain that takes all of it, or evicts other broken gangs that the gang precedes ([orbit.State.Precedes]).

// defaultRepair is the default of Gang.Repair.
const defaultRepair = time.Minute

// mostReplaced is how many broken gangs one broken gang evicts at most in one proposal. If they do not make enough room,
// the next plan goes on behind them.
const mostReplaced = 8

// overdue reports whether a broken gang has been as it is now for as long as Gang.Repair says, and something in the
// ledger has changed since its last repair was tried.
func (r *gangPass) overdue(m *pendingGang) bool {
	w, after := r.waiting(m), cmp.Or(r.Repair, defaultRepair)
	return w != nil && after >= 0 && m.state.Broken() && w.broken == m.state.Changed &&
		r.view.Now().Sub(w.since) >= after && w.repaired != r.state.Revision()
}

// noteBroken notes since when a broken gang has been as it is now.
func (w *gangWait) noteBroken(g *orbit.GangState, now time.Time) {
	if g.Broken() && w.broken != g.Changed {
		w.broken, w.since = g.Changed, now
	}
}

// repair proposes to move a broken gang, or to evict others for it. It reports false if neither helps.
func (r *gangPass) repair(m *pendingGang) bool {
	if r.attempt(func() bool { return r.rebuild(m) }) {
		r.rebuilt++
		return true
	}
	if r.attempt(func() bool { return r.replace(m) }) {
		r.toppedUp++
		return true
	}
	return false
}

// attempt takes steps on the draft, and proposes them if they lead to something that one proposal can hold. Otherwise it
// takes them back.
func (r *gangPass) attempt(steps func() bool) bool {
	start, made := r.index.Draft.Checkpoint(), len(r.plan.Proposals)
	if steps() {
		p := r.index.Draft.Propose()
		if len(p.Do) <= r.limits.Commitments && len(p.If) <= r.limits.Preconditions {
			r.plan.Proposals = append(r.plan.Proposals, p)
			return true
		}
	}
	r.plan.Proposals = r.plan.Proposals[:made]
	r.index.Draft.Rollback(start)
	return false
}

// rebuild takes all running members of a gang off their nodes, and seats all its members in one domain.
func (r *gangPass) rebuild(m *pendingGang) bool {
	for _, c := range m.running {
		if c.Owner() != m.owner || r.index.Draft.Evict(orbit.Evict{Capsule: c.ID}) != nil { // a budget or a protection keeps it
			return false
		}
	}
	all := m.anew(r.state)
	p := &seats.Packer{Index: &r.index, Asks: all.asks(&r.index), Steps: &r.steps.budget, Limit: r.limits.GangMembers}
	for _, t := range r.levels(m) {
		if fit := p.WithLeast(seats.AllOf).Tightest(t); fit != nil {
			return r.index.Place(fit.Asks, fit.Seating) == nil
		}
	}
	return false
}

// anew returns the gang as it is once its running members are off their nodes: all members wait.
func (m *pendingGang) anew(state *orbit.State) *pendingGang {
	none := *m.state
	none.Placed = make([]int, len(none.Placed))
	all := &pendingGang{id: m.id, gang: m.gang, state: &none, owner: m.owner, waiting: make([][]*orbit.Capsule, len(m.waiting))}
	for role := range m.gang.Roles {
		for _, id := range m.gang.Roles[role].Members {
			if c := state.Capsule(id); c != nil && c.Gang() == m.id && !c.Released() {
				all.add(role, c)
			}
		}
	}
	return all
}

// replace evicts other broken gangs whole, those first that come last, until the gang finds seats for all that it lacks.
// The ledger spares those that were evicted needlessly. If all were tried, no repair is tried again before the ledger has
// changed.
func (r *gangPass) replace(m *pendingGang) bool {
	var others []orbit.GangID
	for g := range r.state.Broken() {
		if r.state.Precedes(m.id, g.Gang.ID) {
			others = append(others, g.Gang.ID)
		}
	}
	slices.SortFunc(others, func(a, b orbit.GangID) int { return btoi(r.state.Precedes(a, b)) - btoi(r.state.Precedes(b, a)) })
	w := r.waits[m.id]
	others = others[min(w.replaced, len(others)):]
	if w.replaced += mostReplaced; len(others) <= mostReplaced {
		w.replaced, w.repaired = 0, r.state.Revision()
	}
	for _, other := range others[:min(len(others), mostReplaced)] {
		start := r.index.Draft.Checkpoint()
		if !r.evictGang(other, m.id) {
			r.index.Draft.Rollback(start)
		} else if r.fillLacks(m) {
			return true
		}
	}
	return false
}

// evictGang evicts all placed members of a gang for another one. It reports false if the draft refuses one.
func (r *gangPass) evictGang(id, by orbit.GangID) bool {
	for c := range r.state.Members(id) {
		if c.Placed() && r.index.Draft.Evict(orbit.Evict{Capsule: c.ID, ForGang: by}) != nil {
			return false
		}
	}
	return true
}

// fillLacks places on the draft what a broken gang lacks. It reports false, and places nothing, unless that is enough to
// reach its minimums.
func (r *gangPass) fillLacks(m *pendingGang) bool {
	start := r.index.Draft.Checkpoint()
	p := &seats.Packer{Index: &r.index, Asks: m.asks(&r.index), NeededInAll: m.state.LacksInAll(), Steps: &r.steps.budget, Limit: r.limits.GangMembers}
	fit := p.TopUp(m.nodes(), r.homes(m))
	if fit == nil || r.index.Place(fit.Asks, fit.Seating) != nil {
		return false
	}
	after := *m.state
	after.Placed = slices.Clone(after.Placed)
	for role, waiting := range m.waiting {
		for _, c := range waiting {
			after.Placed[role] += btoi(r.index.Draft.Uses(c.ID))
		}
	}
	if after.LacksInAll() > 0 {
		r.index.Draft.Rollback(start)
		return false
	}
	return true
}

// homes returns the tables in which the running members of a gang share a domain.
func (r *gangPass) homes(m *pendingGang) []*seats.Table {
	return slices.DeleteFunc(slices.Clone(r.levels(m)), func(t *seats.Table) bool { return m.domain(t, r.state) < 0 })
}
