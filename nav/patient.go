package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// Patient wraps a navigator and keeps its work from waiting for ever. Small work that comes and goes takes each bit of
// free capacity as soon as there is some, so larger work finds none, whatever its priority. Patient nominates work that
// has waited too long ([orbit.Nominate]): all engines then leave free capacity on the nominated nodes to the nominee,
// unless their work outranks it. Patient claims what the wrapped navigator claims: give the engine one of the two, not
// both.
//
//	pending ─┬─ has lost Conflicts proposals, and is not nominated ─► a nomination
//	         └─ all others ─► the wrapped navigator ─┬─ placed
//	                                                 ├─ left out, its nominated room is free ─► placed there
//	                                                 └─ left out for After ───────────────────► a nomination
//
// [Patient.Plan] says which nodes are chosen, how long a nomination lasts, and what is promised. A Patient belongs to one
// engine and is not safe for concurrent use.
type Patient struct {
	// Navigator is the wrapped navigator; its work is nominated when it has waited too long. Required.
	Navigator orbit.Navigator
	// Conflicts is how many proposals for a capsule or a gang are lost before it is nominated; default 8. Negative:
	// lost proposals never lead to a nomination.
	Conflicts int
	// After is how long a capsule or a gang waits before it is nominated; default 30 s. Negative: waiting never leads
	// to a nomination. The wait begins at [orbit.Submit].At. If that is 0, or the capsule was placed in between, it
	// begins with the first plan that leaves the work out. A class that is parked is planned again only after
	// Engine.ParkFor, so an After that is shorter than ParkFor takes effect late.
	After time.Duration
	// Unaged keeps nominations from ranking above the priority of their work. Large work may then wait for as long as
	// small work of the same priority keeps coming and is nominated too. If Unaged is false, a nomination ranks one
	// higher when its work has waited twice After, and one higher each time that the wait beyond After has doubled, up
	// to Limits.NominationAging. Unaged has no effect in an engine with an Aging: nominations then rank by that, also
	// up to Limits.NominationAging.
	Unaged bool
	// For is how long a nomination lasts unless it is renewed, at most Limits.Nominate; default 2 min. The first plan after half of that time
	// renews it, so For should be several times the sum of Engine.ParkFor, Backoff.Max and the time that a plan takes.
	For time.Duration
	// Filter excludes nodes, as the filter of a placement engine does; nil: no node is excluded. If the wrapped
	// navigator's placement engine has a filter, set the same one here.
	Filter place.Filter

	draft orbit.Draft
	rooms patientRooms
	waits map[waiter]*patientWait
	// Plans so far.
	plans uint64
	// The capsules and gangs that the last plan proposed to place.
	proposed []waiter
	// The size of waits after entries of work that waits no more were last dropped from it.
	kept int
}

// waiter identifies what waits as a whole: a gang of which no member is placed, or a capsule that is in no gang or that
// a running gang lacks. One of the fields is set.
type waiter struct {
	capsule orbit.CapsuleID
	gang    orbit.GangID
}

// patientWait is what a Patient remembers of a waiter that was left out, or whose proposal was lost.
type patientWait struct {
	// When the work was submitted, if its Submit says so, or else when it was first left out; zero: it was never left
	// out.
	since time.Time
	lost  int
	// A proposal was lost while the work was nominated: the wrapped navigator asks for more than the nominated room, or
	// for other room.
	strayed bool
	// A plan has proposed to place the work in its nominated room since the nomination was made.
	tried bool
	// The last plan that checked whether the nominated room was free, and its answer.
	looked uint64
	free   bool
	// No nomination is tried before this time, because the last attempt could not make one; and the number of the plan
	// that made this attempt. Both are zero once a nomination is made.
	again  time.Time
	failed uint64
	// Where the nomination that was made last puts each capsule.
	seats []patientSeat
	// The gang as it was then: the seats are not enough for members that have joined since.
	seated *orbit.Gang
	// The expected wait when the nomination was made (cost), and whether it counts on work that does not end by itself
	// (stays). A nomination with stays is renewed only if fewer capsules have to end than cost says, and otherwise ends
	// at lapse. The next one is made after a pause, which doubles with lapses, the number of such nominations that have
	// ended without being served.
	cost   patientCost
	stays  bool
	lapse  time.Time
	lapses int
}

