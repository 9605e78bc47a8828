package nav

import (
	"context"
	"math"
	"strconv"
	"strings"
)

// Bounds of the linear program: classes priced together, pairs of such a group and a kind of room, and pivots for
// each row, of which it takes one or two.
const (
	maxGroups  = 128
	maxColumns = 2048
	maxPivots  = 8
)

// prices are what one unit of everything costs in each kind of room, in capsules; never negative.
type prices [][goodsDim]float64

// bound is an upper bound on how many capsules fit, whatever the prices are. Let p be the prices in a kind of room,
// w what a capsule wants, and x how many capsules of a class go into a kind. Then
//
//	sum of x <= sum of x·(1 - p·w)⁺ + sum of x·p·w
//	         <= sum over classes of count·gain + sum over kinds of p·free
//
// where gain is the most that (1 - p·w)⁺ comes to in a kind that takes the class. The first term counts capsules by
// how much less than 1 they cost; the second is the price of all free room. Good prices make it tight; bad ones only
// make it large. It is rounded upward by far more than the sums can be off.
func (m *market) bound(p prices) int {
	all, total := 0, 0.0
	for i, count := range m.counts {
		all += count
		total += float64(count) * m.gain(p, i)
	}
	for k := range m.kinds {
		for d, price := range p[k] {
			total += price * m.kinds[k].sum[d]
		}
	}
	total += total*1e-9 + 1e-6
	if total < float64(all) { // which a sum that is no number is not
		return int(math.Floor(total))
	}
	return all
}

// gain is the most that a capsule of the class costs less than 1, 0 if it costs more everywhere.
func (m *market) gain(p prices, class int) (most float64) {
	for k := range m.kinds {
		if !m.takes(&m.kinds[k], class) {
			continue
		}
		gain := 1.0
		for d, want := range m.wants[class] {
			if want > 0 {
				gain -= p[k][d] * float64(want)
			}
		}
		most = max(most, gain)
	}
	return most
}

// solve finds the prices, and how many of each class to place so that most fit, as if capsules could be cut
// up. Classes must be sorted, smallest first.
func (m *market) solve(ctx context.Context) (prices, []int) {
	groups := m.groups()
	prog := m.program(groups)
	prog.solve(ctx, maxPivots*len(prog.basis)) // where it stops early, prices are worse, but prices
	return m.priced(prog, groups), m.shares(prog, groups)
}

// classGroup is classes that are priced together, at the mean of what they want.
type classGroup struct {
	members []int
	count   float64
	want    [goodsDim]float64
}

// groups puts classes together that want about the same of the same nodes, so that there are not too many.
func (m *market) groups() []classGroup {
	out, most := m.groupsOf(math.MaxInt), max(1, min(maxGroups, maxColumns/max(1, len(m.kinds))))
	for keep := 6; len(out) > most && keep >= -1; keep-- {
		out = m.groupsOf(keep)
	}
	return out
}

func (m *market) groupsOf(keep int) (out []classGroup) {
	known := map[string]int{}
	var key strings.Builder
	for i, count := range m.counts {
		if count == 0 {
			continue
		}
		key.Reset()
		for _, w := range m.wants[i] {
			key.WriteString(strconv.FormatInt(coarse(w, keep), 36))
			key.WriteByte(' ')
		}
		for _, suits := range m.labels.suits {
			key.WriteString(strconv.FormatBool(suits[i] && keep >= 0))
		}
		at, found := known[key.String()]
		if !found {
			at = len(out)
			known[key.String()] = at
			out = append(out, classGroup{})
		}
		out[at].add(i, float64(count), &m.wants[i])
	}
	return out
}

// add takes in a class.
func (g *classGroup) add(class int, count float64, want *goods) {
	g.members = append(g.members, class)
	g.count += count
	for d, w := range want {
		g.want[d] += (float64(w) - g.want[d]) * count / g.count
	}
}

// groupFits reports whether a kind of room takes any of the group.
func (m *market) groupFits(g *classGroup, k *roomKind) bool {
	for _, i := range g.members {
		if m.takes(k, i) {
			return true
		}
	}
	return false
}

// program is the linear program: what part of each group to put into each kind of room, so that most capsules are
// placed, no more than there are and no more than there is room for. Everything is scaled to be about 1: a row of
// a kind of room is the part that is taken of what is free.
//
//	rows     groups | goods of kind 0 | goods of kind 1 | ...
//	columns  group 0 in kinds 0, 1, ... | group 1 in kinds 0, 1, ... | ...
func (m *market) program(groups []classGroup) *simplex {
	kinds, total := len(m.kinds), 0.0
	for i := range groups {
		total += groups[i].count
	}
	prog := newSimplex(len(groups)+kinds*goodsDim, len(groups)*kinds)
	costs := prog.rows[len(prog.basis)]
	for g := range groups {
		for k := range m.kinds {
			if !m.groupFits(&groups[g], &m.kinds[k]) {
				continue
			}
			column := g*kinds + k
			costs[column] = -groups[g].count / total
			prog.rows[g][column] = 1
			for d, want := range groups[g].want {
				if sum := m.kinds[k].sum[d]; want > 0 && sum > 0 {
					prog.rows[len(groups)+k*goodsDim+d][column] = groups[g].count * want / sum
				}
			}
		}
	}
	return prog
}

// priced returns the prices of the goods, in capsules.
func (m *market) priced(prog *simplex, groups []classGroup) prices {
	total := 0.0
	for i := range groups {
		total += groups[i].count
	}
	worth := prog.prices()[len(groups):]
	p := make(prices, len(m.kinds))
	for k := range m.kinds {
		for d, sum := range m.kinds[k].sum {
			if sum > 0 {
				p[k][d] = worth[k*goodsDim+d] * total / sum
			}
		}
	}
	return p
}

// shares returns how many of each class to place, of a group the smallest first.
func (m *market) shares(prog *simplex, groups []classGroup) []int {
	out, solution := make([]int, len(m.classes)), prog.solution()
	for g := range groups {
		part := 0.0
		for k := range m.kinds {
			part += solution[g*len(m.kinds)+k]
		}
		left := int(part*groups[g].count + 0.5)
		for _, i := range groups[g].members {
			out[i] = min(left, m.counts[i])
			left -= out[i]
		}
	}
	return out
}
