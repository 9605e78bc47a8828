package whatif

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// The bounds of the search for the fixes of a gang. A seating is one attempt to place all needed members on the nodes
// of one domain.
const (
	mostGangDomains = 8   // domains that are searched
	mostSeatings    = 256 // seatings for each kind of change
	mostGangNodes   = 256 // nodes that are uncordoned or added
	mostKinds       = 4   // kinds of nodes that are added
	mostCuts        = 32  // ways to reduce the request
	// mostSeatingsInAll is the sum: a search for holds, cordons, evictions, nodes to add (twice) and each cut; and for
	// each domain the first seating, and one for each cordoned node.
	mostSeatingsInAll = (5+mostCuts)*(mostSeatings+1) + mostGangDomains*(1+mostGangNodes)
)

// gangAsker searches for seats for a gang, and for changes that make it fit.
type gangAsker struct {
	ctx   context.Context
	state *orbit.State
	gang  *orbit.GangState
	index *seats.Index
	// needs are the members that have to be placed.
	needs seats.Needs
	// places are the domains to search; those in which the most members fit come first.
	places []gangPlace
	// left is the number of seatings left for the current kind of change.
	left int
	// seatings is the number of seatings so far.
	seatings int
}

// gangPlace is a domain that is searched.
type gangPlace struct {
	level, domain string
	// fresh says that the domain is new, so no node is in it.
	fresh bool
	// nodes are the indices of the domain's nodes.
	nodes []int32
}

func (p *gangPlace) has(n *orbit.Node) bool { return p.level == "" || n.Labels[p.level] == p.domain }

// in returns the indices of a draft's nodes that are in the domain, except those for which others returns true.
func (p *gangPlace) in(draft *orbit.Draft, others func(*orbit.Node) bool) (out []int32) {
	for n := range draft.Nodes() {
		if p.has(n.Node) && (others == nil || !others(n.Node)) {
			out = append(out, int32(n.Index()))
		}
	}
	return out
}

// needsOf returns the pending members that bring a gang to its minimums. As is the gang with the roles to use, which may
// have other specs and minimums than the state's gang.
func needsOf(state *orbit.State, g *orbit.GangState, as *orbit.Gang) seats.Needs {
	waiting := make([][]*orbit.Capsule, len(as.Roles))
	for i := range as.Roles {
		role := &as.Roles[i]
		var members []*orbit.Capsule
		for _, id := range role.Members {
			if c := state.Capsule(id); c != nil && c.Gang() == as.ID && c.Pending() {
				if role.Spec != g.Gang.Roles[i].Spec {
					changed := *c
					changed.Spec = role.Spec
					c = &changed
				}
				members = append(members, c)
			}
		}
		seats.EasiestFirst(members)
		waiting[i] = members
	}
	return seats.NeedsOf(used(g, as), waiting)
}

// used returns the state of a gang with the roles of another description of it.
func used(g *orbit.GangState, as *orbit.Gang) *orbit.GangState {
	used := *g
	used.Gang = as
	return &used
}

// fixes returns the fixes in these domains; those that leave the request as it is come first.
func (a *gangAsker) fixes(domains []DomainFit) (out []GangFix) {
	if !a.needs.Enough(a.gang) {
		return nil
	}
	for _, d := range domains[:min(len(domains), mostGangDomains)] {
		p := gangPlace{level: d.Level, domain: d.Domain}
		p.nodes = p.in(&a.index.Draft, nil)
		a.places = append(a.places, p)
	}
	search := func(find func(p *gangPlace, best *GangFix) *GangFix) {
		var best *GangFix
		a.left = mostSeatings
		for i := range a.places {
			p := &a.places[i]
			if f := find(p, best); f != nil && a.left >= 0 && a.verify(f, cmp.Or(f.at, p)) {
				best = f
			}
		}
		if best != nil {
			out = append(out, *best)
		}
	}
	search(a.await)
	search(a.uncordon)
	search(a.evict)
	for _, c := range a.cuts() {
		search(c.find)
	}
	if search(a.add); a.gang.Total() == 0 && !slices.ContainsFunc(out, func(f GangFix) bool { return len(f.Add) > 0 }) {
		a.places = a.newPlaces()
		search(a.add)
	}
	return out
}