// nominee is a waiter that is nominated, or that this plan should nominate.
type nominee struct {
	waiter
	*patientWait
	// The capsule, or one of the gang's members among the plan's pending capsules.
	of       *orbit.Capsule
	standing *orbit.Nomination
	// The standing nomination has not ended, and its time is not over, so the engine does not end it before this plan
	// is proposed.
	lives bool
	// The nomination ranks by the sum of these two.
	priority, aged int32
	// The order in which a plan serves nominees: the priority, raised by the engine's Aging if it has one.
	turn int32
}

const (
	// mostNominated is how many nominations a plan tries to make or renew.
	mostNominated = 8
	// triedAgain is how long Patient waits before it tries again after it could not make a nomination; After, if that
	// is shorter.
	triedAgain = time.Second
	// mostLapses bounds how often the pause is doubled after nominations that ended without being served: it is at most
	// 256 times as long as a nomination lasts.
	mostLapses = 8
)

// Claims returns the wrapped navigator's answer.
func (p *Patient) Claims(module string, class orbit.AppClass) bool {
	return p.Navigator == nil || p.Navigator.Claims(module, class) // without one, Plan says so
}

var errNoPatient = errors.New("nav: Patient.Navigator is nil; set it to the navigator whose work is not to wait for ever, as in &nav.Services{}")

// patientPass is one call of Plan.
type patientPass struct {
	*Patient
	view  *orbit.View
	state *orbit.State
	now   time.Time
	plan  orbit.Plan
	// The waiters that the plan proposes to place, and the capsules among them that Patient itself has placed.
	placed map[waiter]bool
	seated map[orbit.CapsuleID]bool
	// The draft is in step with the view, and holds the placements that seatsFree has made in nominated room.
	synced bool
	// The plan's pending capsules; nil once recalls has gone through them and set recall.
	handed []*orbit.Capsule
	recall bool
	quotas orbit.Quotas
	// For the notes.
	nominated, served, recalled int
}

