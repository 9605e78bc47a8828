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

// Patient keeps the work of a navigator from waiting for ever. Small work that comes and goes takes each bit of room as it
// becomes free, so what asks for more finds none, whatever its priority. Patient nominates what has waited too long
// ([orbit.Nominate]): room that becomes free on the nominated nodes is then left to it by all that it outranks, in every
// engine. Patient claims what the wrapped navigator claims, and so runs instead of it.
//
//	pending ─┬─ has lost Conflicts proposals, and is not nominated ─► a nomination
//	         └─ all others ─► the wrapped navigator ─┬─ placed
//	                                                 ├─ left out, its nominated room is free ─► placed there
//	                                                 └─ left out for After ───────────────────► a nomination
//
// A capsule is nominated for the node, and the minimum of a gang for the nodes of one domain, where there is room soonest by what
// is known: what has a [orbit.Spec].RunsAtMost ends so long after its Place.At; if it is late, it is taken to be late for as long again.
// Where that does not tell when there is room, which comes after all where it does, the fewest capsules have to end by an
// estimate from what they use. A member that a running gang lacks is nominated as a capsule, in the domain of the others.
// Room that the classes LatencySensitive and BestEffort take without RunsAtMost is not counted on, because they
// do not end by themselves, unless there is nowhere else. A nomination is renewed before it ends, and moves then to where there is
// room sooner. It is made anew when one of higher rank has ended it, or a change of a node, and when it ranks higher for its age.
// Only one that counts on such services is not renewed unless fewer have to end than when it was made: it ends, so that others use
// the room meanwhile, and is made again after as much time as it lasted, then after twice as much, and so on up to 256 times.
//
// What holds: a nomination that no other outranks and that counts on no services is served as soon as what ran on its nodes
// when it was made has ended, and the engine has passed once more, or twice. Until then the work may be placed elsewhere, or
// with more members; once a proposal for that is lost it goes to the nominated room. A nomination is made within After and
// Engine.ParkFor of the first plan that left the work out, unless others that outrank it take all that may be nominated
// (Limits.NominatedShare). Work of higher priority may still come first, and what waits about as long, or longer, of equal
// priority. Nothing is promised to a capsule that waits for company ([orbit.Near]) of which nothing runs, to one with a
// template or a parent ([orbit.Start]), or to a gang that no domain takes even when it is empty.
//
// Nominated room is lent until it is needed ([orbit.Nominate]): to what says that it runs no longer than the nominee is expected to
// wait, by what is known of when work ends, and that it may be evicted for it ([orbit.Spec].Backfills); not on nodes that confirm. To place the nominee Patient
// evicts as much of it as is in the way. If others come and go so fast that this proposal is lost, the nomination lends no more, and
// the next one is not lost to them. So lending costs the nominee three commits at most; but if it takes more evictions
// than a proposal may have, the borrowers have to end by themselves.
//
// A plan that leaves nothing out for long costs a look at each capsule. The first nomination of a spec costs a look at each
// node, and a later one a look at those that have changed; that of a gang a look at each node. A plan makes one, and renews
// or tries at most eight. Notes are "nominated", nominations made or renewed, "fromNominations", capsules and gangs placed
// in nominated room, "recalled", the capsules that were evicted for these, and "nodesLooked", the looks at nodes that this cost;
// then those of the wrapped navigator. A Patient belongs to one engine and is not safe for concurrent use.
type Patient struct {
	// Navigator is the one whose work is nominated when it has waited too long. Required.
	Navigator orbit.Navigator
	// Conflicts is after how many proposals for it that were not committed a capsule or a gang is nominated; default 8.
	// Negative: never for that reason.
	Conflicts int
	// After is how long a capsule or a gang waits before it is nominated; default 30 s. Negative: never for that reason. It
	// waits since [orbit.Submit].At, but if that is 0, or it was placed meanwhile, since the first plan that left it out. Classes
	// that are parked come back every Engine.ParkFor only, so a shorter time needs a shorter one there.
	After time.Duration
	// Unaged keeps nominations from ranking above the priority of the work: large work may then wait for as long as small
	// work of the same priority comes that is nominated too. It has no effect where the engine has an Aging, by which nominations
	// rank then, up to Limits.NominationAging. Otherwise a nomination that is made After beyond After ranks
	// one higher, and one more each time that this wait has doubled, up to Limits.NominationAging.
	Unaged bool
	// For is how long a nomination lasts unless it is renewed; default 2 min. It is renewed in the first plan after half
	// of that, so it should be several times Engine.ParkFor, Backoff.Max and what a plan takes.
	For time.Duration
	// Filter takes nodes out of the choice, as that of a placement engine does. Nil: none. If the wrapped navigator's
	// placement engine has a filter, set it here too.
	Filter place.Filter

	draft orbit.Draft
	rooms patientRooms
	waits map[waiter]*patientWait
	// Plans so far.
	plans uint64
	// What the last plan has proposed to place.
	proposed []waiter
	// How many waits were left when those of work that waits no more were last dropped.
	kept int
}

// waiter names a gang no member of which is placed, or a capsule: one that is in no gang, or that a running gang lacks.
type waiter struct {
	capsule orbit.CapsuleID
	gang    orbit.GangID
}

// patientWait is what is remembered of work that was left out, or whose proposal was lost.
type patientWait struct {
	// When it was submitted, if it says so, or first left out; zero: it was never left out.
	since time.Time
	lost  int
	// A proposal for it was lost while it was nominated: the wrapped navigator seeks more than the nominated room, or other room.
	strayed bool
	// It was proposed to place it in its nominated room, since the nomination was made.
	tried bool
	// The last plan that looked whether its nominated room was free, and whether it was.
	looked uint64
	free   bool
	// No nomination is tried before this, because none could be made.
	again time.Time
	// Where capsules go, of the nomination that was made last.
	seats []patientSeat
	// How long the wait for it was to be, and whether it counts on work that does not end by itself. If so it is not renewed
	// unless fewer have to end by then; and once it has ended, which is at the latest when lapses says, as many more pass as
	// there were in vain.
	cost   patientCost
	stays  bool
	lapse  time.Time
	lapses int
}