// around calls try for the domain p, and then for the domains of other levels that share nodes with p, because a change
// of p's nodes is a change of these domains too. At the first call that returns placements it stores them and the
// domain in the fix and reports true.
func (a *gangAsker) around(p *gangPlace, f *GangFix, try func(q *gangPlace) []orbit.Commitment) bool {
	for i := range a.places {
		q := &a.places[(i+slices.IndexFunc(a.places, func(q gangPlace) bool { return q.level == p.level && q.domain == p.domain }))%len(a.places)]
		if i > 0 && (q.level == p.level || !slices.ContainsFunc(p.nodes, func(at int32) bool { return q.has(a.state.NodeByIndex(int(at)).Node) })) {
			continue
		}
		if f.places = try(q); f.places != nil {
			f.at = q
			return true
		}
	}
	return false
}

// commits returns the state after the fix's proposal; nil: the proposal does not commit. It first fills in the fields
// that all fixes have.
func (a *gangAsker) commits(f *GangFix, p *gangPlace) *orbit.State {
	f.state, f.Level, f.Domain, f.New, f.Gang = a.state, p.level, p.domain, p.fresh, cmp.Or(f.Gang, a.gang.Gang)
	next, err := a.state.With(f.Proposal())
	if err != nil {
		return nil
	}
	return next
}

// verify reports whether the fix's proposal commits and the ledger spares none of its victims.
func (a *gangAsker) verify(f *GangFix, p *gangPlace) bool {
	next := a.commits(f, p)
	return next != nil && !slices.ContainsFunc(f.Evict, func(id orbit.CapsuleID) bool { return next.Capsule(id).Placed() })
}

// gangSteps is how many steps of search one search for seats may take, as many as in one plan of a nav.Gang.
const gangSteps = 20_000

// packer returns a packer for all needed members, in an index. It lets the members use room that is nominated for their
// gang, or for work that they outrank, until done is called.
func (a *gangAsker) packer(index *seats.Index, needs *seats.Needs) (p *seats.Packer, done func()) {
	p = &seats.Packer{Index: index, Steps: &seats.Budget{Ctx: a.ctx, Left: gangSteps}, Limit: seats.MostMembers(a.state.Limits())}
	if needs.Rest() > 0 {
		p.LeastInAll = needs.InAll
	}
	if index.Ask(a.state, a.gang.Gang.ID) {
		p.Asks = index.Asks(needs.Roles)
		return p, func() { index.Ask(a.state, "") }
	}
	p.Asks = index.Asks(needs.Roles)
	p.Tries = !index.Outrank(p.Asks)
	return p, func() { index.EndOutrank(p.Asks) }
}

// seat applies steps (nil: none) to the draft of an index and then places all needed members on these nodes. It returns
// the placements and restores the draft. Nil: the members do not fit, or no seatings are left.
func (a *gangAsker) seat(index *seats.Index, nodes []int32, needs *seats.Needs, steps func(*orbit.Draft) error) (out []orbit.Commitment) {
	if a.left--; a.left < 0 || a.ctx.Err() != nil {
		return nil
	}
	a.seatings++
	draft := &index.Draft
	start := draft.Checkpoint()
	defer draft.Rollback(start)
	if steps != nil && steps(draft) != nil {
		return nil
	}
	p, done := a.packer(index, needs)
	defer done()
	if f, _ := p.Seat(func() *seats.Fit { return p.Just(nodes) }); f == nil {
		return nil
	}
	for _, do := range draft.Propose().Do {
		if do, is := do.(orbit.Place); is {
			do.At = 0
			out = append(out, do)
		}
	}
	return out
}

// fewest returns the shortest prefix of a list that serves, without the entries that can be left out of it; nil: the
// whole list does not serve. Unlike minimal it finds the prefix by binary search, because each call of serves costs a
// seating.
func fewest[T any](list []T, serves func([]T) bool) []T {
	if len(list) == 0 || !serves(list) {
		return nil
	}
	n := 1 + sort.Search(len(list)-1, func(i int) bool { return serves(list[:i+1]) })
	out := slices.Clone(list[:n])
	for before := 0; before != len(out); { // again after a change, because the greedy planner may now do without further entries
		before = len(out)
		for i := len(out) - 2; i >= 0; i-- { // the last one is needed
			if less := slices.Delete(slices.Clone(out), i, i+1); serves(less) {
				out = less
			}
		}
	}
	return out
}
