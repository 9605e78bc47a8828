package nav

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/internal/victims"
	"github.com/orbitsched/orbit/place"
)

// Preempting wraps a navigator and makes room when work of that navigator finds none. It takes the work that the wrapped
// navigator leaves out, and first moves others to nodes that take them. If no moves make room, it evicts capsules of lower
// priority: it chooses the node with the best victims ([place.Indexed.BestEvicting] says which these are), and proposes
// their evictions and the placement together. Because both are one proposal, no capsule is moved or evicted for work that
// is not placed. Victims return to pending. Preempting claims what the wrapped navigator claims: give the engine one of the
// two, not both.
//
//	engine.Navigator = &nav.Preempting{Navigator: &nav.Services{}}
//
//	pending ─► the wrapped navigator ─┬─ placed
//	                                  └─ left out ─┬─ for less than After, or that Never excludes ─► waits
//	                                               ├─ {Evict victims, Place}
//	                                               └─ its last proposal was lost ─► {Nominate} now, {Evict, Place} from the next plan
//
// [Preempting.Plan] says more. A Preempting belongs to one engine and is not safe for concurrent use.
type Preempting struct {
	// Navigator is the wrapped navigator; others may be evicted for its work. Required.
	Navigator orbit.Navigator
	// After is how long a capsule or a gang must have been left out before others are moved or evicted for it; zero: they
	// are in the first plan that leaves it out. A class that is parked is planned again only after Engine.ParkFor,
	// so an After that is shorter than ParkFor takes effect late.
	After time.Duration
	// Moves is how many capsules one plan may move at most; 0: there is no limit; negative: none.
	Moves int
	// Victims is how many capsules one plan may evict at most; 0: there is no limit; negative: none.
	Victims int
	// Hourly is how many capsules may be evicted within an hour at most, as a share of all capsules that are placed:
	// 0.01 is one in a hundred. Victims of other engines do not count. 0: there is no limit.
	Hourly float64
	// Never reports for which waiting capsules nothing is moved or evicted; nil: for none. Of a gang it is asked about the
	// member that stands for the gang in a plan, so let it answer alike for all members. It is called by one goroutine.
	Never func(*orbit.Capsule) bool
	// Filter excludes nodes, as the filter of a placement engine does; nil: no node is excluded. If the wrapped
	// navigator's placement engine has a filter, set the same one here, or work is placed on nodes that the other
	// filter excludes.
	Filter place.Filter
	// FilterVersion returns the version of a Filter that reads more than its arguments; nil: Filter reads only its
	// arguments.
	FilterVersion place.FilterVersion

	draft  orbit.Draft
	engine *place.Indexed
	search victims.Search
	moves  moves.Search
	rooms  seats.Topology
	waits  map[waiter]*preemptWait
	// Plans so far.
	plans uint64
	// The last plan's proposals, the revision that it was made on, and its preemptions.
	last     []orbit.Proposal
	lastView orbit.Revision
	proposed []preemption
	// How many victims there were in each second of the last hour, oldest first.
	spent []spentVictims
	// The size of waits after entries of work that waits no more were last dropped from it.
	kept int
}

// preemptWait is what Preempting remembers of a capsule or a gang that was left out.
type preemptWait struct {
	// When it was first left out.
	since time.Time
	// How many preemptions for it were lost since room was last nominated for it, and how many of the wrapped
	// navigator's placements.
	lost, strayed int
	// For a gang that no domain can take: no domain is tried again before this time, and why is the reason until then.
	// Failed is the number of the plan that has tried all domains last; 0: none has since the gang was last placed.
	again  time.Time
	why    error
	failed uint64
	// For a gang whose search was cut off: how many domains were tried already; the next search skips that many.
	tried int
}

// preemption is a capsule or a gang that a plan places, and its victims.
type preemption struct {
	waiter
	// A member of it.
	of      orbit.CapsuleID
	victims []*orbit.Capsule
}

