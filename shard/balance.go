package shard

import (
	"cmp"
	"math"
	"slices"
)

// Definition of balance. The weight of a node is a list of quantities: its capacity and its free capacity in every
// dimension and in devices, each as a share of the capacity of all schedulable nodes. With S groups, the mean of a
// quantity is 1/S of its total. A group is in balance if no quantity differs from its mean by more than
//
//	slack = the greater of Tolerance/S and (S-1)/S of the largest value that one node has
//
// Excess is the part of a difference that exceeds the slack. The search moves one node at a time, from or to the group
// with the most excess: the node that reduces the sum of the squares of all excess the most. It ends when there is no
// excess, or no move of one node reduces it. It follows:
//
//   - If all nodes have the same proportions, whatever their sizes, no excess is left: if one group is above the mean by
//     more than the slack, another one is below it by at least a (S-1)-th of that, and can take any node without getting
//     above its slack. The same holds for a group below the mean.
//   - If all nodes are alike, the number of moves is the least possible, because each move takes a node from a group that
//     has too many and gives it to the one that lacks most.
//   - No node moves without excess, and each move reduces it: a second search moves nothing, and changes within the slack
//     move nothing.
//
// Free capacity is a share of the total capacity, not of the total free capacity: when a constellation is almost full,
// it does not matter which group has the last free parts.

// balance is the state of one search.
type balance struct {
	groups  []*group // those of live schedulers, sorted by name
	scale   [quantities]float64
	mean    [quantities]float64
	slack   [quantities]float64
	present []int // quantities of which there is any capacity
	// off is, for each group, the difference of each quantity from its mean.
	off [][quantities]float64
	// excess is the sum of the squares of all excess; excessOf is the part of each group.
	excess   float64
	excessOf []float64
}

// newBalance computes the differences of the groups. The tally is of all schedulable nodes, also those without a group.
func newBalance(groups []*group, all *tally, largest *load, tolerance float64) *balance {
	b := &balance{groups: groups, off: make([][quantities]float64, len(groups)), excessOf: make([]float64, len(groups))}
	count := float64(len(groups))
	for k := range quantities {
		total := all.value(k % kinds)
		if total == 0 {
			continue
		}
		b.present = append(b.present, k)
		b.scale[k] = 1 / total
		b.mean[k] = all.value(k) / total / count
		b.slack[k] = max(tolerance/count, float64(largest[k%kinds])/total*(count-1)/count) * (1 + 1e-9)
	}
	for i, g := range groups {
		for _, k := range b.present {
			b.off[i][k] = g.sum.value(k)*b.scale[k] - b.mean[k]
		}
		b.updateExcess(i)
	}
	return b
}

// updateExcess computes the excess of a group anew.
func (b *balance) updateExcess(i int) {
	b.excess -= b.excessOf[i]
	b.excessOf[i] = 0
	for _, k := range b.present {
		b.excessOf[i] += square(b.off[i][k], b.slack[k])
	}
	b.excess += b.excessOf[i]
}

// square returns the square of the part of a difference that exceeds the slack.
func square(off, slack float64) float64 {
	over := max(0, math.Abs(off)-slack)
	return over * over
}

// step is a move or an exchange that reduces the excess.
type step struct {
	m *member
	// back is the node that goes the other way in an exchange; nil: the step is a move.
	back     *member
	from, to int
	gain     float64
}

// next returns a step that reduces the excess, and false if none does. It prefers steps of nodes without a living
// owner, which need no handoff; then moves to exchanges; and then the group with the most excess.
func (b *balance) next() (step, bool) {
	worst, fresh := b.worst(), 0
	for _, g := range b.groups {
		fresh += g.fresh
	}
	for _, only := range [2]bool{true, false} {
		for _, scan := range [2]func(*balance, int, int, bool, *step){(*balance).scan, (*balance).exchange} {
			for _, i := range worst {
				if only && fresh == 0 {
					continue
				}
				if best := b.best(i, only, scan); best.m != nil {
					return best, true
				}
			}
		}
	}
	return step{}, false
}

