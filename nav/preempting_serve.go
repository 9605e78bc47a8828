package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/victims"
	"github.com/orbitsched/orbit/place"
)

// How a Preempting serves the work that the wrapped navigator has left out: it moves others, or chooses victims, keeps to
// its limits, and evicts or nominates.

// serve places waiting work in the room of others that move, or of victims. It works on a draft that first repeats the plan's proposals.
func (r *preemptPass) serve(ctx context.Context, waiting []orbit.Unplaced) {
	if r.engine == nil {
		r.engine = &place.Indexed{Filter: r.Filter, FilterVersion: r.FilterVersion}
	}
	r.draft.Sync(r.view)
	for i := range r.plan.Proposals {
		_ = reserve(&r.draft, &r.plan.Proposals[i]) // the ledger will refuse such a proposal too
	}
	r.limit()
	r.shareGangTries(waiting)
	for _, u := range waiting {
		if ctx.Err() != nil {
			break
		}
		r.said[u.Capsule.ID] = r.serveOne(ctx, u)
	}
	placed := map[orbit.CapsuleID]bool{}
	for i := range r.plan.Proposals {
		for _, do := range r.plan.Proposals[i].Do {
			if place, ok := do.(orbit.Place); ok {
				placed[place.Capsule] = true
			}
		}
	}
	r.plan.Unplaced = slices.DeleteFunc(r.plan.Unplaced, func(u orbit.Unplaced) bool {
		return u.Capsule != nil && placed[u.Capsule.ID] // only placed capsules: of a gang perhaps just the minimum
	})
	for i := range r.plan.Unplaced {
		u := &r.plan.Unplaced[i]
		if u.Capsule != nil && r.said[u.Capsule.ID] != nil {
			u.Why = r.said[u.Capsule.ID]
		}
		if u.Capsule != nil && r.hoping[u.Capsule.Spec] {
			u.Why = despiteMoves(u.Why)
		}
		// Others may leave more room than was needed, so no class may be parked: the text stays, the *NoFit goes.
		if r.victims+r.moved > 0 && u.Why != nil {
			u.Why = unparked{u.Why}
		}
	}
}

// shareGangTries divides the searches for gangs between those that are due.
func (r *preemptPass) shareGangTries(waiting []orbit.Unplaced) {
	var due []orbit.GangID
	var failed []uint64
	seen := map[orbit.GangID]bool{"": true}
	for _, u := range waiting {
		gang := u.Capsule.Gang()
		if w := r.wait(r.waiterOf(u.Capsule)); !seen[gang] && !r.now.Before(w.again) {
			due, failed = append(due, gang), append(failed, w.failed)
		}
		seen[gang] = true
	}
	var again []bool
	again, r.gangsLeft = shareTries(failed, gangsTried)
	r.again = map[orbit.GangID]bool{}
	for i, gang := range due {
		r.again[gang] = again[i]
	}
}

// limit computes how many capsules the plan may move, and how many victims it may have, by Victims and by Hourly.
func (r *preemptPass) limit() {
	const all = 1 << 30
	r.movesLeft, r.left, r.leftWhy = cmp.Or(r.Moves, all), all, ""
	if r.Victims != 0 {
		r.left, r.leftWhy = max(0, r.Victims), fmt.Sprintf("a plan may evict %d", max(0, r.Victims))
	}
	if r.Hourly <= 0 {
		return
	}
	placed, spent := 0, 0
	for n := range r.draft.Nodes() {
		placed += n.Capsules
	}
	for _, s := range r.spent {
		spent += s.count
	}
	if most := int(r.Hourly * float64(placed+spent)); most-spent < r.left {
		r.left, r.leftWhy = max(0, most-spent), fmt.Sprintf("%d were evicted in the last hour, of %d", spent, most)
	}
}

