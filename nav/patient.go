package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// Patient keeps the work of a navigator from waiting for ever. Small work that comes and goes takes each bit of room as it
// becomes free, so what asks for more than one bit finds none, whatever its priority. Patient nominates what has waited
// too long ([orbit.Nominate]): room that becomes free on the nominated nodes is then left to it by all that it outranks,
// in every engine, until there is enough. It wraps any navigator, claims what that one claims, and so runs instead of it.
//
//	pending ─┬─ has lost Conflicts proposals, and is not nominated ─► a nomination
//	         └─ all others ─► the wrapped navigator ─┬─ placed
//	                                                 ├─ left out, its nominated room is free ─► placed there
//	                                                 └─ left out for After ───────────────────► a nomination
//
// A capsule is nominated for the node, and a gang for the nodes of one domain, where least has to be freed for it: room
// that work of the classes LatencySensitive and BestEffort takes does not count, because that does not end by itself,
// unless there is nowhere else. A gang is nominated for its minimum; members above that are topped up by the wrapped
// navigator. While it waits, a nomination is renewed before it ends, and moves to where less has to be freed. It is made
// anew when it has been ended for one of higher rank, or because a node of it was changed.
//
// What holds: a nomination that no other outranks is served as soon as what ran on its nodes when it was made has ended,
// and the engine has passed once more. It is made within After and Engine.ParkFor of the first plan that left the work out,
// unless others that outrank it take all that may be nominated (Limits.NominatedShare). Work of higher priority may still come first. Nothing is promised to a capsule that waits for company ([orbit.Near]) of
// which nothing runs, to one with a [orbit.Start], or to a gang that no domain takes even when it is empty.
//
// Among what has equal priority, what has waited longer goes first: its nomination ranks one higher for each Ages that it
// has waited beyond After, up to Limits.NominationAging.
//
// In a plan that leaves out nothing for long, Patient costs a look at each capsule. A nomination costs a look at each node
// and at what runs there; a plan makes one, and renews or tries at most eight. It belongs to one engine and is not safe for
// concurrent use.
//
// Its notes are "nominated", nominations made or renewed, and "fromNominations", capsules and gangs that were placed in
// their nominated room; then those of the wrapped navigator.
type Patient struct {
	// Navigator is the one whose work is nominated when it has waited too long. Required.
	Navigator orbit.Navigator
	// Conflicts is after how many proposals for it that were not committed a capsule or a gang is nominated; default 8.
	// Negative: never for that reason.
	Conflicts int
	// After is how long a capsule or a gang is left out before it is nominated; default 30 s. Negative: never for that
	// reason. Classes that are parked come back every Engine.ParkFor only, so a shorter time needs a shorter one there.
	After time.Duration
	// Ages is how long work waits for its nomination to rank one higher; default After. Negative: it never does, and then
	// work of equal priority that comes in large numbers may be nominated before it again and again.
	Ages time.Duration
	// For is how long a nomination lasts unless it is renewed; default 2 min. It is renewed in the first plan after half
	// of that, so it should be several times Engine.ParkFor and Backoff.Max.
	For time.Duration
	// Filter takes nodes out of the choice, as that of a placement engine does. Nil: none. If the wrapped navigator's
	// placement engine has a filter, set it here too.
	Filter place.Filter

	draft orbit.Draft
	waits map[waiter]*patientWait
	// What the last plan has proposed to place.
	proposed []waiter
	// How many waits were left when those of work that waits no more were last dropped.
	kept int
}

// waiter names a capsule that is in no gang, or a gang.
type waiter struct {
	capsule orbit.CapsuleID
	gang    orbit.GangID
}

// patientWait is what is remembered of work that was left out, or whose proposal was lost.
type patientWait struct {
	// When it was first left out; zero: never.
	since time.Time
	lost  int
	// No nomination is tried before this, because none could be made.
	again time.Time
	// Where the members go, of the nomination that stands.
	seats []patientSeat
}