// hasLost reports whether the proposal that placed a capsule was lost: it waits, and has not been placed and taken off
// again since the plan.
func (p *Preempting) hasLost(s *orbit.State, id orbit.CapsuleID) bool {
	c := s.Capsule(id)
	return c != nil && c.Pending() && c.PlacedAt <= p.lastView
}

// spentVictims is how many victims were noticed in one second, and when that second ended.
type spentVictims struct {
	at    time.Time
	count int
}

// spend counts victims for the hour that begins now.
func (r *preemptPass) spend(victims int) {
	at := r.now.Truncate(time.Second).Add(time.Second)
	if last := len(r.spent) - 1; last >= 0 && r.spent[last].at.Equal(at) {
		r.spent[last].count += victims
		return
	}
	r.spent = append(r.spent, spentVictims{at, victims})
}

const (
	// gangsTried bounds the gangs for which one plan searches victims, because each search looks at whole domains.
	// Gangs for which earlier searches have found no domain take at most half of these, while there are others.
	gangsTried = 4
	// mostStrayed is how many proposals for a capsule or a gang are lost, preemptions and placements in free room,
	// before it is nominated whether it needs victims or not.
	mostStrayed = 4
	// gangTriedAgain is how long a gang waits for the next search after one that has found no domain.
	gangTriedAgain = time.Second
)

// Claims returns the wrapped navigator's answer.
func (p *Preempting) Claims(module string, class orbit.AppClass) bool {
	return p.Navigator == nil || p.Navigator.Claims(module, class) // without one, Plan says so
}

var errNoPreempting = errors.New(
	"nav: Preempting.Navigator is nil; set it to the navigator whose work may evict others, as in &nav.Services{}")

// preemptPass is the state of one call of Plan.
type preemptPass struct {
	*Preempting
	view  *orbit.View
	state *orbit.State
	now   time.Time
	plan  orbit.Plan
	// How many more victims the plan may have, and which limit says so; and how many more capsules it may move.
	left      int
	leftWhy   string
	movesLeft int
	// Specs that no evictions can make fit, and why.
	full map[*orbit.Spec]error
	// Specs that no moves can make fit.
	unmovable map[*orbit.Spec]bool
	// Specs that moves could make fit if other nodes had more room.
	hoping map[*orbit.Spec]bool
	// For capsules that were left out: nil if this pass places them, or a reason that replaces the wrapped navigator's.
	said map[orbit.CapsuleID]error
	// Capsules and gangs that the wrapped navigator does not plan in this pass, because room is nominated for them
	// first.
	withheld map[waiter]bool
	// The broken gang that is served now; nil: none is.
	home *pendingGang
	// Gangs that were served, and why they are not placed; nil: they are.
	gangs map[orbit.GangID]error
	// How many searches for victims the pass has made. For which gangs that have failed before it may search again, and
	// for how many others.
	tried     int
	again     map[orbit.GangID]bool
	gangsLeft int
	// Counts for the notes.
	preempted, victims, nominated, moved int
}

