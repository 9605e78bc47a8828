package whatif

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// division says which part of a demand goes to which node.
type division struct {
	nodes          []*orbit.NodeState // those that are there and take something
	there, joining []filling
	price          float64
}

// mostDivisions is how often the demand is divided anew between nodes that are there and nodes that join.
const mostDivisions = 6

// cut divides a demand between the nodes of a state and nodes that join. Nodes that are there take what saves most, by the
// values that capsules have on the nodes that join otherwise; what is left then changes the values.
func (g *growth) cut(state *orbit.State, demands []demand) (best division) {
	var rooms []*orbit.NodeState
	for n := range state.Nodes() {
		if n.Node.Schedulable() {
			rooms = append(rooms, n)
		}
	}
	whole := newCutting(demands, g.Kinds, &g.work)
	values, _, _, bound := whole.solve(g.ctx, whole.stocks(rooms))
	sums, moves := g.pooled()
	if g.bound = sums; !moves {
		g.bound = max(sums, bound, whole.bound(values, rooms))
	}
	for round := range mostDivisions {
		now, left := division{}, slices.Clone(demands)
		for _, n := range rooms {
			count := whole.fillThere(n, values, left)
			if count == nil {
				continue
			}
			now.nodes, now.there = append(now.nodes, n), append(now.there, filling{count: count})
			for d, count := range count {
				left[d].count -= count
			}
		}
		rest := newCutting(left, g.Kinds, &g.work)
		next, by, nodes, _ := rest.solve(g.ctx, nil)
		now.joining = rest.round(next, by, nodes)
		slices.SortStableFunc(now.joining, func(a, b filling) int { return cmp.Compare(a.kind, b.kind) })
		for _, f := range now.joining {
			now.price += g.Kinds[f.kind].Price
		}
		if round == 0 || now.price < best.price {
			best = now
		}
		if now.price == 0 || now.price <= g.bound*1.01 || g.ctx.Err() != nil {
			break
		}
		for i := range values {
			values[i] = (values[i] + next[i]) / 2
		}
	}
	return best
}

// pooled returns a bound by sums alone, and whether capsules may move: then no other bound holds.
func (g *growth) pooled() (bound float64, moves bool) {
	lacks := seats.Quantities{}
	for _, u := range g.units {
		for _, c := range u.members {
			for d := range lacks {
				lacks[d] += seats.WantOf(c.Spec, d)
			}
		}
	}
	for n := range g.state.Nodes() {
		if n.Node.Schedulable() {
			for d, free := range seats.MeasureFree(n) {
				lacks[d] -= free
			}
		}
		for c := range g.state.On(n.Node.ID) {
			moves = moves || mostMoves(g.Moves) > 0 && g.state.Movable(c) && (g.Stays == nil || !g.Stays(c))
		}
	}
	return pooled(g.ctx, lacks, g.Kinds), moves
}