const (
	// mostNominated is how many nominations a plan tries to make.
	mostNominated = 8
	// triedAgain is how long nothing is tried after a nomination could not be made.
	triedAgain = time.Second
)

// Claims returns the wrapped navigator's answer.
func (p *Patient) Claims(module string, class orbit.AppClass) bool {
	return p.Navigator != nil && p.Navigator.Claims(module, class)
}

var errNoPatience = errors.New("nav: Patient.Navigator is nil; set it to the navigator whose work is not to wait for ever, as in &nav.Services{}")

// patientPass is the state of one call of Plan.
type patientPass struct {
	*Patient
	view   *orbit.View
	state  *orbit.State
	now    time.Time
	placed map[waiter]bool
	// Capsules that Patient itself places.
	seated map[orbit.CapsuleID]bool
	// Capsules that were not handed on, because their proposals are lost again and again.
	withheld          []*orbit.Capsule
	nominated, served int
}

// Plan asks the wrapped navigator, whose error it returns, and then looks after what that has left out.
func (p *Patient) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if p.Navigator == nil {
		return orbit.Plan{}, errNoPatience
	}
	r := &patientPass{Patient: p, view: view, state: view.State(), now: view.Now(), placed: map[waiter]bool{}, seated: map[orbit.CapsuleID]bool{}}
	r.countLost()
	rest := slices.DeleteFunc(slices.Clone(pending), r.withholds)
	plan, err := orbit.Plan{}, error(nil)
	if len(rest) > 0 {
		plan, err = p.Navigator.Plan(ctx, view, rest)
	}
	for i := range plan.Proposals {
		for _, do := range plan.Proposals[i].Do {
			if do, ok := do.(orbit.Place); ok {
				r.proposes(r.state.Capsule(do.Capsule))
			}
		}
	}
	if waiting := r.leftOut(pending); len(waiting) > 0 && ctx.Err() == nil {
		r.serve(&plan, waiting)
	}
	for _, c := range r.withheld {
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf(
			"capsule %q: %d proposals for it were lost to others; room is nominated for it first", c.ID, r.waits[waiterOf(c)].lost)})
	}
	plan.Unplaced = slices.DeleteFunc(plan.Unplaced, func(u orbit.Unplaced) bool { return u.Capsule != nil && r.seated[u.Capsule.ID] })
	plan.Notes = append([]slog.Attr{slog.Int("nominated", r.nominated), slog.Int("fromNominations", r.served)}, plan.Notes...)
	return plan, err
}

func waiterOf(c *orbit.Capsule) waiter {
	if c.Gang != "" {
		return waiter{gang: c.Gang}
	}
	return waiter{capsule: c.ID}
}

// proposes notes that the plan places a capsule, or a member of a gang.
func (r *patientPass) proposes(c *orbit.Capsule) {
	if c == nil || r.placed[waiterOf(c)] {
		return
	}
	r.placed[waiterOf(c)] = true
	r.Patient.proposed = append(r.Patient.proposed, waiterOf(c))
}

// countLost counts what the last plan has proposed and is not placed, and forgets what does not wait any more.
func (r *patientPass) countLost() {
	for _, w := range r.proposed {
		if r.waitsFor(w) {
			r.wait(w).lost++
		} else {
			delete(r.waits, w)
		}
	}
	r.Patient.proposed = r.proposed[:0]
	if len(r.waits) > 2*r.kept+1024 {
		maps.DeleteFunc(r.waits, func(w waiter, _ *patientWait) bool { return !r.waitsFor(w) })
		r.Patient.kept = len(r.waits)
	}
}

// waitsFor reports whether a capsule is pending, or a gang is with no member placed.
func (r *patientPass) waitsFor(w waiter) bool {
	if w.gang != "" {
		g := r.state.Gang(w.gang)
		return g != nil && g.Total() == 0
	}
	c := r.state.Capsule(w.capsule)
	return c != nil && c.Pending()
}

