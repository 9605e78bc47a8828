package nav

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/seats"
)

// Gang is the navigator for gangs: it places all waiting members of a gang in one topology domain, in one proposal, or
// none of them. The zero value works.
//
// A nominated gang may use the room that is nominated for it, and the room of nominations that it outranks. A gang
// without a nomination takes room of nominations that its members outrank only if it fits nowhere else. Gang itself
// nominates nothing, so small work that comes and goes may keep a large gang waiting for ever, and also what a broken
// gang lacks: wrap the Gang in a [Patient].
//
// [Gang.Plan] says how gangs are planned, and what the notes of a plan mean. A Gang belongs to one engine and is not safe for
// concurrent use.
type Gang struct {
	// Search is the maximum number of steps of exact search for one gang in one plan; default 20,000. A negative number
	// disables the search. All gangs of a plan together take at most 50 times as many steps. Gangs for which earlier
	// searches have found nothing take at most half of them while there are others, and take turns.
	Search int
	// Repair is how long a gang must have been broken ([orbit.GangState.Broken]), without any change of it, before the
	// Gang moves it as a whole or evicts other broken gangs for it; default 1 min. Negative: it does neither.
	Repair time.Duration

	index seats.Index
	waits map[orbit.GangID]*gangWait
	// What waiting gangs ask for, by a text that describes it.
	demands map[string]*gangDemand
	// How many searches for seats were made, and how many of them took a node for free that the draft did not.
	tries, misjudged int
}

// Claims reports whether the class is GangClass.
func (g *Gang) Claims(_ string, class orbit.AppClass) bool { return class == orbit.GangClass }

// gangPass is the state of one call of Plan.
type gangPass struct {
	*Gang
	ctx    context.Context
	view   *orbit.View
	state  *orbit.State
	limits orbit.Limits
	plan   orbit.Plan
	steps  gangSteps
	quotas orbit.Quotas
	// Gangs that this plan has taken from their demands; setBack returns them.
	planned []plannedGang
	// The lowest rank of a nomination; nil: it is not known yet.
	lowest *int64
	// For the notes.
	placed, toppedUp, rebuilt, waitingFor int
}

// Plan places gangs and tops up running ones. If ctx ends it returns the plan so far, and the context's error.
//
// A plan takes every gang of which a member is pending, with all its waiting members, even those not in the batch.
// Gangs are planned by their highest member priority, broken gangs first ([orbit.GangState.Broken]), and then in order of
// submission:
//
//  1. A running gang that has fallen short is topped up in the domain where it runs. A gang that has been broken for as
//     long as Repair says, and cannot be topped up, is moved as a whole to a domain that takes all of it, if budgets and
//     protections allow that. If there is none, other broken gangs that it precedes ([orbit.State.Precedes]) are evicted,
//     if they hold what it lacks. Others are not evicted: wrap the Gang in a [Preempting].
//  2. A gang that is not placed goes to the first of its levels on which a domain takes all of it, and there to the
//     tightest such domain. If there is none and fewer members will do, it goes to the first level on which a domain
//     takes its minimums, and there to the domain that takes the most. Nodes without the level's label, or with an
//     empty one, are in no domain. If there are no levels, or after all levels that are only preferred, all nodes
//     together are the domain.
//  3. A gang that fits nowhere is diagnosed by a [*GangNoFit], and is not tried again until a node has gained room
//     that could help.
//
// Whether members of one shape fit a domain is decided exactly. Members of several shapes are seated greedily, and then
// by a search that is exact while it has Search steps left. Members to which rules of company apply ([orbit.Apart],
// [orbit.Even], [orbit.Extra]) are seated by a search on the draft, which judges as the ledger does. It too is exact while
// it has steps, with one exception: if members have rules Even about several groups or levels, it may miss seats that the
// ledger would accept.
//
// A member that has got another spec than its role says ([orbit.Respec]) is seated by its own. If a role needs only some of
// its members, those that ask for least are taken for its minimum, and seats for others may be missed.
//
// Gang ignores the scores and preferences of specs. A gang is diagnosed, and never split, if its members do not all
// have one owner, or if no proposal can hold it by the limits of the ledger.
//
// The members of a waiting gang are pending in every pass, and so diagnosed in every round: the answer does not park
// their classes, and the engine goes on at its Backoff. An OnRound that logs should log only what has changed.
//
// Plan.Notes say what a plan did:
//
//	gangs.placed      gangs placed, whole or at their minimum
//	gangs.topped_up   running gangs that got more members
//	gangs.rebuilt     broken gangs that were moved as a whole
//	gangs.waiting     gangs of which nothing was placed in this plan, diagnosed instead
//	search.steps      steps of exact search
func (g *Gang) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	r := &gangPass{Gang: g, ctx: ctx, view: view, state: view.State(), limits: view.State().Limits()}
	if err := ctx.Err(); err != nil {
		return r.plan, err
	}
	g.index.Sync(view)
	r.quotas.Begin(r.state)
	r.steps.begin(g.stepsEach())
	gangs, orphans := pendingGangs(view, pending)
	g.forget(r.state, len(gangs))
	for _, c := range orphans {
		r.plan.Unplaced = append(r.plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf(
			"capsule %q has the class Gang and is a member of no gang that there is; submit it with one, or give its spec another class", c.ID)})
	}
	err := r.planAll(gangs)
	r.plan.Notes = []slog.Attr{slog.Int("gangs.placed", r.placed), slog.Int("gangs.topped_up", r.toppedUp),
		slog.Int("gangs.rebuilt", r.rebuilt), slog.Int("gangs.waiting", r.waitingFor), slog.Int("search.steps", r.steps.taken())}
	return r.plan, err
}

