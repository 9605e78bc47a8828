package race

import (
	"context"
	"time"

	"github.com/orbitsched/orbit"
)

// thinker is the navigator of an engine in a race. It calls the navigator under test (of) with the jobs in turn, and
// takes virtual time for each. It plans on the view at once and proposes after that time, so it may lose to commits in
// between.
type thinker struct {
	*actor
	of orbit.Navigator
}

// Claims implements [orbit.Navigator].
func (t *thinker) Claims(module string, class orbit.AppClass) bool { return t.of.Claims(module, class) }

// Plan implements [orbit.Navigator].
func (t *thinker) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if rev := view.Revision(); rev < t.atLeast {
		t.fail("stale view", "%s plans on revision %d after an answer from %d", t.name, rev, t.atLeast)
	}
	pending, jobs := t.first(pending)
	t.tally.Decisions++
	t.planning.Add(1)
	defer t.planning.Add(-1)
	f := t.stop(stepPlan, "plan %d capsules on revision %d", len(pending), view.Revision())
	if spoilt, err := t.spoil(ctx, f.what, view, pending); spoilt {
		return orbit.Plan{}, err
	}
	plan, err := t.of.Plan(ctx, view, pending)
	t.transact(&plan, view)
	t.think(time.Duration(jobs)*t.scheduler.JobTime + time.Duration(len(pending))*t.scheduler.TaskTime)
	return plan, err
}

// first returns the capsules of the first jobs, as many as Scheduler.Together allows, and the number of these jobs.
func (t *thinker) first(pending []*orbit.Capsule) ([]*orbit.Capsule, int) {
	most, jobs := max(t.scheduler.Together, 1), map[*task]bool{}
	kept := make([]*orbit.Capsule, 0, len(pending))
	for _, c := range pending {
		job := t.jobOf[c.ID]
		if !jobs[job] && len(jobs) == most && t.scheduler.Together >= 0 {
			continue
		}
		jobs[job] = true
		kept = append(kept, c)
	}
	return kept, len(jobs)
}

// think lets virtual time pass.
func (t *thinker) think(d time.Duration) {
	t.tally.Busy += d
	t.stopFor(d, stepPass, "have thought for %v", d)
	if t.Until > 0 {
		t.tally.Busy -= max(0, t.now-t.Until)
	}
}

// transact groups the plan's placements into proposals as Scheduler.Coarse and Scheduler.Whole require.
func (t *thinker) transact(plan *orbit.Plan, view *orbit.View) {
	if t.scheduler.Whole && len(plan.Proposals) > 1 {
		all := orbit.Proposal{}
		for _, p := range plan.Proposals {
			all.Do, all.If = append(all.Do, p.Do...), append(all.If, p.If...)
		}
		plan.Proposals = []orbit.Proposal{all}
	}
	if !t.scheduler.Coarse {
		return
	}
	if !t.scheduler.Whole {
		plan.Proposals = perNode(plan.Proposals)
	}
	for i := range plan.Proposals {
		plan.Proposals[i].If = unchanged(&plan.Proposals[i], view)
	}
}

// perNode joins the proposals whose first placement is on the same node.
func perNode(proposals []orbit.Proposal) (out []orbit.Proposal) {
	at := map[orbit.NodeID]int{}
	for _, p := range proposals {
		var node orbit.NodeID
		if len(p.Do) > 0 {
			place, _ := p.Do[0].(orbit.Place)
			node = place.Node
		}
		i, ok := at[node]
		if !ok || node == "" {
			at[node] = len(out)
			out = append(out, p)
			continue
		}
		out[i].Do = append(out[i].Do[:len(out[i].Do):len(out[i].Do)], p.Do...)
	}
	return out
}

// unchanged returns bets that no node on which the proposal places something has changed since the view.
func unchanged(p *orbit.Proposal, view *orbit.View) (bets []orbit.Precondition) {
	seen := map[orbit.NodeID]bool{}
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok || seen[place.Node] {
			continue
		}
		seen[place.Node] = true
		if n := view.State().Node(place.Node); n != nil {
			bets = append(bets, orbit.NodeAt{Node: place.Node, Usage: n.Usage, Specification: n.Specification})
		}
	}
	return bets
}