// Plan lets the wrapped navigator plan, and then nominates room for the work that it leaves out, or places it in
// nominated room. Its error is the wrapped navigator's.
//
// A capsule is nominated for one node. A gang's minimum is nominated for nodes of one domain. A member that a running
// gang lacks is nominated as a capsule, in the domain of the other members; what a broken gang lacks comes before other
// work of equal priority. Patient chooses the nodes where room is expected soonest. A capsule with
// [orbit.Spec].RunsAtMost is expected to end that long after its Place.At. If it is late, it is expected to need as long
// again as it is late. Nodes for which this does not tell when there is room come after all others. Among them Patient
// prefers those where the fewest capsules have to end, by an estimate from what they use. Capsules of the classes
// LatencySensitive and BestEffort without RunsAtMost do not end by themselves. Patient does not count on their room
// unless there is nowhere else.
//
// A nomination is renewed before it ends, and then moves to nodes where there is room sooner. It is made again when a
// nomination of higher rank or a change of a node has ended it, and when it ranks higher for its age. A nomination that
// counts on services which do not end by themselves is an exception: it is renewed only if fewer capsules have to end
// than when it was made. Otherwise it ends, so that others can use the room. It is made again after as much time as it
// lasted, then after twice as much, and so on up to 256 times.
//
// What holds: a nomination that no other outranks and that counts on no services is served in the first or second pass
// after all that ran on its nodes when it was made has ended. So fillers of equal priority do not keep for ever what a
// broken gang waits for. Until then the work may be placed elsewhere, or with more members, but once a proposal for that
// is lost, the work goes to the nominated room. A nomination is made within After and Engine.ParkFor of the first plan
// that left the work out, unless nominations that outrank it take all that may be nominated (Limits.NominatedShare). Work
// of higher priority may still come first, and so may work of equal priority that has waited about as long or longer.
// Nothing is promised to a capsule that waits for company ([orbit.Near]) of which nothing runs, to one with a template or
// a parent ([orbit.Start]), to a gang that no domain takes even when it is empty, or to a gang whose members have rules
// about each other that compare domains of several nodes ([orbit.Apart], [orbit.Even]).
//
// Nominated room is lent until it is needed ([orbit.Nominate]). A borrower declares that it runs no longer than the
// nominee is expected to wait, and that it may be evicted for the nominee ([orbit.Spec].Backfills). Room on nodes that
// confirm is not lent. To place the nominee, Patient evicts the borrowers that are in the way. If borrowers come and go
// so fast that this proposal is lost, the nomination lends no more, and the next proposal is not lost to them. So
// lending costs the nominee at most three commits, unless it takes more evictions than one proposal may have: then the
// borrowers have to end by themselves.
//
// Work whose queue has too little quota ([orbit.Queue]) is not nominated.
//
// A plan that leaves nothing out for long looks at each capsule once. The first nomination of a spec looks at each
// node, and later ones only at nodes that have changed; each nomination of a gang looks at each node. A plan makes at
// most one nomination, and tries or renews at most eight. Work for which no nomination could be made takes at most four
// of these tries while other work waits, and is tried again in the order of its last tries. Work that asks for more
// than any node has takes none. The plan's notes begin with "nominated" (nominations made or
// renewed), "fromNominations" (capsules and gangs placed in nominated room), "recalled" (capsules evicted for these)
// and "nodesLooked" (looks at nodes). The notes of the wrapped navigator follow.
func (p *Patient) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	if p.Navigator == nil {
		return plan, errNoPatient
	}
	r := &patientPass{Patient: p, view: view, state: view.State(), now: view.Now(), placed: map[waiter]bool{}, seated: map[orbit.CapsuleID]bool{}, handed: pending}
	p.plans++
	looked := p.rooms.looked
	r.countLost()
	rest, withheld := make([]*orbit.Capsule, 0, len(pending)), []orbit.Unplaced(nil)
	for _, c := range pending {
		if why := r.withholds(c); why != nil {
			withheld = append(withheld, orbit.Unplaced{Capsule: c, Why: why})
		} else {
			rest = append(rest, c)
		}
	}
	if len(rest) > 0 {
		r.plan, err = p.Navigator.Plan(ctx, view, rest)
	}
	r.quotas.Begin(r.state)
	r.plan.Unplaced = append(r.plan.Unplaced, withheld...)
	for i := range r.plan.Proposals {
		for _, do := range r.plan.Proposals[i].Do {
			if do, ok := do.(orbit.Place); ok {
				r.propose(r.state.Capsule(do.Capsule))
			}
		}
	}
	if waiting := r.leftOut(pending); len(waiting) > 0 && ctx.Err() == nil {
		r.serve(ctx, waiting)
	}
	r.plan.Unplaced = slices.DeleteFunc(r.plan.Unplaced, func(u orbit.Unplaced) bool { return u.Capsule != nil && r.seated[u.Capsule.ID] })
	r.plan.Notes = append([]slog.Attr{slog.Int("nominated", r.nominated), slog.Int("fromNominations", r.served), slog.Int("recalled", r.recalled), slog.Int("nodesLooked", p.rooms.looked-looked)}, r.plan.Notes...)
	return r.plan, err
}