// stepsEach returns how many steps of search one gang may take.
func (g *Gang) stepsEach() int { return max(0, cmp.Or(g.Search, 20_000)) }

// planAll plans gang by gang. It first updates the shapes of all gangs by what others have changed, because later
// changes are this plan's own. It plans the gangs with pending members, and also remembered gangs that may fit now.
func (r *gangPass) planAll(gangs []*pendingGang) error {
	for _, m := range gangs {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if m.fault == nil {
			m.asks(&r.index)
		}
	}
	here := map[orbit.GangID]bool{}
	for _, m := range gangs {
		here[m.id] = true
	}
	remembered := r.returning(here)
	r.index.Fresh = false
	all := heap.Heap[*pendingGang]{}
	for _, m := range slices.Concat(gangs, remembered) {
		all.Push(m)
	}
	r.shareSteps(all)
	defer r.setBack()
	for len(all) > 0 {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		m := all.Pop()
		if here[m.id] = true; len(m.handed) > 0 {
			if err := r.planGang(m); err != nil {
				return err
			}
			continue
		}
		d := r.waits[m.id].demand
		if placed, err := r.planRemembered(m); err != nil {
			return err
		} else if placed {
			if next := r.next(d, here); next != nil {
				all.Push(next)
			}
		}
	}
	return nil
}

// planGang plans one gang. Its error is the context's.
func (r *gangPass) planGang(m *pendingGang) error {
	if m.fault != nil {
		r.unplaced(m, m.fault)
		return r.ctx.Err()
	}
	r.allot(m)
	fit, why := r.seat(m)
	repaired := fit == nil && r.ctx.Err() == nil && r.overdue(m) && r.repair(m)
	r.settle(m, fit != nil || repaired)
	switch {
	case repaired:
		r.reportRest(m, func(c *orbit.Capsule) bool { return r.index.Draft.Uses(c.ID) }, why)
	case fit != nil:
		r.countPlaced(m, fit)
	case r.ctx.Err() == nil:
		r.unplaced(m, why)
	}
	return r.ctx.Err()
}

// planRemembered plans a remembered gang, of which no member is in the plan's batch.
func (r *gangPass) planRemembered(m *pendingGang) (placed bool, err error) {
	if known := r.waits[m.id].demand.answer(r, m.id); known != nil { // a gang with the same demand has been tried in this plan
		return false, r.ctx.Err()
	}
	r.allot(m)
	fit, why := r.tryAll(m, r.levels(m))
	switch {
	case fit != nil:
		w, d := r.waits[m.id], r.waits[m.id].demand
		r.countPlaced(m, fit)
		r.waits[m.id] = w // countPlaced has dropped it, but if the proposal is lost the gang must still be remembered
		r.join(w, d)
		r.demands[d.key] = d
	case r.ctx.Err() == nil && r.conclusive():
		seen := r.markOf(m)
		seen.quota = r.missing(m)
		r.failed(m, seen, why)
	}
	r.settle(m, fit != nil)
	return fit != nil, r.ctx.Err()
}

