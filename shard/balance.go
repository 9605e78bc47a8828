package shard

import (
	"cmp"
	"math"
	"slices"
)

// What balance is. A node weighs what it has and what is free of it, in every dimension and in devices, each as a share
// of what all schedulable nodes have together; with S groups the mean of a quantity is 1/S of all of it. A group is in
// balance if no quantity is further from its mean than
//
//	slack = the greater of Tolerance/S and (S-1)/S of the node that has most of it
//
// What is outside the slack is excess. The search moves one node at a time, each time the one that takes most off the
// sum of all squares of excess, from or to the group that has most, and ends when there is no excess or no move of one
// node lessens it. What that means:
//
//   - Nodes of one shape, of any size: no excess is left. For if a group is over by more than the slack, another one is
//     below the mean by a (S-1)-th of that at least, and takes any node without getting over; likewise from below.
//   - Nodes alike: the moves are the least that there can be, for each takes one off what is over and puts it where most
//     is missing.
//   - Nothing moves without excess, and each move lessens it: a second search moves nothing, and what flutters within the
//     slack moves nothing.
//
// What is free is measured against capacity, not against what is free in all: when a constellation is almost full it
// does not matter who has the crumbs.

// balance is a search.
type balance struct {
	groups  []*group // live ones, by name
	scale   [quantities]float64
	mean    [quantities]float64
	slack   [quantities]float64
	present []int // quantities that there are
	// By group: how far each quantity is from the mean.
	off [][quantities]float64
	// Of all excess, squared.
	excess float64
	by     []float64 // by group
}

// newBalance weighs the groups, and what all nodes have together, be they in a group or not.
func newBalance(groups []*group, all *tally, largest *load, tolerance float64) *balance {
	b := &balance{groups: groups, off: make([][quantities]float64, len(groups)), by: make([]float64, len(groups))}
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
		b.weigh(i)
	}
	return b
}

// weigh sums up the excess of a group.
func (b *balance) weigh(i int) {
	b.excess -= b.by[i]
	b.by[i] = 0
	for _, k := range b.present {
		b.by[i] += square(b.off[i][k], b.slack[k])
	}
	b.excess += b.by[i]
}

// square returns the square of what is outside the slack.
func square(off, slack float64) float64 {
	over := max(0, math.Abs(off)-slack)
	return over * over
}

// step is a move, or an exchange, that lessens the excess.
type step struct {
	m *member
	// What goes the other way; nil: nothing.
	back     *member
	from, to int
	gain     float64
}

// next returns what to do next; false: nothing lessens the excess. Nodes that belong to nobody yet are moved first, for
// that costs nothing.
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

// worst lists the groups that have excess, most first.
func (b *balance) worst() (out []int) {
	for i, e := range b.by {
		if e > 0 {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(x, y int) int { return cmp.Compare(b.by[y], b.by[x]) })
	return out
}

// manyGroups is beyond how many groups the best step is looked for only between the two that differ most and have one.
// Else it is looked for everywhere, which costs more and moves less.
const manyGroups = 16

// best returns the best step between a group and the others.
func (b *balance) best(i int, fresh bool, scan func(*balance, int, int, bool, *step)) step {
	others := make([]int, 0, len(b.groups))
	for j := range b.groups {
		if j != i {
			others = append(others, j)
		}
	}
	far := b.distances(i)
	slices.SortStableFunc(others, func(x, y int) int { return cmp.Compare(far[y], far[x]) })
	// What is smaller than this is rounding.
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

// distances returns how far each group is from one.
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

// scan looks for a better move from one group to another than the best so far. It looks into the cells that may have
// one, and is content with nine tenths of what the cell could have.
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
			if gain := b.gain(from, to, &m.load); gain > best.gain {
				*best = step{m: m, from: from, to: to, gain: gain}
				if gain >= 0.9*most {
					break
				}
			}
		}
	}
}

// gain returns by how much a move lessens the excess.
func (b *balance) gain(from, to int, l *load) (gain float64) {
	for _, k := range b.present {
		if l[k] != 0 {
			x, s := float64(l[k])*b.scale[k], b.slack[k]
			gain += square(b.off[from][k], s) - square(b.off[from][k]-x, s)
			gain += square(b.off[to][k], s) - square(b.off[to][k]+x, s)
		}
	}
	return gain
}

// bound returns the most that a move of a node of the shape can gain: for each quantity the best that there is between
// the least and the most that such a node has. That is half the difference of the groups, or what is next to it, for
// what is left after moving x is convex in x and the same from both sides of that.
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

// move makes a move, or an exchange.
func (b *balance) move(s step) {
	b.groups[s.from].discount(s.m)
	b.add(s.from, &s.m.load, -1)
	b.give(s.m, s.to)
	if s.back != nil {
		b.move(step{m: s.back, from: s.to, to: s.from})
	}
}

// give gives a node that is in no group to one.
func (b *balance) give(m *member, to int) {
	b.groups[to].count(m, false)
	b.add(to, &m.load, 1)
}

// add adds a node to what a group has, or takes it away.
func (b *balance) add(i int, l *load, sign float64) {
	for _, k := range b.present {
		b.off[i][k] += sign * float64(l[k]) * b.scale[k]
	}
	b.weigh(i)
}

// lightest returns the group to which a node is best given: where the sum of squares of all quantities is least with
// it; the one with fewer nodes, and then the first, among equals.
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
