package whatif

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/lp"
	"github.com/orbitsched/orbit/internal/seats"
)

// demand is how many capsules of one spec need a place.
type demand struct {
	spec  *orbit.Spec
	count int
}

// filling is what is on one node of a kind: how many capsules of each demand.
type filling struct {
	kind  int
	count []int
}

// cutting finds the fillings of nodes that together hold a demand at the least price. It is the linear program of the
// cutting-stock problem: the price of a capsule of each spec is a variable, and each filling of a node is a row, which
// says that what is on the node is worth at most the node's price. The program grows by the row that it breaks most, until
// it breaks none; then the dual of each row is how many such nodes there are.
type cutting struct {
	demands []demand
	kinds   []NodeKind
	// The free amounts of an empty node of each kind, and how many capsules of each demand fit on one alone.
	free  []seats.Quantities
	alone [][]int
	// Pairs of demands that may not be on one node.
	apart [][]bool
	work  *int
}

// The bounds of the program: how often it grows, how many pivots one solution takes, and how many steps the search for one
// filling takes.
const (
	mostRounds = 60
	mostPivots = 2_000
	knapSteps  = 4_000
)

func newCutting(demands []demand, kinds []NodeKind, work *int) *cutting {
	c := &cutting{demands: demands, kinds: kinds, work: work}
	for k := range kinds {
		n := &orbit.NodeState{Node: &kinds[k].Node}
		c.free = append(c.free, seats.MeasureFree(n))
		alone := make([]int, len(demands))
		for i := range demands {
			alone[i] = aloneOn(n, &demands[i])
		}
		c.alone = append(c.alone, alone)
	}
	c.apart = make([][]bool, len(demands))
	for i := range demands {
		c.apart[i] = make([]bool, len(demands))
		for j := range demands {
			a, b := demands[i].spec, demands[j].spec
			c.apart[i][j] = i != j && (a.KeepsOff(b, orbit.NodeKey) || b.KeepsOff(a, orbit.NodeKey))
		}
	}
	return c
}

// aloneOn returns how many capsules of a demand fit on a node, without others.
func aloneOn(n *orbit.NodeState, d *demand) int {
	if !seats.Suits(n.Node, d.spec) {
		return 0
	}
	whole := seats.CapacityOf(n)
	fits := min(int(whole.Fits(d.spec)), d.count)
	if d.spec.KeepsOff(d.spec, orbit.NodeKey) {
		fits = min(fits, 1)
	}
	for _, e := range d.spec.Extras {
		has := int64(0)
		for _, x := range n.Node.Extras {
			if x.Name == e.Name {
				has = x.Amount
			}
		}
		if e.Amount > 0 {
			fits = min(fits, int(has/e.Amount))
		}
	}
	return fits
}

// solve returns the values of the capsules of each demand, fillings with how many nodes have each, and a bound: no nodes
// that hold the demand cost less. It leaves out demands that fit on no kind.
func (c *cutting) solve(ctx context.Context) (values []float64, by []filling, nodes []float64, bound float64) {
	values = make([]float64, len(c.demands))
	gains, unit := make([]float64, len(c.demands)), 0.0
	for i := range c.demands {
		for k := range c.kinds {
			if most := c.alone[k][i]; most > 0 {
				one := filling{k, make([]int, len(c.demands))}
				one.count[i] = most
				by = append(by, one)
				gains[i] = float64(c.demands[i].count)
				unit = max(unit, c.kinds[k].Price)
			}
		}
	}
	var rows [][]float64
	for range mostRounds {
		for i := len(rows); i < len(by); i++ {
			row := make([]float64, len(c.demands))
			for j, n := range by[i].count {
				row[j] = float64(n) * unit / c.kinds[by[i].kind].Price
			}
			rows = append(rows, row)
		}
		if len(rows) == 0 || ctx.Err() != nil {
			return values, nil, nil, bound
		}
		now, duals, optimal := lp.Maximize(ctx, gains, rows, mostPivots)
		values, nodes = now, slices.Clone(duals)
		for i := range nodes { // from the value of one unit on the right to a number of nodes
			nodes[i] *= unit / c.kinds[by[i].kind].Price
		}
		worst, sum := 1.0, 0.0
		before := len(by)
		for k := range c.kinds {
			best, value, most := c.fill(k, c.free[k], values, nil, knapSteps)
			price := c.kinds[k].Price / unit
			worst = max(worst, most/price)
			if value > price*(1+1e-6) && !slices.ContainsFunc(by, func(f filling) bool { return f.kind == k && slices.Equal(f.count, best.count) }) {
				by = append(by, best)
			}
		}
		for i, v := range values {
			sum += gains[i] * v * unit
		}
		if bound = max(bound, sum/worst); len(by) == before || !optimal {
			break
		}
	}
	for i := range values {
		values[i] *= unit
	}
	return values, by[:len(nodes)], nodes, bound
}

