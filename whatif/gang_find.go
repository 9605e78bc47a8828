package whatif

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
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

// gangAsker searches for changes that make a gang fit.
//
// Its planner is greedy: it seats one role after the other, the largest requests first, and fills one node after the
// other, the fullest first. For one role this is exact, except with rules Apart, Even or Near and with parts of
// devices. With several roles it may fail although the gang fits. So fixes are minimal only as far as this planner can
// tell.
type gangAsker struct {
	ctx   context.Context
	state *orbit.State
	gang  *orbit.GangState
	draft *orbit.Draft
	// needs are the members that have to be placed, by role.
	needs [][]*orbit.Capsule
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
	nodes []int
}

func (p *gangPlace) has(n *orbit.Node) bool { return p.level == "" || n.Labels[p.level] == p.domain }

// in returns the indices of a draft's nodes that are in the domain, except those for which others returns true.
func (p *gangPlace) in(draft *orbit.Draft, others func(*orbit.Node) bool) (out []int) {
	for n := range draft.Nodes() {
		if p.has(n.Node) && (others == nil || !others(n.Node)) {
			out = append(out, n.Index())
		}
	}
	return out
}

// needsOf returns, for each role that is below its minimum, the pending members that bring it to the minimum. As is the
// gang with the roles to use, which may have other specs and minimums than the state's gang. The roles with the largest
// requests come first. It reports false if a role has too few pending members.
func needsOf(state *orbit.State, g *orbit.GangState, as *orbit.Gang) (needs [][]*orbit.Capsule, ok bool) {
	for i := range as.Roles {
		role, count := &as.Roles[i], lacking(g, as, i)
		if count == 0 {
			continue
		}
		var members []*orbit.Capsule
		for _, id := range role.Members {
			if c := state.Capsule(id); len(members) < count && c != nil && c.Gang() == as.ID && c.Pending() {
				if role.Spec != g.Gang.Roles[i].Spec {
					changed := *c
					changed.Spec = role.Spec
					c = &changed
				}
				members = append(members, c)
			}
		}
		if len(members) < count {
			return nil, false
		}
		needs = append(needs, members)
	}
	slices.SortStableFunc(needs, func(x, y []*orbit.Capsule) int { return largerFirst(x[0].Spec, y[0].Spec) })
	return needs, true
}

// lacking returns by how many placed members a role is below its minimum. As is the gang with the roles to use.
func lacking(g *orbit.GangState, as *orbit.Gang, role int) int {
	used := *g
	used.Gang = as
	return used.Lacks(role)
}

// fixes returns the fixes in these domains; those that leave the request as it is come first. It returns none if the
// planner finds that the gang fits after all.
func (a *gangAsker) fixes(domains []DomainFit) (out []GangFix) {
	var ok bool
	if a.needs, ok = needsOf(a.state, a.gang, a.gang.Gang); !ok || len(a.needs) == 0 {
		return nil
	}
	for _, d := range domains[:min(len(domains), mostGangDomains)] {
		p := gangPlace{level: d.Level, domain: d.Domain}
		p.nodes = p.in(a.draft, nil)
		a.left = 1
		if a.seat(a.draft, p.nodes, a.needs, nil) != nil {
			return nil
		}
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
		if i > 0 && (q.level == p.level || !slices.ContainsFunc(p.nodes, func(at int) bool { return q.has(a.state.NodeByIndex(at).Node) })) {
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
	f.names, f.Level, f.Domain, f.New, f.Gang = a.state.DimensionName, p.level, p.domain, p.fresh, cmp.Or(f.Gang, a.gang.Gang)
	next, err := a.state.With(f.Proposal())
	if err != nil {
		return nil
	}
	return next
}

// verify reports whether the fix's proposal commits and the ledger spares none of its victims.
func (a *gangAsker) verify(f *GangFix, p *gangPlace) bool {
	next := a.commits(f, p)
	return next != nil && !slices.ContainsFunc(f.Evict, func(id orbit.CapsuleID) bool { return !next.Capsule(id).Pending() })
}

// seat applies steps (nil: none) to a draft and then places all needed members on these nodes. It returns the
// placements and restores the draft. Nil: the members do not fit, or no seatings are left.
func (a *gangAsker) seat(draft *orbit.Draft, nodes []int, needs [][]*orbit.Capsule, steps func() error) (out []orbit.Commitment) {
	if a.left--; a.left < 0 || a.ctx.Err() != nil {
		return nil
	}
	a.seatings++
	start := draft.Checkpoint()
	defer draft.Rollback(start)
	if steps != nil && steps() != nil {
		return nil
	}
	for _, members := range needs {
		if fill(draft, nodes, members) < len(members) {
			return nil
		}
	}
	for _, do := range draft.Propose().Do {
		if do, is := do.(orbit.Place); is {
			do.At = 0
			out = append(out, do)
		}
	}
	return out
}

// fill places as many members of one role on these nodes as fit, on the fullest node first. It goes over the nodes
// again as long as that places more, because a placement can open a node for the rules Even and Near.
func fill(draft *orbit.Draft, nodes []int, members []*orbit.Capsule) (placed int) {
	spec := members[0].Spec
	draft.Ask(members[0])
	defer draft.Ask(nil)
	type seat struct {
		at   int
		free float64
	}
	var seats []seat
	for _, at := range nodes {
		n := draft.Node(at)
		if draft.Misfit(n, spec) != (orbit.Misfit{}) && len(spec.Apart)+len(spec.Even) == 0 && spec.Near == (orbit.Near{}) {
			continue
		}
		s := seat{at: at}
		for d, want := range spec.Envelope.Reservation {
			if want > 0 {
				s.free += float64(n.Free()[d]) / float64(want)
			}
		}
		seats = append(seats, s)
	}
	slices.SortStableFunc(seats, func(x, y seat) int { return cmp.Compare(x.free, y.free) })
	for before := -1; before < placed && placed < len(members); {
		before = placed
		for _, s := range seats {
			for ; placed < len(members) && sit(draft, draft.Node(s.at), members[placed]); placed++ {
			}
		}
	}
	return placed
}

// sit places a capsule on a node, and reports false if the node does not take it.
func sit(draft *orbit.Draft, n *orbit.NodeState, c *orbit.Capsule) bool {
	if draft.Misfit(n, c.Spec) != (orbit.Misfit{}) {
		return false
	}
	devices, ok := n.PickDevices(c.Spec)
	return ok && draft.Place(c, orbit.Choice{Node: n, Devices: devices}) == nil
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