// worst lists the groups that have excess, the greatest first.
func (b *balance) worst() (out []int) {
	for i, e := range b.excessOf {
		if e > 0 {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(x, y int) int { return cmp.Compare(b.excessOf[y], b.excessOf[x]) })
	return out
}

// manyGroups is the number of groups above which the search stops at the pair of groups that differs most and has a
// step. With fewer groups it compares all pairs, which takes longer and moves fewer nodes.
const manyGroups = 16

// best returns the best step between group i and the others.
func (b *balance) best(i int, fresh bool, scan func(*balance, int, int, bool, *step)) step {
	others := make([]int, 0, len(b.groups))
	for j := range b.groups {
		if j != i {
			others = append(others, j)
		}
	}
	far := b.distances(i)
	slices.SortStableFunc(others, func(x, y int) int { return cmp.Compare(far[y], far[x]) })
	// A smaller gain may be a rounding error.
	out := step{gain: 1e-9 * b.excess}
	for _, j := range others {
		scan(b, i, j, fresh, &out)
		scan(b, j, i, fresh, &out)
		if out.m != nil && len(b.groups) > manyGroups {
			break
		}
	}
	return out
}

// distances returns by how much each group differs from group i.
func (b *balance) distances(i int) []float64 {
	far := make([]float64, len(b.groups))
	for j := range b.groups {
		for _, k := range b.present {
			d := b.off[i][k] - b.off[j][k]
			far[j] += d * d
		}
	}
	return far
}

// scan searches for a move from one group to another that is better than the best so far. It searches only the cells
// whose bound allows one, and takes the first node of a cell that reaches 90% of the bound.
func (b *balance) scan(from, to int, fresh bool, best *step) {
	if fresh && b.groups[from].fresh == 0 {
		return
	}
	for _, c := range b.groups[from].cells {
		if fresh && !c.fresh {
			continue
		}
		most := b.bound(from, to, &c.shape)
		if most <= best.gain {
			continue
		}
		for _, m := range c.members {
			if gain := b.gain(from, to, &m.load, nothing); gain > best.gain {
				*best = step{m: m, from: from, to: to, gain: gain}
				if gain >= 0.9*most {
					break
				}
			}
		}
	}
}

// gain returns by how much an exchange of two loads reduces the excess. A move is an exchange for nothing.
func (b *balance) gain(from, to int, there, back *load) (gain float64) {
	for _, k := range b.present {
		if there[k] != back[k] {
			x, s := (float64(there[k])-float64(back[k]))*b.scale[k], b.slack[k]
			gain += square(b.off[from][k], s) - square(b.off[from][k]-x, s)
			gain += square(b.off[to][k], s) - square(b.off[to][k]+x, s)
		}
	}
	return gain
}

// nothing is the load that comes back in a move.
var nothing = &load{}

// bound returns the greatest gain that the move of a node of the shape can have. It takes for each quantity the best
// value between the smallest and the largest that such a node has. The best value is the one closest to half the
// difference of the groups, because the excess after moving x is convex in x and symmetric around that half.
func (b *balance) bound(from, to int, c *shape) (gain float64) {
	for _, k := range b.present {
		least, most := c.bounds(k)
		if most <= 0 {
			continue
		}
		f, t, s := b.off[from][k], b.off[to][k], b.slack[k]
		x := min(max((f-t)/2, least*b.scale[k]), most*b.scale[k])
		gain += square(f, s) - square(f-x, s) + square(t, s) - square(t+x, s)
	}
	return gain
}

// move applies a step to the groups.
func (b *balance) move(s step) {
	b.groups[s.from].discount(s.m)
	b.add(s.from, &s.m.load, -1)
	b.give(s.m, s.to)
	if s.back != nil {
		b.move(step{m: s.back, from: s.to, to: s.from})
	}
}

// give adds a node that is in no group to a group.
func (b *balance) give(m *member, to int) {
	b.groups[to].count(m, false)
	b.add(to, &m.load, 1)
}

// add adds a node's load to a group (sign 1), or subtracts it (sign -1).
func (b *balance) add(i int, l *load, sign float64) {
	for _, k := range b.present {
		b.off[i][k] += sign * float64(l[k]) * b.scale[k]
	}
	b.updateExcess(i)
}

// lightest returns the group that should get a node without an owner: the one whose sum of squares of all differences
// is least with the node; among equals the one with fewer nodes, and then the first.
func (b *balance) lightest(l *load) int {
	best, least := 0, math.Inf(1)
	for i, g := range b.groups {
		sum := 0.0
		for _, k := range b.present {
			x := float64(l[k]) * b.scale[k]
			sum += x * (2*b.off[i][k] + x)
		}
		if sum < least || sum == least && g.nodes < b.groups[best].nodes {
			best, least = i, sum
		}
	}
	return best
}