// markOf returns the current mark of a gang: the state on which a diagnosis of it depends.
func (r *gangPass) markOf(m *pendingGang) waitMark {
	w := markOf(&r.index, m, m.asks(&r.index), r.levels(m))
	w.quota = quotaMark(&r.quotas, m.asks(&r.index))
	if r.outranks(m) { // the room of a nomination is counted as used, so it is no gain
		w.nodes = r.index.Changed
	}
	return w
}

// seat finds seats for a gang's members and proposes them, or returns why there are none. It tries nominated room
// first. It makes no new search if an earlier diagnosis, of this gang or of another with the same demand, still holds.
func (r *gangPass) seat(m *pendingGang) (*seats.Fit, error) {
	w, levels := r.waiting(m), r.levels(m)
	if r.index.Ask(r.state, m.id) {
		fit, err := r.tryAtOnce(m, levels)
		r.index.Ask(r.state, "")
		if fit != nil || r.ctx.Err() != nil {
			return fit, err
		}
	}
	seen := r.markOf(m)
	var why error
	if w != nil && w.seen == seen {
		why = w.why
	} else if why = r.demand(m).answer(r, m.id); why != nil {
		seen.quota = r.demand(m).seen.quota
		r.failed(m, seen, why)
	} else if fit, err := r.tryAll(m, levels); fit != nil || r.ctx.Err() != nil {
		return fit, err
	} else if why = err; r.conclusive() {
		seen.quota = r.missing(m)
		r.failed(m, seen, why)
	}
	return nil, r.nominated(m, why)
}

// nominated adds to a diagnosis until when room is nominated for the gang.
func (r *gangPass) nominated(m *pendingGang, why error) error {
	e, ok := why.(*GangNoFit) //nolint:errorlint // made here, and never wrapped
	if !ok || !m.state.Nomination.Lives() {
		return why
	}
	said := *e
	said.NominatedUntil = m.state.Nomination.Ends
	return &said
}

// levels returns the domain tables of a gang's levels, in order.
func (r *gangPass) levels(m *pendingGang) []*seats.Table {
	return r.tables(m.gang.Levels, m.gang.Loose)
}

// tables returns the domain tables of levels. It adds the table of all nodes if the levels are only preferred or there
// are none.
func (r *gangPass) tables(levels []string, loose bool) []*seats.Table {
	var out []*seats.Table
	for _, level := range levels {
		out = append(out, r.index.Table(level))
	}
	if len(out) == 0 || loose {
		out = append(out, r.index.Table())
	}
	return out
}

// tryAll searches for seats, also in room that is nominated for work that the gang outranks if there are none elsewhere. A
// broken gang first looks for seats for all that it lacks.
func (r *gangPass) tryAll(m *pendingGang, levels []*seats.Table) (*seats.Fit, error) {
	if !r.outranks(m) {
		return r.tryAtOnce(m, levels)
	}
	m.needsAll = m.state.Broken()
	defer func() { m.needsAll = false }()
	fit, why := r.tryAtOnce(m, levels)
	if fit != nil || r.ctx.Err() != nil {
		return fit, why
	}
	asks := m.asks(&r.index)
	m.mixed = !r.index.Outrank(asks)
	fit, _ = r.tryAtOnce(m, levels)
	m.mixed = false
	r.index.EndOutrank(asks)
	if fit != nil || r.ctx.Err() != nil || !m.needsAll {
		return fit, why
	}
	m.needsAll = false
	return r.tryAtOnce(m, levels)
}

// outranks reports whether room is nominated for work that a member of the gang outranks. A gang that is nominated uses
// what its nomination outranks.
func (r *gangPass) outranks(m *pendingGang) bool {
	if r.lowest == nil {
		lowest := int64(math.MaxInt64)
		for of := range r.state.Nominations() {
			lowest = min(lowest, int64(of.Rank))
		}
		r.lowest = &lowest
	}
	return int64(m.priority) > *r.lowest && !m.state.Nomination.Lives()
}

// tryAtOnce searches for seats for all members where they can begin at once and none has failed lately. If there are not
// enough, it searches anywhere, but takes such nodes first.
func (r *gangPass) tryAtOnce(m *pendingGang, levels []*seats.Table) (*seats.Fit, error) {
	if asks := m.asks(&r.index); r.index.Hide(asks) {
		steps := r.steps.budget.Left
		defer r.index.EndHide()
		fit, _ := r.try(m, levels)
		if r.index.Reveal(asks); fit != nil || r.ctx.Err() != nil {
			return fit, nil
		}
		r.steps.budget.Left, r.steps.budget.Spent = steps, false
	}
	return r.try(m, levels)
}