func (p *Patient) wait(w waiter) *patientWait {
	if p.waits == nil {
		p.waits = map[waiter]*patientWait{}
	}
	if p.waits[w] == nil {
		p.waits[w] = &patientWait{}
	}
	return p.waits[w]
}

// standing returns the living nomination of a waiter, and what is kept of one that has ended.
func (r *patientPass) standing(w waiter) (n *orbit.Nomination) {
	if w.gang != "" {
		if g := r.state.Gang(w.gang); g != nil {
			n = g.Nomination
		}
	} else if c := r.state.Capsule(w.capsule); c != nil {
		n = c.Nomination
	}
	return n
}

// losesOut reports whether so many proposals for it were lost that it is nominated.
func (p *Patient) losesOut(w *patientWait) bool {
	return p.Conflicts >= 0 && w.lost >= cmp.Or(p.Conflicts, 8)
}

// withholds reports whether a capsule is kept from the wrapped navigator in this plan, so that it can be nominated: what a
// plan places cannot be.
func (r *patientPass) withholds(c *orbit.Capsule) bool {
	w := r.waits[waiterOf(c)]
	if w == nil || !r.losesOut(w) || r.now.Before(w.again) || r.standing(waiterOf(c)).Lives() {
		return false
	}
	r.withheld = append(r.withheld, c)
	return true
}

// leftOut returns what the plan leaves out of those that were handed over, highest priority first, and then those that
// wait longest.
func (r *patientPass) leftOut(pending []*orbit.Capsule) (waiting []*nominee) {
	seen := map[waiter]bool{}
	for _, c := range pending {
		w := waiterOf(c)
		if r.placed[w] || seen[w] || !r.waitsFor(w) {
			continue
		}
		seen[w] = true
		wait := r.wait(w)
		if wait.since.IsZero() {
			wait.since = r.now
		}
		if standing := r.standing(w); standing.Lives() || r.due(wait) {
			waiting = append(waiting, &nominee{waiter: w, capsule: c, wait: wait, standing: standing, priority: r.priority(c)})
		}
	}
	slices.SortStableFunc(waiting, func(a, b *nominee) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), a.wait.since.Compare(b.wait.since))
	})
	return waiting
}

// late reports whether something was left out for so long that it is nominated.
func (p *Patient) late(w *patientWait, now time.Time) bool {
	return p.After >= 0 && now.Sub(w.since) >= p.after()
}

// due reports whether something that was left out is to be nominated in this plan.
func (r *patientPass) due(w *patientWait) bool {
	return (r.late(w, r.now) || r.losesOut(w)) && !r.now.Before(w.again)
}

func (p *Patient) after() time.Duration { return max(0, cmp.Or(p.After, 30*time.Second)) }

// aged is how far a nomination ranks above its priority.
func (r *patientPass) aged(w *patientWait) int32 {
	each := cmp.Or(r.Ages, r.after())
	if each <= 0 || w.since.IsZero() {
		return 0
	}
	steps := max(0, r.now.Sub(w.since)-r.after()) / each
	return int32(min(steps, time.Duration(r.state.Limits().NominationAging)))
}

// priority is that by which a nomination ranks.
func (r *patientPass) priority(c *orbit.Capsule) int32 {
	least := c.Spec.Priority
	if g := r.state.Gang(c.Gang); g != nil {
		for i := range g.Gang.Roles {
			least = min(least, g.Gang.Roles[i].Spec.Priority)
		}
	}
	return least
}

// serve places what waits in the room that is nominated for it, and nominates or renews. It works on a draft on which is
// what the plan does so far. A plan makes one nomination at most that is not a renewal: so those of equal rank are made in
// the order in which they came to wait, and none rests on another one that the ledger may refuse.
func (r *patientPass) serve(plan *orbit.Plan, waiting []*nominee) {
	r.draft.Sync(r.view)
	for i := range plan.Proposals {
		repeat(&r.draft, r.state, &plan.Proposals[i])
	}
	tried, made, refused := 0, false, false
	for _, n := range waiting {
		if n.standing.Lives() && r.seat(plan, n) {
			r.served++
			continue
		}
		renews := n.standing.Lives()
		if renews && (r.now.Before(n.wait.again) || n.wait.seats != nil && n.standing.Ends.Sub(r.now) > r.lasts()/2) {
			continue
		}
		if tried++; refused || !renews && made || tried > mostNominated {
			n.next = made && !refused
			continue
		}
		done, err := r.nominate(plan, n)
		made, refused = made || done && !renews, err != nil
	}
	if made {
		r.callBack(plan, waiting)
	}
}