// withholds returns why the wrapped navigator must not plan a capsule in this pass; nil: it plans it. A capsule that
// the wrapped navigator places can neither be nominated in the same plan nor placed in nominated room.
func (r *patientPass) withholds(c *orbit.Capsule) error {
	w, n := r.waits[r.waiterOf(c)], r.standing(c)
	switch {
	case c.Spec.Backfills && !n.Lives() && r.recalls():
		return fmt.Errorf("capsule %q: room that is nominated for others is not lent while they are placed there", c.ID)
	case w == nil:
		return nil
	case n.Lives():
		if !w.strayed || !r.now.Before(n.Ends) || !r.seatsFree(r.waiterOf(c), w) {
			return nil
		}
		return fmt.Errorf("capsule %q: a proposal for it was lost to others; it waits for the room that is nominated for it", c.ID)
	case !r.loses(w) || r.now.Before(w.again):
		return nil
	}
	return fmt.Errorf("capsule %q: %d proposals for it were lost to others; room is nominated for it first", c.ID, w.lost)
}

func (r *patientPass) waiterOf(c *orbit.Capsule) waiter { return waiterOf(r.state, c) }

// waiterOf returns the waiter of a capsule: its gang while no member of that is placed, else the capsule itself.
func waiterOf(state *orbit.State, c *orbit.Capsule) waiter {
	if g := state.Gang(c.Gang()); g != nil && g.Total() == 0 {
		return waiter{gang: c.Gang()}
	}
	return waiter{capsule: c.ID}
}

// seatsFree reports whether all nominated room of a waiter is free, or taken only by borrowers. It asks before the
// wrapped navigator plans. If it reports false, the wrapped navigator plans the work, because other room may be free.
func (r *patientPass) seatsFree(of waiter, w *patientWait) bool {
	if w.looked != r.plans { // the members of a gang share the answer
		if !r.synced {
			r.draft.Sync(r.view)
			r.synced = true
		}
		w.looked, w.free = r.plans, r.take(of, w)
	}
	return w.free
}

// recalls reports whether any pending capsule can now be placed in nominated room that lends. Work that backfills is
// then withheld, because it could borrow the room in the same plan again and again.
func (r *patientPass) recalls() bool {
	if r.handed == nil {
		return r.recall
	}
	for _, c := range r.handed {
		of := r.waiterOf(c)
		w, n := r.waits[of], r.nomination(of)
		r.recall = r.recall || w != nil && n.Lives() && n.Lends > 0 && r.now.Before(n.Ends) && r.seatsFree(of, w)
	}
	r.handed = nil
	return r.recall
}

// propose records that the plan places a capsule, or a member of a gang.
func (r *patientPass) propose(c *orbit.Capsule) {
	if c == nil || r.placed[r.waiterOf(c)] {
		return
	}
	r.placed[r.waiterOf(c)] = true
	r.proposed = append(r.proposed, r.waiterOf(c))
}

// countLost counts a lost proposal for each waiter that the last plan proposed to place and that still waits, and
// forgets the placed ones. Now and then it also drops the entries of work that no longer waits.
func (r *patientPass) countLost() {
	for _, w := range r.proposed {
		if r.waitsFor(w) {
			lost := r.wait(w)
			lost.lost++
			lost.strayed = lost.strayed || r.nomination(w).Lives()
		} else {
			delete(r.waits, w)
		}
	}
	r.proposed = r.proposed[:0]
	if len(r.waits) > 2*r.kept+1024 {
		maps.DeleteFunc(r.waits, func(w waiter, _ *patientWait) bool { return !r.waitsFor(w) })
		r.kept = len(r.waits)
	}
}

func (r *patientPass) waitsFor(w waiter) bool { return w.waits(r.state) }