// serveOne places a capsule, or the gang of which it is a member, and returns nil. If it cannot, it returns the reason,
// which may be the one that the wrapped navigator gave.
func (r *preemptPass) serveOne(ctx context.Context, u orbit.Unplaced) error {
	c := u.Capsule
	if c.Gang() != "" {
		why, known := r.gangs[c.Gang()]
		if !known {
			why = r.serveGang(ctx, c)
			r.gangs[c.Gang()] = why
		}
		return because(u.Why, why)
	}
	if r.moveFor(c) {
		return nil
	}
	if why, full := r.full[c.Spec]; full && !c.Nomination().Lives() && !victims.Stops(c) {
		return because(u.Why, why)
	}
	r.tried++
	e, err := r.choose(c)
	if err != nil {
		var kept *orbit.Rejection
		_ = errors.As(err, &kept)
		if r.full[c.Spec] = keptBy(errNobody, kept); r.reclaimsLater(c) {
			r.full[c.Spec] = errReclaims
		}
		return because(u.Why, r.full[c.Spec])
	}
	withheld := r.withheld[waiter{capsule: c.ID}]
	if len(e.Victims) == 0 && !withheld { // free room would do, but the wrapped navigator has chosen not to use it
		return u.Why
	}
	if why := cmp.Or(r.exceeds(e.Victims, e.Highest), r.defers(c, e.Victims)); why != nil {
		return because(u.Why, why)
	}
	if room := roomFor(c, &e); (withheld || r.wait(r.waiterOf(c)).lost > 0) && !isNominated(c.Nomination(), room) &&
		r.nominate(r.waiterOf(c), []orbit.NominatedRoom{room}) {
		return because(u.Why, errNominated)
	}
	start := r.draft.Checkpoint()
	if err := e.On(&r.draft, c); err != nil {
		return because(u.Why, limited{reasonOf(err)})
	}
	made := r.draft.Propose()
	if err := r.judge(c, made); err != nil {
		r.draft.Rollback(start)
		return because(u.Why, limited{reasonOf(err)})
	}
	r.propose(r.waiterOf(c), made, e.Victims)
	return nil
}

// judge returns why the ledger would refuse a proposal for work of a queue; nil: it would not, or the work names none. What it
// spares of the victims of the plan's earlier proposals changes shares, so it may refuse what the draft permits.
func (r *preemptPass) judge(c *orbit.Capsule, made orbit.Proposal) error {
	if c.Spec.Queue == "" {
		return nil
	}
	_, err := r.state.Judge(made)
	return err
}

// reclaimsLater reports whether the plan places capsules of a queue that borrows, which may have to leave for the capsule in the
// next plan.
func (r *preemptPass) reclaimsLater(c *orbit.Capsule) (later bool) {
	if c.Spec.Queue == "" {
		return false
	}
	r.search.Begin(&r.draft, c)
	for i := range r.plan.Proposals {
		for _, do := range r.plan.Proposals[i].Do {
			if place, ok := do.(orbit.Place); ok && !later {
				v := r.state.Capsule(place.Capsule)
				later = v != nil && v.Spec.Queue != "" && r.search.MayReclaim(v.Spec.Queue)
			}
		}
	}
	return later
}

// choose returns the node on which room is nominated for the capsule, if victims there make enough room, or else the
// node whose victims are best.
func (r *preemptPass) choose(c *orbit.Capsule) (place.Eviction, error) {
	if c.Nomination().Lives() {
		r.draft.LookAs(c)
		defer r.draft.LookAs(nil)
		r.search.Begin(&r.draft, c)
		for i := range c.Nomination().Parts {
			at := r.state.Node(c.Nomination().Parts[i].Node)
			if at == nil || r.filtered(r.draft.Node(at.Index()), c.Spec) {
				continue
			}
			if f, ok := r.search.On(r.draft.Node(at.Index())); ok && r.search.Settle(&f) {
				return place.Eviction{Choice: orbit.Choice{Node: f.Node, Devices: f.Devices}, Victims: f.Victims, Highest: f.Priority()}, nil
			}
		}
	}
	return r.engine.BestEvicting(&r.draft, c)
}