// fill returns the most valuable filling of a node with so much free, its value, and a bound on the value of any. At most
// has how many capsules of each demand there are; nil: as many as the demands say.
func (c *cutting) fill(kind int, free seats.Quantities, values []float64, atMost []int, steps int) (best filling, value, most float64) {
	s := knapsack{c: c, values: values, free: free, steps: steps, count: make([]int, len(c.demands)), best: make([]int, len(c.demands))}
	for d, f := range free {
		if f > 0 {
			s.weights[d] = 1 / float64(f)
		}
	}
	for i := range c.demands {
		fits := c.alone[kind][i]
		if atMost != nil {
			fits = min(fits, atMost[i])
		}
		if fits == 0 || !(values[i] > 0) {
			continue
		}
		w := 0.0
		for d := range free {
			w += float64(seats.WantOf(c.demands[i].spec, d)) * s.weights[d]
		}
		s.items = append(s.items, knapItem{i, fits, w, values[i] / max(w, 1e-12)})
	}
	slices.SortStableFunc(s.items, func(a, b knapItem) int { return cmp.Compare(b.density, a.density) })
	most = s.bound(0, 0)
	s.search(0, 0)
	*c.work += steps - s.steps
	if s.steps > 0 {
		most = s.value
	}
	return filling{kind, s.best}, s.value, most
}

// knapsack searches for the most valuable filling.
type knapsack struct {
	c       *cutting
	values  []float64
	free    seats.Quantities
	weights [seats.AllDims]float64
	items   []knapItem
	steps   int
	count   []int
	best    []int
	value   float64
}

type knapItem struct {
	demand, most    int
	weight, density float64
}

// bound returns what the items from one on add at most to a value: the sum of all dimensions, each as a part of what was
// free, is filled by parts of items, the densest first.
func (s *knapsack) bound(from int, value float64) float64 {
	left := 0.0
	for d, f := range s.free {
		left += float64(f) * s.weights[d]
	}
	for _, it := range s.items[from:] {
		n := float64(it.most)
		if it.weight > 0 {
			n = min(n, left/it.weight)
		}
		value += n * s.values[it.demand]
		if left -= n * it.weight; left <= 0 {
			break
		}
	}
	return value
}

func (s *knapsack) search(from int, value float64) {
	if s.steps--; value > s.value {
		s.value = value
		copy(s.best, s.count)
	}
	if s.steps <= 0 || from == len(s.items) || s.bound(from, value) <= s.value*(1+1e-9) {
		return
	}
	it := &s.items[from]
	spec, n := s.c.demands[it.demand].spec, it.most
	for d, f := range s.free {
		if want := seats.WantOf(spec, d); want > 0 {
			n = min(n, int(f/want))
		}
	}
	for j, on := range s.count {
		if on > 0 && s.c.apart[it.demand][j] {
			n = 0
		}
	}
	for ; n >= 0 && s.steps > 0; n-- {
		s.take(spec, int64(n))
		s.count[it.demand] = n
		s.search(from+1, value+float64(n)*s.values[it.demand])
		s.count[it.demand] = 0
		s.take(spec, -int64(n))
	}
}

func (s *knapsack) take(spec *orbit.Spec, n int64) {
	for d := range s.free {
		s.free[d] -= n * seats.WantOf(spec, d)
	}
}

// round returns whole nodes that hold the demand, as fillings: those of the program, rounded down, and then the filling
// that is worth most for its price, one after the other. Max bounds the nodes of each kind.
func (c *cutting) round(values []float64, by []filling, nodes []float64) (out []filling) {
	left, used := make([]int, len(c.demands)), make([]int, len(c.kinds))
	worth := slices.Clone(values)
	for i := range c.demands {
		left[i] = c.demands[i].count
		worth[i] += 1e-9
	}
	for i, f := range by {
		for range int(nodes[i] + 1e-6) {
			if c.spent(f.kind, used) || !covers(left, f.count) {
				break
			}
			out = append(out, f)
			used[f.kind]++
			for j, n := range f.count {
				left[j] -= n
			}
		}
	}
	for {
		var best filling
		ratio := 0.0
		for k := range c.kinds {
			if c.spent(k, used) {
				continue
			}
			if f, value, _ := c.fill(k, c.free[k], worth, left, knapSteps/2); value/c.kinds[k].Price > ratio*(1+1e-9) {
				best, ratio = f, value/c.kinds[k].Price
			}
		}
		if best.count == nil {
			return out
		}
		out = append(out, best)
		used[best.kind]++
		for j, n := range best.count {
			left[j] -= n
		}
	}
}

func (c *cutting) spent(kind int, used []int) bool {
	return c.kinds[kind].Max > 0 && used[kind] >= c.kinds[kind].Max
}

func covers(left, count []int) bool {
	for i, n := range count {
		if n > left[i] {
			return false
		}
	}
	return true
}

// pooled returns a bound on the price of nodes by their sums alone: what is free together has to be enough for all that
// waits. It holds even if everything may move.
func pooled(ctx context.Context, lacks seats.Quantities, kinds []NodeKind) float64 {
	var dims []int
	for d, n := range lacks {
		if n > 0 {
			dims = append(dims, d)
		}
	}
	if len(dims) == 0 || len(kinds) == 0 {
		return 0
	}
	gains, rows := make([]float64, len(dims)), make([][]float64, len(kinds))
	for i := range gains {
		gains[i] = 1
	}
	for k := range kinds {
		free := seats.MeasureFree(&orbit.NodeState{Node: &kinds[k].Node})
		for _, d := range dims {
			rows[k] = append(rows[k], float64(free[d])/float64(lacks[d])/kinds[k].Price)
		}
	}
	x, _, _ := lp.Maximize(ctx, gains, rows, mostPivots)
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	if math.IsInf(sum, 0) || math.IsNaN(sum) {
		return 0
	}
	return sum
}
