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

// Preempting lets the work of a navigator take the room of work of lower priority where there is no other. What the wrapped
// navigator leaves out is placed where the best victims make way for it ([place.Indexed.BestEvicting] says which these are), by one
// proposal that evicts them and places it: so nobody is evicted for what is not placed. Victims return to pending. Preempting claims
// what the wrapped navigator claims, and so runs instead of it.
//
//	engine.Navigator = &nav.Preempting{Navigator: &nav.Services{}}
//
//	pending ─► the wrapped navigator ─┬─ placed
//	                                  └─ left out ─┬─ for less than After, or of a class in Never ─► waits
//	                                               ├─ {Evict victims, Place}
//	                                               └─ a proposal for it was lost ─► {Nominate} first, and so on from the next plan
//
// A gang of which nothing is placed is placed at its minimum, in one domain of the first of its levels where that can be: each
// member goes where its victims are best, and the domain is the one where all of them together are. Gangs that are victims give up
// what they have beyond their minimums; only where that does not do are they evicted whole. A member that a running gang lacks
// evicts nobody.
//
// A proposal is lost if others have taken room on the node since the view. The next plan chooses anew; but first room is nominated
// on the node ([orbit.Nominate]), which work of lower priority then leaves free, so that small work which comes and goes cannot
// keep a preemption from being committed. A victim that has left by itself meanwhile is passed over, and one that need not go any
// more stays: that is the ledger's doing.
//
// With Patient: Preempting{Navigator: &Patient{Navigator: ...}} evicts first if After is zero. If After is longer than
// Patient.After, room is nominated first, and others are evicted only when that was in vain for as long; on the nominated node, if
// that will do.
//
// Notes are "preempted", capsules and gangs that are placed where others make way, "victims", those that make way, and
// "nominatedToPreempt"; then those of the wrapped navigator and of the search for victims. A Preempting belongs to one engine and is
// not safe for concurrent use.
type Preempting struct {
	// Navigator is the one whose work may evict others. Required.
	Navigator orbit.Navigator
	// After is how long a capsule or a gang has been left out before others are evicted for it; zero: not at all. Classes that
	// are parked come back every Engine.ParkFor only, so a shorter time needs a shorter one there.
	After time.Duration
	// Victims is the most victims of one plan; 0: as many as it takes.
	Victims int
	// Hourly is the most victims in an hour, as a share of all capsules that are placed: 0.01 is one in a hundred. Those of
	// other engines do not count. 0: as many as it takes.
	Hourly float64
	// Never lists the classes of work for which nobody is evicted.
	Never []orbit.AppClass
	// Filter takes nodes out of the choice, as that of a placement engine does. Nil: none. If the wrapped navigator's
	// placement engine has a filter, set it here too.
	Filter place.Filter
	// FilterVersion is the version of a Filter that reads more than its arguments; nil: it does not.
	FilterVersion place.FilterVersion

	draft  orbit.Draft
	engine *place.Indexed
	search victims.Search
	rooms  topology
	waits  map[waiter]*preemptWait
	// What the last plan has proposed.
	proposed []preemption
	// Victims of the last hour, oldest first.
	spent []spentVictims
	// How many waits were left when those of work that waits no more were last dropped.
	kept int
}

// preemptWait is what is remembered of work that was left out.
type preemptWait struct {
	since time.Time
	// Proposals of the plans since it was nominated that were lost.
	lost int
	// Nothing is tried for a gang before this, because none of its domains would do.
	again time.Time
	why   error
}

// preemption is work that a plan places where others make way.
type preemption struct {
	waiter
	// A member of it, and the revision that the plan was made on.
	of      orbit.CapsuleID
	view    orbit.Revision
	victims []*orbit.Capsule
}

// lost reports whether the work waits although the plan has placed it, and was not placed and taken off again meanwhile.
func (p *preemption) lost(s *orbit.State) bool {
	c := s.Capsule(p.of)
	return p.waits(s) && (c == nil || c.PlacedAt <= p.view)
}

type spentVictims struct {
	at    time.Time
	count int
}

// gangsTried is how many gangs a plan looks for room for, and gangTriedAgain is after how long it does so again for one that has found none.
const (
	gangsTried     = 4
	gangTriedAgain = time.Second
)

// Claims returns the wrapped navigator's answer.
func (p *Preempting) Claims(module string, class orbit.AppClass) bool {
	return p.Navigator != nil && p.Navigator.Claims(module, class)
}

var errNoPreempting = errors.New("nav: Preempting.Navigator is nil; set it to the navigator whose work may evict others, as in &nav.Services{}")

// preemptPass is one call of Plan.
type preemptPass struct {
	*Preempting
	view  *orbit.View
	state *orbit.State
	now   time.Time
	plan  orbit.Plan
	// How many victims the plan may have yet, and why no more.
	left    int
	leftWhy string
	// By what is asked for, why nobody can make way for it.
	full map[*orbit.Spec]error
	// Why what is left out has no place, where that is another reason than the wrapped navigator's; nil: it is placed.
	said map[orbit.CapsuleID]error
	// Gangs that were looked at.
	gangs map[orbit.GangID]error
	tried int
	// For the notes.
	preempted, victims, nominated int
}