// filtered reports whether the filter excludes a node.
func (r *preemptPass) filtered(n *orbit.NodeState, spec *orbit.Spec) bool {
	return r.Filter != nil && r.Filter(n, r.view.Report(n), spec) != ""
}

// exceeds returns an error if the plan may not evict so many more victims, and nil if it may.
func (r *preemptPass) exceeds(leave []*orbit.Capsule, highest int32) error {
	if len(leave) <= r.left {
		return nil
	}
	return limited{fmt.Sprintf("would need %s of priority %d or less; %s", quantity(len(leave), "victim"), highest, r.leftWhy)}
}

// defers returns an error if work of a queue has to wait for the next plan, because this one evicts others already and victims of
// several queues would leave for it. What the earlier proposals leave free is not known to the draft, so the ledger may
// spare victims of one queue, by which those of another would leave unjustly.
func (r *preemptPass) defers(c *orbit.Capsule, leave []*orbit.Capsule) error {
	if c.Spec.Queue == "" || r.victims == 0 || !slices.ContainsFunc(leave, func(v *orbit.Capsule) bool { return v.Spec.Queue != leave[0].Spec.Queue }) {
		return nil
	}
	return errDeferred
}

// nominate adds a proposal that nominates room to the plan. It reports false if the draft refuses it, as the ledger
// would.
func (r *preemptPass) nominate(w waiter, parts []orbit.NominatedRoom) bool {
	do := orbit.Nominate{Capsule: w.capsule, Gang: w.gang, Parts: parts, Ends: r.now.Add(min(2*time.Minute, r.state.Limits().LongestNomination()))}
	if err := r.draft.Nominate(do); err != nil {
		return false
	}
	r.plan.Proposals = append(r.plan.Proposals, r.draft.Propose())
	r.nominated++
	r.wait(w).lost = 0
	r.withholdAgain(w)
	return true
}

// isNominated reports whether a nomination lives and has room on the nodes of all these parts. Otherwise it does not
// protect an eviction on these nodes: small work can take the room there again and again.
func isNominated(n *orbit.Nomination, parts ...orbit.NominatedRoom) bool {
	return n.Lives() && !slices.ContainsFunc(parts, func(want orbit.NominatedRoom) bool {
		return !slices.ContainsFunc(n.Parts, func(has orbit.NominatedRoom) bool { return has.Node == want.Node })
	})
}

// roomFor returns the room to nominate for a capsule on the node that was chosen for it.
func roomFor(c *orbit.Capsule, e *place.Eviction) orbit.NominatedRoom {
	room := orbit.NominatedRoom{Node: e.Choice.Node.Node.ID, Room: c.Spec.Envelope.Reservation, Devices: e.Choice.Devices}
	if room.Devices != 0 {
		room.Milli = c.Spec.Devices.Milli
	}
	return room
}

// propose adds a proposal to the plan, and records its victims. There are none if the work is placed in its nominated
// room, or in free room because it could not be nominated.
func (r *preemptPass) propose(w waiter, made orbit.Proposal, leave []*orbit.Capsule) {
	r.plan.Proposals = append(r.plan.Proposals, made)
	r.withholdAgain(w)
	if len(leave) == 0 {
		return
	}
	p := preemption{waiter: w, victims: slices.Clone(leave)}
	for _, do := range made.Do {
		if place, ok := do.(orbit.Place); ok {
			p.of = place.Capsule
		}
	}
	r.proposed = append(r.proposed, p)
	r.preempted++
	r.victims += len(leave)
	r.left -= len(leave)
}

// withholdAgain makes the next plan withhold work again that this one has withheld, if it still waits then.
func (r *preemptPass) withholdAgain(w waiter) {
	if r.withheld[w] {
		r.wait(w).strayed = mostStrayed
	}
}