// callBack keeps the classes of what is to be nominated next from being parked, so that it is handed over again at once.
func (r *patientPass) callBack(plan *orbit.Plan, waiting []*nominee) {
	next := map[waiter]bool{}
	for _, n := range waiting {
		if n.next {
			next[n.waiter] = true
		}
	}
	for i, u := range plan.Unplaced {
		if u.Capsule != nil && next[waiterOf(u.Capsule)] {
			plan.Unplaced[i].Why = fmt.Errorf("%s; room is nominated for it soon", u.Why.Error()) // no NoFit any more
		}
	}
}

// repeat does on a draft what a proposal does: all of it, or nothing. What the draft refuses, the ledger will refuse too,
// or it takes no room.
func repeat(draft *orbit.Draft, state *orbit.State, p *orbit.Proposal) {
	start := draft.Checkpoint()
	for _, do := range p.Do { // what a proposal releases makes room for it, in any order
		if do, ok := do.(orbit.Release); ok {
			_ = draft.Release(do)
		}
	}
	for _, do := range p.Do {
		var err error
		switch do := do.(type) {
		case orbit.Place:
			if c := state.Capsule(do.Capsule); c != nil {
				err = draft.Place(c, orbit.Choice{Node: state.Node(do.Node), Devices: do.Devices})
			}
		case orbit.Hold:
			err = draft.Hold(do)
		case orbit.Nominate:
			err = draft.Nominate(do)
		}
		if err != nil {
			draft.Rollback(start)
			return
		}
	}
	draft.Propose()
}

func (p *Patient) lasts() time.Duration { return cmp.Or(p.For, 2*time.Minute) }

// seat places a nominee in the room that is nominated for it, if all of that is free.
func (r *patientPass) seat(plan *orbit.Plan, n *nominee) bool {
	if len(n.wait.seats) == 0 {
		return false
	}
	start := r.draft.Checkpoint()
	for _, s := range n.wait.seats {
		c := r.state.Capsule(s.capsule)
		if c == nil || !c.Pending() || !r.seatOne(c, s.node) {
			r.draft.Rollback(start)
			return false
		}
	}
	var bets []orbit.Precondition
	if n.gang != "" {
		bets = append(bets, orbit.GangUnplaced{Gang: n.gang})
	}
	proposal := r.draft.Propose(bets...)
	if limits := r.state.Limits(); len(proposal.If) > limits.Preconditions || len(proposal.Do) > limits.Commitments {
		r.draft.Rollback(start)
		return false
	}
	plan.Proposals = append(plan.Proposals, proposal)
	r.proposes(n.capsule)
	for _, s := range n.wait.seats {
		r.seated[s.capsule] = true
	}
	return true
}

// seatOne places one capsule on a node of the draft.
func (r *patientPass) seatOne(c *orbit.Capsule, at orbit.NodeID) bool {
	r.draft.Ask(c)
	state := r.state.Node(at)
	if state == nil {
		return false
	}
	node := r.draft.Node(state.Index())
	if r.draft.Misfit(node, c.Spec) != (orbit.Misfit{}) || r.filtered(node, c.Spec) {
		return false
	}
	devices, ok := node.PickDevices(c.Spec)
	return ok && r.draft.Place(c, orbit.Choice{Node: node, Devices: devices}) == nil
}

func (r *patientPass) filtered(n *orbit.NodeState, spec *orbit.Spec) bool {
	return r.Filter != nil && r.Filter(n, r.view.Report(n), spec) != ""
}
