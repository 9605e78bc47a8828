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

// stock is a class of nodes that are there, and what is free on each, or more.
type stock struct {
	free  seats.Quantities
	alone []int
	nodes int
	// What all that fits on one may be worth at most, in the unit of the program.
	most float64
}

// mostStocks is the largest number of classes of nodes that are there.
const mostStocks = 96

// stocks divides nodes that are there into classes, by what is free. A node counts as if it had what the one of its class
// has that has most, so a bound by classes is a bound for the nodes.
func (c *cutting) stocks(rooms []*orbit.NodeState) (out []stock) {
	var all []stock
	for _, n := range rooms {
		if alone, some := c.aloneThere(n); some {
			all = append(all, stock{free: seats.MeasureFree(n), alone: alone, nodes: 1})
		}
	}
	slices.SortStableFunc(all, func(a, b stock) int { return slices.Compare(a.alone, b.alone) })
	for chunk := range slices.Chunk(all, max(1, (len(all)+mostStocks-1)/mostStocks)) {
		whole := stock{alone: slices.Clone(chunk[0].alone), nodes: len(chunk)}
		for i := range chunk {
			for d := range whole.free {
				whole.free[d] = max(whole.free[d], chunk[i].free[d])
			}
			for d := range whole.alone {
				whole.alone[d] = max(whole.alone[d], chunk[i].alone[d])
			}
		}
		out = append(out, whole)
	}
	return out
}

// aloneThere returns how many capsules of each demand fit on a node that is there, without others, and whether any does.
func (c *cutting) aloneThere(n *orbit.NodeState) (alone []int, some bool) {
	alone = make([]int, len(c.demands))
	free := seats.CapacityOf(n)
	for i := range c.demands {
		d := &c.demands[i]
		if d.count == 0 || !seats.Suits(n.Node, d.spec) {
			continue
		}
		if alone[i] = min(d.count, int(free.Fits(d.spec))); d.spec.KeepsOff(d.spec, orbit.NodeKey) {
			alone[i] = min(1, alone[i])
		}
		some = some || alone[i] > 0
	}
	return alone, some
}

// program is the linear program while it grows. Its variables are the values of the demands and, for each class of nodes
// that are there, by how much less than the most that may be what is on one of them is worth.
type program struct {
	c     *cutting
	there []stock
	unit  float64
	gains []float64
	rows  []programRow
}

// programRow says that what a filling is worth is no more than the limit. Kind is that of the node, or below 0 the class.
type programRow struct {
	filling
	coefficients []float64
	dual         float64
}

// limit returns what a node of a kind, or of a class, may be worth.
func (p *program) limit(kind int) float64 {
	if kind < 0 {
		return p.there[-1-kind].most
	}
	return p.c.kinds[kind].Price / p.unit
}

// add adds a row, if there is none for this filling.
func (p *program) add(f filling) bool {
	if slices.ContainsFunc(p.rows, func(r programRow) bool { return r.kind == f.kind && slices.Equal(r.count, f.count) }) {
		return false
	}
	row, limit := make([]float64, len(p.gains)), p.limit(f.kind)
	for i, n := range f.count {
		row[i] = float64(n) / limit
	}
	if f.kind < 0 {
		row[len(p.c.demands)-1-f.kind] = 1 / limit
	}
	p.rows = append(p.rows, programRow{filling: f, coefficients: row})
	return true
}

// begin writes the program with a row for each demand on each kind, and one for each class.
func (c *cutting) begin(there []stock) *program {
	p := &program{c: c, there: slices.Clone(there)}
	highest := make([]float64, len(c.demands)) // what a capsule may be worth at most
	for k := range c.kinds {
		p.unit = max(p.unit, c.kinds[k].Price)
	}
	p.gains = make([]float64, len(c.demands)+len(there))
	for i := range c.demands {
		highest[i] = math.Inf(1)
		for k := range c.kinds {
			if c.alone[k][i] > 0 {
				p.gains[i] = float64(c.demands[i].count)
				highest[i] = min(highest[i], p.limit(k)/float64(c.alone[k][i]))
			}
		}
		if p.gains[i] == 0 { // it fits on no kind
			highest[i] = 0
		}
	}
	for k := range c.kinds {
		for i, most := range c.alone[k] {
			if most > 0 {
				one := filling{k, make([]int, len(c.demands))}
				one.count[i] = most
				p.add(one)
			}
		}
	}
	for i := range p.there {
		s := &p.there[i]
		own := *c
		own.alone = [][]int{s.alone}
		_, _, s.most = own.fill(0, s.free, highest, nil, knapSteps)
		s.most = max(s.most, 1e-3)
		p.gains[len(c.demands)+i] = float64(s.nodes)
		p.add(filling{-1 - i, make([]int, len(c.demands))})
	}
	return p
}

// solve returns the values of the capsules of each demand, fillings of nodes that join with how many nodes have each, and a
// bound: no nodes that join and hold the demand, together with those that are there, cost less. It leaves out demands that
// fit on no kind.
func (c *cutting) solve(ctx context.Context, there []stock) (values []float64, by []filling, nodes []float64, bound float64) {
	p := c.begin(there)
	values = make([]float64, len(c.demands))
	for range mostRounds {
		if len(p.rows) == 0 || ctx.Err() != nil {
			return values, nil, nil, bound
		}
		rows := make([][]float64, len(p.rows))
		for i := range p.rows {
			rows[i] = p.rows[i].coefficients
		}
		x, duals, optimal := lp.Maximize(ctx, p.gains, rows, mostPivots)
		for i := range p.rows {
			p.rows[i].dual = duals[i]
		}
		now, total, broken := p.judge(x)
		if total >= bound {
			bound, values = total, now
		}
		if !optimal || !p.grow(broken) {
			break
		}
	}
	for i := range p.rows {
		if r := &p.rows[i]; r.kind >= 0 && r.dual > 0 {
			by, nodes = append(by, r.filling), append(nodes, r.dual/p.limit(r.kind))
		}
	}
	return values, by, nodes, bound
}

