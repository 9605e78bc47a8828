package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/victims"
	"github.com/orbitsched/orbit/place"
)

// Preempting wraps a navigator and evicts capsules of lower priority when work of that navigator finds no free room. It takes
// what the wrapped navigator leaves out, chooses the node with the best victims ([place.Indexed.BestEvicting] says which these
// are), and proposes their evictions and the placement together. Because both are one proposal, no capsule is evicted for work
// that is not placed. Victims return to pending. Preempting claims what the wrapped navigator claims: give the engine one of the
// two, not both.
//
//	engine.Navigator = &nav.Preempting{Navigator: &nav.Services{}}
//
//	pending ─► the wrapped navigator ─┬─ placed
//	                                  └─ left out ─┬─ for less than After, or of a class in Never ─► waits
//	                                               ├─ {Evict victims, Place}
//	                                               └─ its last proposal was lost ─► {Nominate} now, {Evict, Place} from the next plan
//
// A gang with no member placed is placed with its minimum of members, in one domain. Preempting takes the first of the gang's
// levels that has a domain with enough room and victims. In each domain every member goes to the node where its victims are best;
// of the domains of the level, the one is taken whose victims are best all together. A gang that is a victim first loses only
// the members beyond its minimums, and is evicted whole only if those are not enough. When a gang already runs, nobody is evicted
// for the members that it still lacks.
//
// A proposal is lost if other commits took room on the node after the view was made. The next plan then chooses a node again,
// but first nominates the room there ([orbit.Nominate]). Work of lower priority may not take nominated room, so short-lived
// small work cannot defeat one preemption after the other. The ledger itself skips a victim that has left its node meanwhile,
// and spares a victim whose room is no longer needed.
//
// In Preempting{Navigator: &Patient{Navigator: ...}}, After decides what comes first. If After is zero, Preempting evicts before
// Patient nominates. If After is longer than Patient.After, Patient nominates room first, and Preempting evicts only if the work
// still waits once After has passed: on the nominated node, if victims there make enough room.
//
// The plan's notes begin with "preempted" (how many capsules and gangs are placed where others make way), "victims" (how many
// capsules make way) and "nominatedToPreempt" (how many nominations Preempting proposes). The notes of the wrapped navigator
// and of the search for victims follow. A Preempting belongs to one engine and is not safe for concurrent use.
type Preempting struct {
	// Navigator is the wrapped navigator; others may be evicted for its work. Required.
	Navigator orbit.Navigator
	// After is how long a capsule or a gang must have been left out before others are evicted for it; zero: they are evicted in
	// the first plan that leaves it out. A class that is parked is planned again only after Engine.ParkFor, so an After that is
	// shorter than ParkFor takes effect late.
	After time.Duration
	// Victims is how many capsules one plan may evict at most; 0: there is no limit.
	Victims int
	// Hourly is how many capsules may be evicted within an hour at most, as a share of all capsules that are placed: 0.01 is one
	// in a hundred. Victims of other engines do not count. 0: there is no limit.
	Hourly float64
	// Never lists the classes of work for which nobody is evicted.
	Never []orbit.AppClass
	// Filter excludes nodes, as the filter of a placement engine does; nil: no node is excluded. If the wrapped navigator's
	// placement engine has a filter, set the same one here, or work is placed on nodes that the other filter excludes.
	Filter place.Filter
	// FilterVersion returns the version of a Filter that reads more than its arguments; nil: Filter reads only its arguments.
	FilterVersion place.FilterVersion

	draft  orbit.Draft
	engine *place.Indexed
	search victims.Search
	rooms  topology
	waits  map[waiter]*preemptWait
	// The preemptions that the last plan has proposed.
	proposed []preemption
	// How many victims each plan of the last hour had, oldest first.
	spent []spentVictims
	// The size of waits after entries of work that waits no more were last dropped from it.
	kept int
}

