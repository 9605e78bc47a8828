package nav

import (
	"context"
	"iter"
	"math"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/lp"
)

// boundOf returns an upper bound on how many capsules of the classes fit on the nodes, and how many capsules of each
// class to place. The classes must be sorted by size, smallest first. If ctx ends meanwhile, the bound still holds but
// is larger.
func boundOf(ctx context.Context, nodes iter.Seq[*orbit.NodeState], classes []*batchClass) (bound int, shares []int) {
	v := newInventory(nodes, classes)
	duals, shares := v.solve(ctx)
	return v.bound(duals), shares
}

// packDuals are the values, in capsules, of one unit of each dimension on each kind of node. No value is negative.
type packDuals [][packDims]float64

// bound returns an upper bound on how many capsules fit, whatever the duals are. Let p be the duals of a kind of node,
// w what a capsule wants, and x how many capsules of a class go to a kind. Then
//
//	sum of x <= sum of x·(1 - p·w)⁺ + sum of x·p·w
//	         <= sum over classes of count·gain + sum over kinds of p·free
//
// where gain is the largest value of (1 - p·w)⁺ on a kind that takes the class. The first term counts, for each
// capsule, by how much its cost is below 1. The second is the value of all free capacity. Good duals make the bound
// tight; bad ones only make it large. It is rounded up by far more than rounding errors in the sums.
func (v *inventory) bound(p packDuals) int {
	all, total := 0, 0.0
	for i := range v.classes {
		all += v.classes[i].count
		total += float64(v.classes[i].count) * v.gain(p, &v.classes[i])
	}
	for k := range v.kinds {
		for d, worth := range p[k] {
			total += worth * v.kinds[k].sum[d]
		}
	}
	total += total*1e-9 + 1e-6
	if total < float64(all) { // false if total is NaN
		return int(math.Floor(total))
	}
	return all
}

// gain returns by how much the cost of a capsule of the class is below 1, on the kind where it is cheapest among those
// that take the class; 0 if it costs more than 1 on all of them.
func (v *inventory) gain(p packDuals, c *classDemand) (most float64) {
	for k := range v.kinds {
		if !v.kinds[k].takes(c) {
			continue
		}
		gain := 1.0
		for d, want := range c.want {
			if want > 0 {
				gain -= p[k][d] * float64(want)
			}
		}
		most = max(most, gain)
	}
	return most
}

// classGroup is a set of classes that the linear program treats as one, with the mean of what they want.
type classGroup struct {
	members []*classDemand
	count   float64
	want    [packDims]float64
}

// groups merges classes that want about the same resources of the same nodes, so that the linear program stays small.
func (v *inventory) groups() (out []classGroup, total float64) {
	limit := max(1, min(maxGroups, maxColumns/max(1, len(v.kinds))))
	for _, members := range coarsest(v.classes, limit, (*classDemand).key) {
		g := classGroup{members: members}
		for _, c := range members {
			if c.count == 0 {
				continue
			}
			g.count += float64(c.count)
			for d, want := range c.want {
				g.want[d] += (float64(want) - g.want[d]) * float64(c.count) / g.count
			}
		}
		if g.count > 0 {
			out, total = append(out, g), total+g.count
		}
	}
	return out, total
}

// solve returns the duals, and how many capsules of each class to place so that the most fit, as if capsules were
// divisible. The linear program decides which part of each group goes to each kind of node. Everything is scaled to be
// about 1: a row of a kind is the part of its free capacity that is taken.
//
//	rows     groups | dimensions of kind 0 | dimensions of kind 1 | ...
//	columns  group 0 on kinds 0, 1, ... | group 1 on kinds 0, 1, ... | ...
func (v *inventory) solve(ctx context.Context) (packDuals, []int) {
	groups, total := v.groups()
	kinds := len(v.kinds)
	gains, rows := make([]float64, len(groups)*kinds), make([][]float64, len(groups)+kinds*packDims)
	for i := range rows {
		rows[i] = make([]float64, len(gains))
	}
	for g := range groups {
		for k := range v.kinds {
			if !groups[g].fits(&v.kinds[k]) {
				continue
			}
			column := g*kinds + k
			gains[column] = groups[g].count / total
			rows[g][column] = 1
			for d, want := range groups[g].want {
				if sum := v.kinds[k].sum[d]; want > 0 && sum > 0 {
					rows[len(groups)+k*packDims+d][column] = groups[g].count * want / sum
				}
			}
		}
	}
	parts, worth, _ := lp.Maximize(ctx, gains, rows, maxPivots*len(rows)) // where it stops early the bound is larger
	duals := make(packDuals, kinds)
	for k := range v.kinds {
		for d, sum := range v.kinds[k].sum {
			if sum > 0 {
				duals[k][d] = worth[len(groups)+k*packDims+d] * total / sum
			}
		}
	}
	return duals, v.shares(groups, parts)
}

// fits reports whether a kind of node takes any class of the group.
func (g *classGroup) fits(k *nodeKind) bool {
	for _, c := range g.members {
		if c.count > 0 && k.takes(c) {
			return true
		}
	}
	return false
}

// shares returns how many capsules of each class to place. Within a group the smallest classes come first.
func (v *inventory) shares(groups []classGroup, parts []float64) []int {
	share := map[*classDemand]int{}
	for g := range groups {
		part := 0.0
		for _, x := range parts[g*len(v.kinds):][:len(v.kinds)] {
			part += x
		}
		left := int(part*groups[g].count + 0.5)
		for _, c := range groups[g].members {
			share[c] = min(left, c.count)
			left -= share[c]
		}
	}
	out := make([]int, len(v.classes))
	for i := range v.classes {
		out[i] = share[&v.classes[i]]
	}
	return out
}
