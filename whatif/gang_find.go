package whatif

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
)

// How much is tried for the fixes of a gang: in so many domains, so many seatings for each change that is looked for, with so many nodes that may be
// uncordoned or are added, of so many kinds, and with so many ways to change the request. A seating looks at the nodes of one domain and places the
// members that are lacking.
const (
	mostGangDomains = 8
	mostSeatings    = 256
	mostGangNodes   = 256
	mostKinds       = 4
	mostCuts        = 32
	// Holds, cordons, evictions, nodes twice, and the ways to change the request, the first seating in each domain, and what each cordoned node takes.
	mostSeatingsInAll = (5+mostCuts)*(mostSeatings+1) + mostGangDomains*(1+mostGangNodes)
)

// gangAsker looks for changes that make a gang fit.
//
// Its planner seats one role after the other, those that ask for most first, and fills one node after the other, the fullest first. So with one role
// it is exact, but for rules of company and parts of devices; with several it may find no seats where there are some, and what is minimal is so as far
// as it goes.
type gangAsker struct {
	ctx   context.Context
	state *orbit.State
	gang  *orbit.GangState
	draft *orbit.Draft
	needs [][]*orbit.Capsule
	// Where is looked, those where most members fit first.
	places []gangPlace
	// What seatings are left to the change that is looked for.
	left int
	// How many there have been.
	seatings int
}

// gangPlace is a domain to look in.
type gangPlace struct {
	level, domain string
	// No node is in it.
	fresh bool
	// By their index.
	nodes []int
}

func (p *gangPlace) has(n *orbit.Node) bool { return p.level == "" || n.Labels[p.level] == p.domain }

// in returns the nodes of a draft that are in the domain and no others.
func (p *gangPlace) in(draft *orbit.Draft, others func(*orbit.Node) bool) (out []int) {
	for n := range draft.Nodes() {
		if p.has(n.Node) && (others == nil || !others(n.Node)) {
			out = append(out, n.Index())
		}
	}
	return out
}

// needsOf returns the members that wait and are lacking to the minimum of each role, of roles that ask for most first; false: too few wait.
func needsOf(state *orbit.State, g *orbit.GangState, as *orbit.Gang) (needs [][]*orbit.Capsule, ok bool) {
	for i := range as.Roles {
		role, count := &as.Roles[i], lacking(g, as, i)
		if count == 0 {
			continue
		}
		var members []*orbit.Capsule
		for _, id := range role.Members {
			if c := state.Capsule(id); len(members) < count && c != nil && c.Gang == as.ID && c.Pending() {
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

// lacking is how many members a role lacks to its minimum.
func lacking(g *orbit.GangState, as *orbit.Gang, role int) int {
	return max(0, wanted(&as.Roles[role])-g.Placed[role])
}

// fixes returns changes that help in these domains, those that change nothing of the request first.
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

// around looks for seats in a domain, and in those of other levels that have nodes of it: what is changed in one is a change in the others, too. It fills in
// where they are.
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

// commits returns the state after the fix; nil: it does not commit. It fills in what is common to all fixes.
func (a *gangAsker) commits(f *GangFix, p *gangPlace) *orbit.State {
	f.names, f.Level, f.Domain, f.New, f.Gang = a.state.DimensionName, p.level, p.domain, p.fresh, cmp.Or(f.Gang, a.gang.Gang)
	next, err := a.state.With(f.Proposal())
	if err != nil {
		return nil
	}
	return next
}

// verify reports whether the fix commits and evicts nobody in vain.
func (a *gangAsker) verify(f *GangFix, p *gangPlace) bool {
	next := a.commits(f, p)
	return next != nil && !slices.ContainsFunc(f.Evict, func(id orbit.CapsuleID) bool { return !next.Capsule(id).Pending() })
}

// seat takes steps on a draft and then seats all that are needed on these nodes. It returns the placements, and leaves the draft as it was; nil: it cannot.
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

// fill places members of one role on these nodes, as many as find room. It goes over the nodes again while that helps, because a rule of company may open one.
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

// sit places a capsule on a node, if it takes it.
func sit(draft *orbit.Draft, n *orbit.NodeState, c *orbit.Capsule) bool {
	if draft.Misfit(n, c.Spec) != (orbit.Misfit{}) {
		return false
	}
	devices, ok := n.PickDevices(c.Spec)
	return ok && draft.Place(c, orbit.Choice{Node: n, Devices: devices}) == nil
}

// fewest returns the shortest beginning of a list that serves, less everything that it serves without; nil: the whole list does not.
func fewest[T any](list []T, serves func([]T) bool) []T {
	if len(list) == 0 || !serves(list) {
		return nil
	}
	n := 1 + sort.Search(len(list)-1, func(i int) bool { return serves(list[:i+1]) })
	out := slices.Clone(list[:n])
	for before := 0; before != len(out); { // once more after a change, because a planner that is not exact may do without more then
		before = len(out)
		for i := len(out) - 2; i >= 0; i-- { // the last one is needed
			if less := slices.Delete(slices.Clone(out), i, i+1); serves(less) {
				out = less
			}
		}
	}
	return out
}