// nominee is a capsule or a gang that is nominated, or is to be.
type nominee struct {
	waiter
	*patientWait
	// The capsule, or a member of the gang that was handed over.
	of       *orbit.Capsule
	standing *orbit.Nomination
	// The nomination lives, and its engine does not end it before this plan is proposed.
	lives bool
	// By which a nomination ranks.
	priority, aged int32
	// By which they are served in a plan: the priority, risen if the engine lets it rise.
	turn int32
}

const (
	// mostNominated is how many nominations a plan tries to make or renew.
	mostNominated = 8
	// triedAgain is the longest time for which nothing is tried after a nomination could not be made; it is After if that is
	// shorter.
	triedAgain = time.Second
	// mostLapses bounds for how long nothing is tried after nominations that ended in vain: 256 times as long as they last.
	mostLapses = 8
)

// Claims returns the wrapped navigator's answer.
func (p *Patient) Claims(module string, class orbit.AppClass) bool {
	return p.Navigator != nil && p.Navigator.Claims(module, class)
}

var errNoPatient = errors.New("nav: Patient.Navigator is nil; set it to the navigator whose work is not to wait for ever, as in &nav.Services{}")

// patientPass is one call of Plan.
type patientPass struct {
	*Patient
	view  *orbit.View
	state *orbit.State
	now   time.Time
	plan  orbit.Plan
	// What the plan proposes to place, and what of that Patient itself does.
	placed map[waiter]bool
	seated map[orbit.CapsuleID]bool
	// The draft holds what is kept for those whose nominated room is free.
	synced bool
	// What was handed over, until it is known whether room that is lent is needed for some of it.
	handed []*orbit.Capsule
	recall bool
	// For the notes.
	nominated, served, recalled int
}

// Plan asks the wrapped navigator, whose error it returns, and then looks after what that has left out.
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

// withholds says why a capsule is not handed to the wrapped navigator; nil: it is. What that places can neither be nominated in the
// same plan nor placed in nominated room.
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

func waiterOf(state *orbit.State, c *orbit.Capsule) waiter {
	if g := state.Gang(c.Gang); g != nil && g.Total() == 0 {
		return waiter{gang: c.Gang}
	}
	return waiter{capsule: c.ID}
}

// seatsFree reports whether all of its nominated room is free, or borrowed, before the wrapped navigator has planned. If not, other room
// may be free.
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

// recalls reports whether room that is lent is free, or borrowed, for one of those that were handed over: what backfills could take it
// in the same plan again and again.
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

// propose notes that the plan places a capsule, or a member of a gang.
func (r *patientPass) propose(c *orbit.Capsule) {
	if c == nil || r.placed[r.waiterOf(c)] {
		return
	}
	r.placed[r.waiterOf(c)] = true
	r.proposed = append(r.proposed, r.waiterOf(c))
}

// countLost counts what the last plan has proposed and is not placed, and forgets what does not wait any more.
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

// waits reports whether a capsule is pending, or a gang is with no member placed.
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

// standing returns the nomination of a capsule or its gang, or what is kept of one that has ended; nil: there was none.
func (r *patientPass) standing(c *orbit.Capsule) *orbit.Nomination {
	return r.nomination(r.waiterOf(c))
}

func (r *patientPass) nomination(w waiter) *orbit.Nomination {
	if g := r.state.Gang(w.gang); g != nil {
		return g.Nomination
	}
	if c := r.state.Capsule(w.capsule); c != nil {
		return c.Nomination
	}
	return nil
}

// loses reports whether so many proposals for it were lost that it is nominated.
func (p *Patient) loses(w *patientWait) bool {
	return p.Conflicts >= 0 && w.lost >= cmp.Or(p.Conflicts, 8)
}

// leftOut returns those that were handed over, that the plan leaves out, and that are nominated or are to be: highest
// priority first, and then those that wait longest.
func (r *patientPass) leftOut(pending []*orbit.Capsule) (waiting []*nominee) {
	seen := map[waiter]bool{}
	after := cmp.Or(r.After, 30*time.Second)
	for _, c := range pending {
		w := r.waiterOf(c)
		if r.placed[w] || seen[w] || !r.waitsFor(w) {
			continue
		}
		seen[w] = true
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
		if due := after >= 0 && late >= 0 || r.loses(n.patientWait); !n.lives && (!due || r.now.Before(n.again)) {
			continue
		}
		r.age(n, late, after)
		waiting = append(waiting, n)
	}
	slices.SortStableFunc(waiting, func(a, b *nominee) int {
		return cmp.Or(cmp.Compare(b.turn, a.turn), a.since.Compare(b.since))
	})
	return waiting
}

// age finds out how a nomination of work ranks that is so late: of a gang by its lowest role.
func (r *patientPass) age(n *nominee, late, after time.Duration) {
	if g := r.state.Gang(n.gang); g != nil {
		for i := range g.Gang.Roles {
			n.priority = min(n.priority, g.Gang.Roles[i].Spec.Priority)
		}
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

// waitsSince returns since when a capsule has waited that was not left out before: since its submission, if it says when that was and
// was never placed, or else since now.
func (r *patientPass) waitsSince(c *orbit.Capsule) time.Time {
	if at := c.SubmitTime.Time(); c.SubmitTime != 0 && c.PlacedAt == 0 && at.Before(r.now) {
		return at
	}
	return r.now
}
