package whatif

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/internal/seats"
)

// The bounds of the exact search: up to how many capsules that wait, or nodes that may go, it is made, how many steps it
// takes in all, and how many of them for one set of nodes.
const (
	exactCapsules = 6
	exactNodes    = 8
	exactSteps    = 400_000
	exactStepsOne = 40_000
)

// vector is how many nodes of each kind join.
type vector struct {
	counts []int
	price  float64
	nodes  int
}

// exact searches all sets of nodes, the cheapest first, for one that gives a place to the same units as another, or to more
// of them.
func (g *growth) exact(than *grown) (*grown, error) {
	all := make([]bool, len(g.units))
	for i := range all {
		all[i] = true
	}
	vectors, left := g.vectors(), exactSteps
	if slices.Contains(than.done, false) {
		best, err := g.cheapestFor(vectors, all, nil, &left)
		if err != nil || best != nil {
			return cmp.Or(best, than), err
		}
		// Not all have a place. What is first in the queue comes first.
		return g.exactInOrder(vectors, than, &left)
	}
	best, err := g.cheapestFor(vectors, all, than, &left)
	return cmp.Or(best, than), err
}

func (g *growth) exactInOrder(vectors []vector, than *grown, left *int) (*grown, error) {
	with, best := make([]bool, len(g.units)), &grown{done: make([]bool, len(g.units))}
	for i := range with {
		with[i] = true
		next, err := g.cheapestFor(vectors, with, nil, left)
		if err != nil {
			return nil, err
		}
		if with[i] = next != nil; next != nil {
			best = next
		}
	}
	if by := compareDone(best.done, than.done); by < 0 || by == 0 && than.price <= best.price {
		return than, nil
	}
	return best, nil
}

// vectors returns all sets of nodes that may have to join, the cheapest first. No more nodes join than capsules wait and
// move.
func (g *growth) vectors() (out []vector) {
	most := min(3, mostMoves(g.Moves))
	for _, u := range g.units {
		most += len(u.members)
	}
	var choose func(kind int, v vector)
	choose = func(kind int, v vector) {
		if kind == len(g.Kinds) || len(out) > 20_000 {
			v.counts = slices.Clone(v.counts)
			out = append(out, v)
			return
		}
		limit := cmp.Or(g.Kinds[kind].Max, most)
		for n := 0; n <= min(limit, most-v.nodes); n++ {
			choose(kind+1, vector{append(v.counts, n), v.price + float64(n)*g.Kinds[kind].Price, v.nodes + n})
		}
	}
	choose(0, vector{})
	slices.SortStableFunc(out, func(a, b vector) int { return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.nodes, b.nodes)) })
	return out
}

// cheapestFor returns the cheapest set of nodes with which these units have a place; nil: none that costs less than another.
func (g *growth) cheapestFor(vectors []vector, with []bool, than *grown, left *int) (*grown, error) {
	var wants, free seats.Quantities
	for i, u := range g.units {
		for _, c := range u.members {
			for d := range wants {
				wants[d] += int64(btoi(with[i])) * seats.WantOf(c.Spec, d)
			}
		}
	}
	for n := range g.state.Nodes() {
		for d, f := range seats.MeasureFree(n) {
			free[d] = seats.AddFree(free[d], f)
		}
	}
	for i := range vectors {
		v := &vectors[i]
		if than != nil && v.price >= than.price*(1-1e-12) || *left <= 0 {
			return nil, nil
		}
		sum := free
		for k, count := range v.counts {
			for d, f := range seats.MeasureFree(&orbit.NodeState{Node: &g.Kinds[k].Node}) {
				sum[d] = seats.AddFree(sum[d], f*int64(count))
			}
		}
		if slices.ContainsFunc(seq(len(wants)), func(d int) bool { return wants[d] > sum[d] }) {
			continue
		}
		if out, err := g.fits(v, with, left); out != nil || err != nil {
			return out, err
		}
	}
	return nil, nil
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// fits places these units together with so many nodes more, exactly as far as the search for moves is; nil: they do not fit.
func (g *growth) fits(v *vector, with []bool, left *int) (*grown, error) {
	out := &grown{done: slices.Clone(with), at: map[orbit.CapsuleID]seatOn{}}
	g.joinAll(out, v.counts)
	l, err := g.lab(out.nodes)
	if err != nil {
		return nil, err
	}
	*left -= l.view.State().NodeCount()
	var found *moves.Found
	var choose func(i int, all []*orbit.Capsule)
	choose = func(i int, all []*orbit.Capsule) {
		switch {
		case found != nil || *left <= 0:
		case i == len(g.units):
			s := l.search(min(*left, exactStepsOne))
			// What asks to be near others comes after them.
			slices.SortStableFunc(all, func(a, b *orbit.Capsule) int { return btoi(asksNear(a.Spec)) - btoi(asksNear(b.Spec)) })
			if found = s.Room(all, nil); len(all) == 0 {
				found = &moves.Found{}
			}
			*left -= s.Taken()
			g.work += s.Taken()
		case !with[i]:
			choose(i+1, all)
		default:
			for _, domain := range g.units[i].where() {
				choose(i+1, slices.Concat(all, g.units[i].in(domain, l.specs)))
			}
		}
	}
	if choose(0, nil); found == nil || found.On(&l.draft) != nil {
		return nil, g.ctx.Err()
	}
	for i := range found.Seats {
		s := &found.Seats[i]
		out.at[s.Of.ID] = seatOn{l.draft.Node(s.Node).Node.ID, s.Devices}
		out.order = append(out.order, s.Of.ID)
	}
	return out, nil
}

func asksNear(spec *orbit.Spec) bool {
	for range spec.AllNear {
		return true
	}
	return false
}