// preemptWait is what Preempting remembers of a capsule or a gang that was left out.
type preemptWait struct {
	// When it was first left out.
	since time.Time
	// How many proposals for it were lost since room was last nominated for it.
	lost int
	// For a gang that no domain can take: no domain is tried again before this time, and why is the reason until then.
	again time.Time
	why   error
}

// preemption is a capsule or a gang that a plan places, and the victims that make way for it.
type preemption struct {
	waiter
	// A member of it, and the revision that the plan was made on.
	of      orbit.CapsuleID
	view    orbit.Revision
	victims []*orbit.Capsule
}

// lost reports whether the proposal was lost: the work waits, and has not been placed and taken off again since the plan.
func (p *preemption) lost(s *orbit.State) bool {
	c := s.Capsule(p.of)
	return p.waits(s) && (c == nil || c.PlacedAt <= p.view)
}

// spentVictims is how many victims a plan had, and when that was noticed.
type spentVictims struct {
	at    time.Time
	count int
}

const (
	// gangsTried bounds the gangs for which one plan searches victims, because each search looks at whole domains.
	gangsTried = 4
	// gangTriedAgain is how long a gang waits for the next search after one that has found no domain.
	gangTriedAgain = time.Second
)

// Claims returns the wrapped navigator's answer.
func (p *Preempting) Claims(module string, class orbit.AppClass) bool {
	return p.Navigator != nil && p.Navigator.Claims(module, class)
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
	// How many more victims the plan may have, and which limit says so.
	left    int
	leftWhy string
	// Specs that no evictions can make fit, and why.
	full map[*orbit.Spec]error
	// For capsules that were left out: nil if this pass places them, or a reason that replaces the wrapped navigator's.
	said map[orbit.CapsuleID]error
	// Gangs that were served, and why they are not placed; nil: they are.
	gangs map[orbit.GangID]error
	// How many searches for victims the pass has made.
	tried int
	// Counts for the notes.
	preempted, victims, nominated int
}

// Plan lets the wrapped navigator plan, and then evicts for what that has left out. Its error is the wrapped navigator's.
func (p *Preempting) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	if p.Navigator == nil {
		return plan, errNoPreempting
	}
	r := &preemptPass{Preempting: p, view: view, state: view.State(), now: view.Now(),
		full: map[*orbit.Spec]error{}, said: map[orbit.CapsuleID]error{}, gangs: map[orbit.GangID]error{}}
	r.countLost()
	r.plan, err = p.Navigator.Plan(ctx, view, pending)
	if waiting := r.leftOut(); len(waiting) > 0 && ctx.Err() == nil {
		r.serve(ctx, waiting)
	}
	notes := []slog.Attr{slog.Int("preempted", r.preempted), slog.Int("victims", r.victims), slog.Int("nominatedToPreempt", r.nominated)}
	r.plan.Notes = append(notes, r.plan.Notes...)
	if r.engine != nil && r.tried > 0 {
		r.plan.Notes = append(r.plan.Notes, slog.Any("preempting", slog.GroupValue(r.engine.Notes()...)))
	}
	return r.plan, err
}

// countLost looks at what became of the last plan's preemptions. For work that still waits it counts a lost proposal; for work
// that does not it adds the victims to those of the last hour. It also forgets victims that are older than an hour, and now and
// then the waits of work that waits no more.
func (r *preemptPass) countLost() {
	for _, p := range r.proposed {
		if p.lost(r.state) {
			r.wait(p.waiter).lost++
			continue
		}
		delete(r.waits, p.waiter)
		gone := 0
		for _, v := range p.victims {
			if c := r.state.Capsule(v.ID); c != nil && c.PlacedAt == v.PlacedAt && !c.Placed() {
				gone++
			}
		}
		if r.Hourly > 0 && gone > 0 {
			r.spent = append(r.spent, spentVictims{r.now, gone})
		}
	}
	r.proposed = r.proposed[:0]
	r.spent = slices.DeleteFunc(r.spent, func(s spentVictims) bool { return r.now.Sub(s.at) >= time.Hour })
	if len(r.waits) > 2*r.kept+1024 {
		for w := range r.waits {
			if !w.waits(r.state) {
				delete(r.waits, w)
			}
		}
		r.kept = len(r.waits)
	}
}

