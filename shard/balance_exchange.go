package shard

import (
	"cmp"
	"slices"
)

// exchanged is how many cells of each group exchange considers at most.
const exchanged = 64

// exchange searches for two nodes, one of each group, whose exchange is better than the best step so far. It tries one
// node of each cell. If there are many cells it tries those whose node, moved alone, would do the least harm.
func (b *balance) exchange(from, to int, fresh bool, best *step) {
	if from > to || fresh && (b.groups[from].fresh == 0 || b.groups[to].fresh == 0) {
		return // the call with from and to exchanged finds the same
	}
	there, back := b.candidates(from, to, fresh), b.candidates(to, from, fresh)
	for _, m := range there {
		for _, o := range back {
			if gain := b.gain(from, to, &m.load, &o.load); gain > best.gain {
				*best = step{m: m, back: o, from: from, to: to, gain: gain}
			}
		}
	}
}

// candidates returns one node of each cell that may be exchanged.
func (b *balance) candidates(from, to int, fresh bool) []*member {
	type candidate struct {
		m    *member
		gain float64
	}
	var all []candidate
	for _, c := range b.groups[from].cells {
		if !fresh || c.fresh {
			m := c.members[0]
			all = append(all, candidate{m, b.gain(from, to, &m.load, nothing)})
		}
	}
	if len(all) > exchanged {
		slices.SortStableFunc(all, func(x, y candidate) int { return cmp.Compare(y.gain, x.gain) })
		all = all[:exchanged]
	}
	out := make([]*member, len(all))
	for i := range all {
		out[i] = all[i].m
	}
	return out
}