// judge finds for each kind and class the filling that is worth most by a solution. It returns values that no node that joins
// exceeds, the bound that these give, and the fillings that are worth more than the solution says.
func (p *program) judge(x []float64) (values []float64, bound float64, broken []filling) {
	c, worst := p.c, 1.0
	values = slices.Clone(x[:len(c.demands)])
	for k := range c.kinds {
		f, value, most := c.fill(k, c.free[k], values, nil, knapSteps)
		worst = max(worst, most/p.limit(k))
		if value > p.limit(k)*(1+1e-6) {
			broken = append(broken, f)
		}
	}
	for i := range values {
		bound += p.gains[i] * values[i] / worst
	}
	for i := range p.there {
		s, own := &p.there[i], *c
		own.alone = [][]int{s.alone}
		f, value, most := own.fill(0, s.free, values, nil, knapSteps)
		bound -= float64(s.nodes) * most / worst
		if f.kind = -1 - i; value > s.most-x[len(c.demands)+i]+s.most*1e-6 {
			broken = append(broken, f)
		}
	}
	for i := range values {
		values[i] *= p.unit / worst
	}
	return values, bound * p.unit, broken
}

// grow adds rows, and drops what the solution does not need once there are many. It reports whether there is a new row.
func (p *program) grow(broken []filling) (grows bool) {
	if len(p.rows) > 8*len(p.gains) {
		p.rows = slices.DeleteFunc(p.rows, func(r programRow) bool { return r.dual == 0 })
	}
	for _, f := range broken {
		grows = p.add(f) || grows
	}
	return grows
}

// fill returns the most valuable filling of a node with so much free, its value, and a bound on the value of any. At most
// has how many capsules of each demand there are; nil: as many as the demands say.
func (c *cutting) fill(kind int, free seats.Quantities, values []float64, atMost []int, steps int) (best filling, value, most float64) {
	s := knapsack{c: c, values: values, free: free, steps: steps, count: make([]int, len(c.demands)), best: make([]int, len(c.demands))}
	for i := range c.demands {
		fits := c.alone[kind][i]
		if atMost != nil {
			fits = min(fits, atMost[i])
		}
		if fits > 0 && values[i] > 0 {
			s.items = append(s.items, knapItem{demand: i, most: fits})
		}
	}
	if len(s.items) == 0 {
		return filling{kind, s.best}, 0, 0
	}
	s.weigh()
	most = s.bound(0, 0)
	s.search(0, 0)
	*c.work += steps - s.steps
	if s.steps > 0 {
		most = s.value
	}
	return filling{kind, s.best}, s.value, most
}

// weigh gives each item a weight: the sum of what it takes of each dimension, by the dual of the dimension in the linear
// program in which parts of items may be taken. By these weights, the bound is that of the program.
func (s *knapsack) weigh() {
	gains, rows := make([]float64, len(s.items)), [][]float64(nil)
	for i, it := range s.items {
		gains[i] = float64(it.most) * s.values[it.demand] // the variable is the part of the items that is taken
		row := make([]float64, len(s.items))
		row[i] = 1
		rows = append(rows, row)
	}
	for d, f := range s.free {
		row := make([]float64, len(s.items))
		for i, it := range s.items {
			row[i] = float64(it.most) * float64(seats.WantOf(s.c.demands[it.demand].spec, d)) / max(float64(f), 1e-3)
		}
		rows = append(rows, row)
	}
	_, duals, _ := lp.Maximize(context.Background(), gains, rows, mostPivots)
	for d, f := range s.free {
		if f > 0 {
			s.weights[d] = duals[len(s.items)+d] / float64(f)
		}
	}
	for i := range s.items {
		it := &s.items[i]
		for d := range s.free {
			it.weight += float64(seats.WantOf(s.c.demands[it.demand].spec, d)) * s.weights[d]
		}
		it.density = s.values[it.demand] / max(it.weight, 1e-12)
	}
	slices.SortStableFunc(s.items, func(a, b knapItem) int { return cmp.Compare(b.density, a.density) })
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

// bound returns a bound by values that no node that joins exceeds: the value of the demand, less the most that each node that
// is there may take of it.
func (c *cutting) bound(values []float64, rooms []*orbit.NodeState) (sum float64) {
	for i := range c.demands {
		sum += values[i] * float64(c.demands[i].count)
	}
	own := *c
	for _, n := range rooms {
		alone, some := c.aloneThere(n)
		if own.alone = [][]int{alone}; some {
			_, _, most := own.fill(0, seats.MeasureFree(n), values, nil, knapSteps/4)
			sum -= most
		}
	}
	return sum
}

// fillThere returns the most valuable filling of a node that is there with what is left of the demands; nil: nothing fits.
func (c *cutting) fillThere(n *orbit.NodeState, values []float64, left []demand) []int {
	alone, some := c.aloneThere(n)
	if !some {
		return nil
	}
	own, worth := *c, slices.Clone(values)
	own.alone = [][]int{alone}
	for i := range alone {
		alone[i] = min(alone[i], left[i].count)
		worth[i] += 1e-9 // what saves nothing has to be somewhere, too
	}
	f, value, _ := own.fill(0, seats.MeasureFree(n), worth, nil, knapSteps)
	if value == 0 {
		return nil
	}
	return f.count
}