// try searches for seats and proposes them. If it finds none it leaves the draft as it was, and returns why.
func (r *gangPass) try(m *pendingGang, levels []*seats.Table) (*seats.Fit, error) {
	r.tries++
	start := r.index.Draft.Checkpoint()
	p := &seats.Packer{Index: &r.index, Asks: m.asks(&r.index), LeastInAll: m.least(), Steps: &r.steps.budget, Limit: seats.MostMembers(r.limits), Tries: m.mixed}
	if !m.fresh() {
		levels, p.NeededInAll = r.homes(m), m.state.LacksInAll()
	}
	fit, misjudged := p.Seat(func() *seats.Fit { return m.find(p, levels) })
	r.misjudged += btoi(misjudged)
	if fit != nil && (r.index.Strict && fit.Total < m.total || m.needsAll && !fit.Has(m.state.LacksInAll())) {
		fit = nil
	}
	var why error
	if fit != nil {
		why = r.propose(m, fit)
	} else if r.ctx.Err() == nil && !r.index.Strict {
		why = r.explain(p, m, levels)
	}
	if fit == nil || why != nil {
		r.index.Draft.Rollback(start)
		return nil, why
	}
	return fit, nil
}

// find returns seats for the gang, or for the members that it lacks if it runs; nil if there are none.
func (m *pendingGang) find(p *seats.Packer, levels []*seats.Table) *seats.Fit {
	if m.fresh() {
		return p.Choose(levels)
	}
	return p.TopUp(m.nodes(), levels)
}

// propose proposes the placements on the draft.
func (r *gangPass) propose(m *pendingGang, fit *seats.Fit) error {
	var bets []orbit.Precondition
	if m.fresh() {
		bets = append(bets, orbit.GangUnplaced{Gang: m.id})
	}
	p := r.index.Draft.Propose(bets...)
	if n := len(p.If); n > r.limits.Preconditions {
		return fmt.Errorf("gang %q: placing %d members takes %d bets; this ledger takes %d in one proposal", m.id, fit.Total, n, r.limits.Preconditions)
	}
	r.plan.Proposals = append(r.plan.Proposals, p)
	return nil
}

// explain returns why a gang is not placed.
func (r *gangPass) explain(p *seats.Packer, m *pendingGang, levels []*seats.Table) error {
	if err := p.TooMany(m.id); err != nil {
		return err
	}
	return m.diagnose(p, levels)
}

// countPlaced counts a gang that is placed, and reports its pending members that have no seat.
func (r *gangPass) countPlaced(m *pendingGang, fit *seats.Fit) {
	if m.fresh() {
		r.placed++
	} else {
		r.toppedUp++
	}
	r.drop(m.id)
	if fit.Total == m.total {
		return
	}
	seated := map[orbit.CapsuleID]bool{}
	for a := range fit.Asks {
		for _, c := range fit.Asks[a].Members[:fit.Placed[a]] {
			seated[c.ID] = true
		}
	}
	why := fmt.Errorf("gang %q: %d of %d waiting members are placed, %s", m.id, fit.Total, m.total, noMore(fit))
	r.reportRest(m, func(c *orbit.Capsule) bool { return seated[c.ID] }, why)
}

// reportRest reports the pending members of a gang that are not placed.
func (r *gangPass) reportRest(m *pendingGang, placed func(*orbit.Capsule) bool, why error) {
	for _, c := range m.handed {
		if !placed(c) {
			r.plan.Unplaced = append(r.plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
		}
	}
}

// noMore returns why the other members have no seat.
func noMore(f *seats.Fit) string {
	switch {
	case f.Trimmed:
		return "this ledger takes no more in one proposal"
	case f.Level == "":
		return "no room was found for more"
	}
	return "no room was found for more in " + plain(f.Level) + " " + plain(f.Domain)
}

// unplaced reports that no pending member of a gang is placed.
func (r *gangPass) unplaced(m *pendingGang, why error) {
	r.waitingFor++
	for _, c := range m.handed {
		r.plan.Unplaced = append(r.plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
	}
}