// Plan asks the wrapped navigator, whose error it returns, and evicts for what that has left out.
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

// countLost counts what the last plan has proposed and is not placed, and the victims of what is; and forgets what waits no more.
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

func (p *Preempting) wait(w waiter) *preemptWait {
	if p.waits == nil {
		p.waits = map[waiter]*preemptWait{}
	}
	if p.waits[w] == nil {
		p.waits[w] = &preemptWait{}
	}
	return p.waits[w]
}

// leftOut returns what the plan leaves out and others may be evicted for, highest priority first.
func (r *preemptPass) leftOut() (waiting []orbit.Unplaced) {
	for _, u := range r.plan.Unplaced {
		c := u.Capsule
		if c == nil || c.Spec.Start.Template != "" || c.Spec.Start.Parent != "" || slices.Contains(r.Never, c.Spec.Class) {
			continue
		}
		w := waiterOf(r.state, c)
		if !w.waits(r.state) || w.gang != c.Gang { // a gang that runs without it
			continue
		}
		wait := r.wait(w)
		if wait.since.IsZero() {
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

// serve places what waits where others make way, on a draft on which is what the plan does so far.
func (r *preemptPass) serve(ctx context.Context, waiting []orbit.Unplaced) {
	if r.engine == nil {
		r.engine = &place.Indexed{Filter: r.Filter, FilterVersion: r.FilterVersion}
	}
	r.draft.Sync(r.view)
	for i := range r.plan.Proposals {
		_ = reserve(&r.draft, &r.plan.Proposals[i]) // the ledger will refuse it too
	}
	r.limit()
	for _, u := range waiting {
		if ctx.Err() != nil {
			break
		}
		if why := r.serveOne(ctx, u); why != u.Why { //nolint:errorlint // the very error
			r.said[u.Capsule.ID] = why
		}
	}
	r.plan.Unplaced = slices.DeleteFunc(r.plan.Unplaced, func(u orbit.Unplaced) bool {
		if u.Capsule == nil {
			return false
		}
		why, said := r.said[u.Capsule.ID]
		return said && why == nil
	})
	for i := range r.plan.Unplaced {
		u := &r.plan.Unplaced[i]
		if u.Capsule != nil && r.said[u.Capsule.ID] != nil {
			u.Why = r.said[u.Capsule.ID]
		}
		if r.victims > 0 && u.Why != nil { // what they leave over may do for others, so no class is parked
			u.Why = errors.New(u.Why.Error())
		}
	}
}

// limit finds out how many victims the plan may have.
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

// serveOne places a capsule, or the gang of which it is a member. It returns why it does not, which may be the reason that the
// wrapped navigator gave; nil: it does.
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
	if len(e.Victims) == 0 { // there is room, which the wrapped navigator does not want to use
		return u.Why
	}
	if why := r.exceeds(e.Victims, e.Highest); why != nil {
		return r.because(u.Why, why)
	}
	if room := roomFor(c, &e); r.wait(waiterOf(r.state, c)).lost > 0 && !c.Nomination.Lives() && r.nominate(waiterOf(r.state, c), []orbit.NominatedRoom{room}) {
		return r.because(u.Why, errNominated)
	}
	if err := e.On(&r.draft, c); err != nil {
		return r.because(u.Why, limited{reasonOf(err)})
	}
	r.propose(waiterOf(r.state, c), e.Victims)
	return nil
}

// limited is a reason that may be gone in the next plan: classes are not parked for it.
type limited struct{ why string }

func (e limited) Error() string { return e.why }

var (
	errNobody    = errors.New("it would not fit on any node if all of lower priority left that may")
	errNominated = limited{"a proposal to evict others for it was lost; room is nominated for it first"}
)

// because adds to the reason of the wrapped navigator why nobody makes way. What may be gone in the next plan is said in an error
// that parks no class.
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

// choose returns the node whose victims are best, or the one that is nominated for the capsule, if that will do.
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

func (r *preemptPass) filtered(n *orbit.NodeState, spec *orbit.Spec) bool {
	return r.Filter != nil && r.Filter(n, r.view.Report(n), spec) != ""
}

// exceeds says that there would be too many victims; nil: there would not.
func (r *preemptPass) exceeds(leave []*orbit.Capsule, highest int32) error {
	if len(leave) <= r.left {
		return nil
	}
	return limited{fmt.Sprintf("would need %s of priority %d or less; %s", quantity(len(leave), "victim"), highest, r.leftWhy)}
}

// nominate claims room, as a proposal. It reports false if the ledger would not take it.
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

// roomFor is the room that a capsule takes.
func roomFor(c *orbit.Capsule, e *place.Eviction) orbit.NominatedRoom {
	room := orbit.NominatedRoom{Node: e.Choice.Node.Node.ID, Room: c.Spec.Envelope.Reservation, Devices: e.Choice.Devices}
	if room.Devices != 0 {
		room.Milli = c.Spec.Devices.Milli
	}
	return room
}

// propose makes a proposal of the steps on the draft.
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