// waits reports whether the capsule is pending, or no member of the gang is placed.
func (w waiter) waits(state *orbit.State) bool {
	if g := state.Gang(w.gang); g != nil {
		return g.Total() == 0
	}
	c := state.Capsule(w.capsule)
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

// standing returns the nomination of a capsule or its gang, or the record of one that has ended; nil: there was none.
func (r *patientPass) standing(c *orbit.Capsule) *orbit.Nomination {
	return r.nomination(r.waiterOf(c))
}

func (r *patientPass) nomination(w waiter) *orbit.Nomination {
	if g := r.state.Gang(w.gang); g != nil {
		return g.Nomination
	}
	if c := r.state.Capsule(w.capsule); c != nil {
		return c.Nomination()
	}
	return nil
}

// loses reports whether the work has lost so many proposals that it is to be nominated.
func (p *Patient) loses(w *patientWait) bool {
	return p.Conflicts >= 0 && w.lost >= cmp.Or(p.Conflicts, 8)
}

// leftOut returns the pending work that the plan leaves out and that is nominated, or has waited or lost enough to be:
// highest priority first, and then longest wait first.
func (r *patientPass) leftOut(pending []*orbit.Capsule) (waiting []*nominee) {
	seen := map[waiter]bool{}
	after := cmp.Or(r.After, 30*time.Second)
	for _, c := range pending {
		w := r.waiterOf(c)
		if r.placed[w] || seen[w] || !r.waitsFor(w) {
			continue
		}
		seen[w] = true
		r.checkSeats(w, r.wait(w))
		n := &nominee{waiter: w, patientWait: r.wait(w), of: c, standing: r.standing(c), priority: c.Spec.Priority}
		if n.since.IsZero() {
			n.since = r.waitsSince(c)
		}
		n.lives = n.standing.Lives() && r.now.Before(n.standing.Ends)
		if !n.lives && n.stays && !r.now.Before(n.lapse) {
			n.again, n.stays = n.lapse.Add(r.lasts()<<n.lapses), false
			n.lapses = min(n.lapses+1, mostLapses)
		}
		late := r.now.Sub(n.since) - max(0, after)
		if due := after >= 0 && late >= 0 || r.loses(n.patientWait); !n.lives && (!due || r.now.Before(n.again) || !r.hasQuota(n)) {
			continue
		}
		r.age(n, late, after)
		waiting = append(waiting, n)
	}
	slices.SortStableFunc(waiting, func(a, b *nominee) int {
		return cmp.Or(cmp.Compare(b.turn, a.turn), btoi(isBroken(r.state, b.of.Gang()))-btoi(isBroken(r.state, a.of.Gang())), a.since.Compare(b.since))
	})
	return waiting
}

// hasQuota reports whether the quotas of its queue admit the work. Room is not nominated for work that could not be placed there.
func (r *patientPass) hasQuota(n *nominee) bool {
	members, _ := wantedOf(r.state, n.of, n.gang)
	admitted := 0
	for admitted < len(members) {
		a := askOf(members[admitted].Spec)
		if !r.quotas.Takes(a.spec, a.model, a.n) {
			break
		}
		r.quotas.Charge(a.spec, a.model, a.n)
		admitted++
	}
	for _, m := range members[:admitted] {
		a := askOf(m.Spec)
		r.quotas.Charge(a.spec, a.model, -a.n)
	}
	return admitted == len(members)
}

// age sets how the nomination ranks and when it is served, for work that is late by this much. A gang has the lowest
// priority of its roles with members left.
func (r *patientPass) age(n *nominee, late, after time.Duration) {
	if g := r.state.Gang(n.gang); g != nil {
		n.priority, _ = g.Priorities()
	}
	n.turn = n.priority
	most := int32(r.state.Limits().NominationAging)
	switch {
	case r.view.Aging() != orbit.Aging{}:
		n.turn = r.view.Aged(n.of)
		for member := range r.state.Members(n.gang) {
			n.turn = min(n.turn, r.view.Aged(member))
		}
		n.aged = min(n.turn-n.priority, most)
	case after > 0 && late > 0 && !r.Unaged:
		n.aged = min(int32(bits.Len64(uint64(late/after))), most)
	}
}

// waitsSince returns when the wait of a capsule began that was not left out before: at its submission, if that is known
// and the capsule was never placed, or else now.
func (r *patientPass) waitsSince(c *orbit.Capsule) time.Time {
	if at := c.SubmitTime().Time(); c.SubmitTime() != 0 && c.PlacedAt == 0 && at.Before(r.now) {
		return at
	}
	return r.now
}