// wait returns what is remembered of a capsule or a gang, a new entry if that is nothing yet.
func (p *Preempting) wait(w waiter) *preemptWait {
	if p.waits == nil {
		p.waits = map[waiter]*preemptWait{}
	}
	if p.waits[w] == nil {
		p.waits[w] = &preemptWait{}
	}
	return p.waits[w]
}

// leftOut returns the capsules that the plan leaves out and for which others may be evicted now, highest priority first.
func (r *preemptPass) leftOut() (waiting []orbit.Unplaced) {
	for _, u := range r.plan.Unplaced {
		c := u.Capsule
		if c == nil || c.Spec.Start.Template != "" || c.Spec.Start.Parent != "" || slices.Contains(r.Never, c.Spec.Class) {
			continue
		}
		w := waiterOf(r.state, c)
		if !w.waits(r.state) || w.gang != c.Gang { // its gang runs without it
			continue
		}
		wait := r.wait(w)
		if wait.since.IsZero() || c.PlaceTime.Time().After(wait.since) { // it has waited, was placed, and waits anew
			wait.since = r.now
		}
		if r.now.Sub(wait.since) >= r.After {
			waiting = append(waiting, u)
		}
	}
	slices.SortStableFunc(waiting, func(a, b orbit.Unplaced) int {
		return cmp.Compare(b.Capsule.Spec.Priority, a.Capsule.Spec.Priority)
	})
	return waiting
}

// serve places waiting work where victims make way for it. It works on a draft that first repeats the plan's proposals.
func (r *preemptPass) serve(ctx context.Context, waiting []orbit.Unplaced) {
	if r.engine == nil {
		r.engine = &place.Indexed{Filter: r.Filter, FilterVersion: r.FilterVersion}
	}
	r.draft.Sync(r.view)
	for i := range r.plan.Proposals {
		_ = reserve(&r.draft, &r.plan.Proposals[i]) // what the draft refuses the ledger refuses too
	}
	r.limit()
	for _, u := range waiting {
		if ctx.Err() != nil {
			break
		}
		if why := r.serveOne(ctx, u); why != u.Why { //nolint:errorlint // is it the very same error?
			r.said[u.Capsule.ID] = why
		}
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
		return u.Capsule != nil && placed[u.Capsule.ID] // of a gang perhaps the minimum alone is
	})
	for i := range r.plan.Unplaced {
		u := &r.plan.Unplaced[i]
		if u.Capsule != nil && r.said[u.Capsule.ID] != nil {
			u.Why = r.said[u.Capsule.ID]
		}
		// Victims may leave more room than was needed, so no class may be parked: the text stays, the *NoFit goes.
		if r.victims > 0 && u.Why != nil {
			u.Why = errors.New(u.Why.Error())
		}
	}
}

