package nav

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// anchorRole is the part of a group's waiting members that have one spec.
type anchorRole struct {
	spec  *orbit.Spec
	shape holdShape
	count int
}

// party returns the members that start with the group and follow its anchor, less those that this plan has
// placed already. The state counts them, so that it does not matter who owns them or how many of them a pass has
// been handed. The order is that of the state, which depends on the specs alone.
func (p *anchorPass) party(g *anchorGroup) []anchorRole {
	var out []anchorRole
	for spec, count := range p.state.GroupPending(g.name) {
		if g.waitsHere(spec) {
			out = append(out, anchorRole{spec, shapeOf(spec), count})
		}
	}
	if room := p.holds.of[g.name]; room != nil {
		for _, h := range room.all {
			for i := range out {
				out[i].count -= btoi(h.used != nil && h.used == out[i].spec)
			}
		}
	}
	return out
}

// anchorNeed is what a group asks of the domains that it comes to, or those of its members who want to be near at one
// level.
type anchorNeed struct {
	// Hardest first: those that take the largest part of what all take.
	roles []anchorRole
	// The levels that members want to be near at, in order of their names, and what those of each ask for.
	levels []string
	parts  []*anchorNeed
	// Members that wait.
	total int
	// What all take together; what of that is not nothing; and for that the roles by what one takes, least first.
	sum   [allDims]float64
	dims  []int
	least [allDims][]int
}

// need sums up what a group asks for.
func (p *anchorPass) need(g *anchorGroup) *anchorNeed {
	n := needOf(p.party(g))
	by := map[string][]anchorRole{}
	for _, r := range n.roles {
		by[r.spec.Near.Level] = append(by[r.spec.Near.Level], r)
	}
	n.levels = slices.Sorted(maps.Keys(by))
	for _, level := range n.levels {
		n.parts = append(n.parts, needOf(by[level]))
	}
	return n
}

// needOf sums up what some members ask for.
func needOf(roles []anchorRole) *anchorNeed {
	n := &anchorNeed{roles: roles}
	for _, r := range n.roles {
		n.total += r.count
		for d := range n.sum {
			n.sum[d] += float64(wantOf(r.spec, d)) * float64(r.count)
		}
	}
	for d := range n.sum {
		if n.sum[d] > 0 {
			n.dims = append(n.dims, d)
		}
	}
	slices.SortStableFunc(n.roles, func(a, b anchorRole) int { return cmp.Compare(n.part(b.spec), n.part(a.spec)) })
	for _, d := range n.dims {
		n.least[d] = n.smallest(d)
	}
	return n
}

// smallest returns the roles by what one of their members takes in a dimension, least first.
func (n *anchorNeed) smallest(d int) []int {
	order := make([]int, len(n.roles))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(wantOf(n.roles[a].spec, d), wantOf(n.roles[b].spec, d))
	})
	return order
}

// part returns which part of what all members take one of them takes, in the dimension where that is largest.
func (n *anchorNeed) part(spec *orbit.Spec) (part float64) {
	for _, d := range n.dims {
		part = max(part, float64(wantOf(spec, d))/n.sum[d])
	}
	return part
}

// atMost bounds how many members fit into what is free of a whole domain, by every quantity alone: the smallest
// are counted first.
func (n *anchorNeed) atMost(free *quantities) int {
	most := n.total
	for _, d := range n.dims {
		fit, left := 0, free[d]
		for _, i := range n.least[d] {
			want, count := wantOf(n.roles[i].spec, d), n.roles[i].count
			if want > 0 {
				count = int(min(int64(count), left/want))
				left -= int64(count) * want
			}
			fit += count
			if count < n.roles[i].count {
				break
			}
		}
		most = min(most, fit)
	}
	return most
}

// spare says how much of a domain the members would leave: less is tighter.
func (n *anchorNeed) spare(free *quantities) (spare float64) {
	for _, d := range n.dims {
		spare += float64(free[d]) / n.sum[d]
	}
	return spare
}

// addFree adds what is free, of which nothing counts below zero, up to the largest number there is.
func addFree(sum, free int64) int64 {
	if free = max(free, 0); free > math.MaxInt64-sum {
		return math.MaxInt64
	}
	return sum + free
}
