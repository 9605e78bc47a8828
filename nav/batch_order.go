package nav

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
)

// batchClass is the pending capsules of one spec: those that are nominated, then the others, in the order in which they were
// handed over.
type batchClass struct {
	spec     *orbit.Spec
	capsules []*orbit.Capsule
	// One of them is nominated.
	nominated bool
	// What one of them takes of the free room, by how much in demand each dimension is.
	size float64
	// How many to place while places are still being dealt out; the rest fills up what is left then.
	share int
}

// batchLevel is all classes of one priority, smallest first.
type batchLevel []*batchClass

// divide sorts capsules into levels, highest priority first. Members of gangs are not this navigator's.
func divide(pending []*orbit.Capsule) (levels []batchLevel, members []*orbit.Capsule) {
	classes := map[*orbit.Spec]*batchClass{}
	byPriority := map[int32]int{}
	for _, c := range pending {
		if c.Gang != "" {
			members = append(members, c)
			continue
		}
		k := classes[c.Spec]
		if k == nil {
			k = &batchClass{spec: c.Spec}
			classes[c.Spec] = k
			at, known := byPriority[c.Spec.Priority]
			if !known {
				at = len(levels)
				byPriority[c.Spec.Priority] = at
				levels = append(levels, nil)
			}
			levels[at] = append(levels[at], k)
		}
		if k.capsules = append(k.capsules, c); c.Nomination.Lives() {
			k.nominated = true
		}
	}
	for _, k := range classes {
		if k.nominated { // room may be nominated for one of them where none of the others fits
			slices.SortStableFunc(k.capsules, func(a, b *orbit.Capsule) int { return btoi(b.Nomination.Lives()) - btoi(a.Nomination.Lives()) })
		}
	}
	slices.SortFunc(levels, func(a, b batchLevel) int { return cmp.Compare(b[0].spec.Priority, a[0].spec.Priority) })
	return levels, members
}

// sort orders the classes by size. Of classes of one size those come first that were handed over first.
func (l batchLevel) sort(demand *demandVector, free *[allDims]float64) {
	for _, c := range l {
		c.size, c.share = 0, len(c.capsules)
		for d, v := range demand {
			if v > 0 {
				c.size += v * float64(wantOf(c.spec, d)) / free[d]
			}
		}
	}
	slices.SortStableFunc(l, func(a, b *batchClass) int { return cmp.Compare(a.size, b.size) })
}

func (l batchLevel) capsules() (n int) {
	for _, c := range l {
		n += len(c.capsules)
	}
	return n
}

// batchOrder is an order in which to place the classes of a level.
type batchOrder struct {
	// Shares are dealt out in so many rounds, a part of every class in each.
	rounds int
	// Within a round the largest class comes first, not the smallest.
	largeFirst bool
	// Fill nodes one after another.
	tight float64
}

// snug is for when there is room for all: first fit decreasing, the classic of bin packing.
var snug = batchOrder{rounds: 1, largeFirst: true, tight: 0.5}

// crowded are for when there is not, most promising first; which is best depends on the mix. In the first two all
// classes grow side by side, so that every node comes near to the mix that uses it up. The last leaves out what is
// large, whatever the shares say; among nodes that suit alike it keeps to the fullest.
var crowded = []batchOrder{
	{rounds: 5},
	{rounds: 20, largeFirst: true},
	{tight: 0.001},
}