// Plan lets the wrapped navigator plan, and then moves or evicts capsules for the work that it has left out. A capsule that stands
// in the way by a rule [orbit.Apart] is a victim too, also on other nodes of the rack. Its error is the wrapped navigator's.
//
// All that is [orbit.State.Movable] may be moved, also what has an equal or a higher priority: it runs on, elsewhere. The
// moves, the new places and the placement are one proposal, so a move may need another one: a chain, a swap or a cycle.
// Preempting takes the fewest moves that make room, and of as many those of the least work. Up to three it finds whenever
// there are any, in clusters where the search for them ends; more only if all that leave one node fit elsewhere at once.
// Budgets and protections hold. A class for which no moves make room is tried again when any node gains room: at once, and
// after waits that double while the search is in vain.
//
// A gang with no member placed is placed with its minimum of members, in one domain. Preempting takes the first of the
// gang's levels that has a domain with enough room and victims. In each domain every member goes to the node where its
// victims are best; of the domains of the level, Preempting takes the one whose victims are best all together. A gang
// that is a victim first loses only the members beyond its minimums, and is evicted whole only if those are not enough.
// For the members that a broken gang lacks ([orbit.GangState.Broken]), others are evicted in the domain in which it runs,
// before work of equal priority is served. Of two broken gangs of equal priority that hold what the other lacks, the one
// that was submitted first evicts the other whole ([orbit.State.Precedes]). Nothing is evicted for members beyond the
// minimums of a gang that runs.
//
// For work that names a queue ([orbit.Spec].Queue), capsules of other queues of its tree are evicted by the rules of [orbit.Queue],
// whatever their priority: only where their queue borrows. Where the quotas do not admit the work although nodes have room,
// capsules are evicted that take the quota, on any nodes. See [place.Indexed.BestEvicting] for the order.
//
// A proposal is lost if other commits took room on the node after the view was made. The next plan then chooses a node
// again, but first nominates the room there ([orbit.Nominate]). It does so even if room on other nodes is already
// nominated for the work, when that is no longer enough because the capsules there may not be evicted. After four lost
// proposals room is nominated also where no victims are needed, and the wrapped navigator does not plan the work
// meanwhile. Work of lower priority may not take nominated room, so short-lived small work cannot defeat one preemption
// after the other. The ledger itself skips a victim that has left its node meanwhile, and spares a victim whose room is
// no longer needed.
//
// In Preempting{Navigator: &Patient{Navigator: ...}}, After decides what comes first. If After is zero, Preempting
// evicts before Patient nominates. If After is longer than Patient.After, Patient nominates room first, and Preempting
// evicts only if the work still waits once After has passed: on the nominated node, if victims there make enough room.
//
// The plan's notes begin with "preempted" (how many capsules and gangs are placed where victims make way), "victims"
// (how many capsules make way), "movedForRoom" (how many capsules move) and "nominatedToPreempt" (how many nominations
// Preempting proposes). The notes of the wrapped navigator and of the search for victims follow.
func (p *Preempting) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	if p.Navigator == nil {
		return plan, errNoPreempting
	}
	r := &preemptPass{Preempting: p, view: view, state: view.State(), now: view.Now(),
		full: map[*orbit.Spec]error{}, unmovable: map[*orbit.Spec]bool{}, hoping: map[*orbit.Spec]bool{}, said: map[orbit.CapsuleID]error{}, gangs: map[orbit.GangID]error{}}
	p.plans++
	r.countLost()
	pending, withheld := r.withhold(pending)
	r.plan, err = p.Navigator.Plan(ctx, view, pending)
	r.plan.Unplaced = append(r.plan.Unplaced, withheld...)
	if waiting := r.leftOut(); len(waiting) > 0 && ctx.Err() == nil {
		r.serve(ctx, waiting)
	}
	notes := []slog.Attr{slog.Int("preempted", r.preempted), slog.Int("victims", r.victims),
		slog.Int("movedForRoom", r.moved), slog.Int("nominatedToPreempt", r.nominated)}
	r.plan.Notes = append(notes, r.plan.Notes...)
	if r.engine != nil && r.tried > 0 {
		r.plan.Notes = append(r.plan.Notes, slog.Any("preempting", slog.GroupValue(r.engine.Notes()...)))
	}
	p.last, p.lastView = r.plan.Proposals, view.Revision()
	return r.plan, err
}