// limit computes how many victims the plan may have, by Victims and by Hourly.
func (r *preemptPass) limit() {
	const all = 1 << 30
	r.left, r.leftWhy = all, ""
	if r.Victims > 0 {
		r.left, r.leftWhy = r.Victims, fmt.Sprintf("a plan may evict %d", r.Victims)
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

// serveOne places a capsule, or the gang of which it is a member, and returns nil. If it cannot, it returns the reason, which may
// be the one that the wrapped navigator gave.
func (r *preemptPass) serveOne(ctx context.Context, u orbit.Unplaced) error {
	c := u.Capsule
	if c.Gang != "" {
		why, known := r.gangs[c.Gang]
		if !known {
			why = r.serveGang(ctx, c)
			r.gangs[c.Gang] = why
		}
		return r.because(u.Why, why)
	}
	if why, full := r.full[c.Spec]; full && !c.Nomination.Lives() {
		return r.because(u.Why, why)
	}
	r.tried++
	e, err := r.choose(c)
	if err != nil {
		r.full[c.Spec] = errNobody
		return r.because(u.Why, errNobody)
	}
	if len(e.Victims) == 0 { // free room would do, but the wrapped navigator has chosen not to use it
		return u.Why
	}
	if why := r.exceeds(e.Victims, e.Highest); why != nil {
		return r.because(u.Why, why)
	}
	if room := roomFor(c, &e); r.wait(waiterOf(r.state, c)).lost > 0 && !c.Nomination.Lives() &&
		r.nominate(waiterOf(r.state, c), []orbit.NominatedRoom{room}) {
		return r.because(u.Why, errNominated)
	}
	if err := e.On(&r.draft, c); err != nil {
		return r.because(u.Why, limited{reasonOf(err)})
	}
	r.propose(waiterOf(r.state, c), e.Victims)
	return nil
}

// limited is a reason that may not hold in the next plan any more, so the engine must not park a class for it.
type limited struct{ why string }

func (e limited) Error() string { return e.why }

var (
	errNobody    = errors.New("it would not fit on any node if all of lower priority left that may")
	errNominated = limited{"a proposal to evict others for it was lost; room is nominated for it first"}
)

// because joins the wrapped navigator's reason (why) and the reason why nobody makes way (more). If the latter is limited, the
// result does not wrap a *orbit.NoFit, so that the engine parks no class.
func (r *preemptPass) because(why, more error) error {
	var soon limited
	switch {
	case more == nil || why == nil:
		return more
	case errors.As(more, &soon):
		return errors.New(why.Error() + "; " + more.Error())
	}
	return fmt.Errorf("%w; %s", why, more.Error())
}

// choose returns the node on which room is nominated for the capsule, if victims there make enough room, or else the node
// whose victims are best.
func (r *preemptPass) choose(c *orbit.Capsule) (place.Eviction, error) {
	if c.Nomination.Lives() {
		r.draft.Ask(c)
		defer r.draft.Ask(nil)
		r.search.Begin(&r.draft, c)
		for i := range c.Nomination.Parts {
			at := r.state.Node(c.Nomination.Parts[i].Node)
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

// nominate adds a proposal that nominates room to the plan. It reports false if the draft refuses it, as the ledger would.
func (r *preemptPass) nominate(w waiter, parts []orbit.NominatedRoom) bool {
	do := orbit.Nominate{Capsule: w.capsule, Gang: w.gang, Parts: parts, Ends: r.now.Add(2 * time.Minute)}
	if err := r.draft.Nominate(do); err != nil {
		return false
	}
	r.plan.Proposals = append(r.plan.Proposals, r.draft.Propose())
	r.nominated++
	r.wait(w).lost = 0
	return true
}

// roomFor returns the room to nominate for a capsule on the node that was chosen for it.
func roomFor(c *orbit.Capsule, e *place.Eviction) orbit.NominatedRoom {
	room := orbit.NominatedRoom{Node: e.Choice.Node.Node.ID, Room: c.Spec.Envelope.Reservation, Devices: e.Choice.Devices}
	if room.Devices != 0 {
		room.Milli = c.Spec.Devices.Milli
	}
	return room
}

// propose adds a proposal of the draft's open steps to the plan, and notes the victims.
func (r *preemptPass) propose(w waiter, leave []*orbit.Capsule, bets ...orbit.Precondition) {
	r.plan.Proposals = append(r.plan.Proposals, r.draft.Propose(bets...))
	p := preemption{waiter: w, view: r.view.Revision(), victims: slices.Clone(leave)}
	for _, do := range r.plan.Proposals[len(r.plan.Proposals)-1].Do {
		if place, ok := do.(orbit.Place); ok {
			p.of = place.Capsule
		}
	}
	r.proposed = append(r.proposed, p)
	r.preempted++
	r.victims += len(leave)
	r.left -= len(leave)
}