// countLost looks at what became of the last plan's proposals. For work that still waits it counts a lost proposal; for
// preemptions that were committed it adds the victims to those of the last hour. It also forgets victims that are older
// than an hour, and now and then the waits of work that waits no more.
func (r *preemptPass) countLost() {
	for i := range r.last {
		counted := waiter{} // the members of a gang follow each other, and have lost one proposal together
		for _, do := range r.last[i].Do {
			if place, ok := do.(orbit.Place); ok && r.hasLost(r.state, place.Capsule) {
				if w := r.waiterOf(r.state.Capsule(place.Capsule)); w != counted {
					r.wait(w).strayed++
					counted = w
				}
			}
		}
	}
	for _, p := range r.proposed {
		if r.hasLost(r.state, p.of) && r.stillWaits(p.waiter) {
			r.wait(p.waiter).lost++
			continue
		}
		delete(r.waits, p.waiter)
		gone := 0
		for _, v := range p.victims {
			if c := r.state.Capsule(v.ID); c == nil || c.PlacedAt != v.PlacedAt || !c.Placed() {
				gone++
			}
		}
		if r.Hourly > 0 && gone > 0 {
			r.spend(gone)
		}
	}
	r.proposed = r.proposed[:0]
	r.spent = slices.DeleteFunc(r.spent, func(s spentVictims) bool { return r.now.Sub(s.at) >= time.Hour })
	if len(r.waits) > 2*r.kept+1024 {
		for w := range r.waits {
			if !r.stillWaits(w) {
				delete(r.waits, w)
			}
		}
		r.kept = len(r.waits)
	}
}

// wait returns the record of a capsule or a gang, which it creates if there is none.
func (p *Preempting) wait(w waiter) *preemptWait {
	if p.waits == nil {
		p.waits = map[waiter]*preemptWait{}
	}
	if p.waits[w] == nil {
		p.waits[w] = &preemptWait{}
	}
	return p.waits[w]
}

// withhold splits pending work. The wrapped navigator does not plan the capsules and gangs that have lost many
// proposals, because others would take their room again. They are nominated in this plan, and placed in the nominated
// room in a later one.
func (r *preemptPass) withhold(pending []*orbit.Capsule) (rest []*orbit.Capsule, withheld []orbit.Unplaced) {
	for i, c := range pending {
		w := r.waiterOf(c)
		if !r.withheld[w] && !r.strays(w, c) {
			if withheld != nil {
				rest = append(rest, c)
			}
			continue
		}
		if withheld == nil {
			rest, r.withheld = slices.Clone(pending[:i]), map[waiter]bool{}
		}
		// If it cannot be nominated, the wrapped navigator plans it in the next pass, because it may have room that a
		// nomination cannot name.
		r.withheld[w], r.waits[w].strayed = true, 0
		withheld = append(withheld, orbit.Unplaced{Capsule: c, Why: errNominated})
	}
	if withheld == nil {
		return pending, nil
	}
	return rest, withheld
}

// strays reports whether a capsule or a gang has lost so many proposals that withhold keeps it back.
func (r *preemptPass) strays(w waiter, c *orbit.Capsule) bool {
	wait := r.waits[w]
	return wait != nil && wait.strayed >= mostStrayed && w.gang == c.Gang() && r.evictsFor(c) && r.now.Sub(r.waiting(wait, c)) >= r.After
}

// evictsFor reports whether others may be evicted for a capsule at all.
func (r *preemptPass) evictsFor(c *orbit.Capsule) bool {
	return c.Spec.Start.Template == "" && c.Spec.Start.Parent == "" && (r.Never == nil || !r.Never(c))
}

// waiting returns since when a capsule has been left out: from now on, if it is for the first time, or it was placed in
// between.
func (r *preemptPass) waiting(wait *preemptWait, c *orbit.Capsule) time.Time {
	if wait.since.IsZero() || c.PlaceTime.Time().After(wait.since) {
		wait.since = r.now
	}
	return wait.since
}

// leftOut returns the capsules that the plan leaves out and for which others may be evicted now, in the order in which
// they are served.
func (r *preemptPass) leftOut() (waiting []orbit.Unplaced) {
	for _, u := range r.plan.Unplaced {
		c := u.Capsule
		if c == nil || !r.evictsFor(c) {
			continue
		}
		w := r.waiterOf(c)
		if !r.stillWaits(w) || w.gang != c.Gang() { // its gang runs without it
			continue
		}
		if r.now.Sub(r.waiting(r.wait(w), c)) >= r.After {
			waiting = append(waiting, u)
		}
	}
	slices.SortStableFunc(waiting, r.urgentFirst)
	return waiting
}
