package nav

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// batchClass is the pending capsules of one spec and risen priority: the nominated ones, then the others in their order
// in the batch.
type batchClass struct {
	spec *orbit.Spec
	// priority is the one to which the capsules have risen by Aging; a spec has a class for each.
	priority int32
	capsules []*orbit.Capsule
	// nominated says that at least one of the capsules is nominated.
	nominated bool
	// size is the part of the free capacity that one capsule takes, weighted by the demand for each dimension.
	size float64
	// share is how many capsules the class may place in the rounds; the others fill what is free after all rounds.
	share int
}

// batchLevel is all classes of one priority, smallest first.
type batchLevel []*batchClass

// divide sorts capsules into levels, highest priority first. It returns members of gangs separately, because Batch does
// not place them.
func divide(view *orbit.View, pending []*orbit.Capsule) (levels []batchLevel, members []*orbit.Capsule) {
	type key struct {
		spec     *orbit.Spec
		priority int32
	}
	classes := map[key]*batchClass{}
	byPriority := map[int32]int{}
	for _, c := range pending {
		if c.Gang() != "" {
			members = append(members, c)
			continue
		}
		of := key{c.Spec, view.Turn(c)}
		k := classes[of]
		if k == nil {
			k = &batchClass{spec: c.Spec, priority: of.priority}
			classes[of] = k
			at, known := byPriority[k.priority]
			if !known {
				at = len(levels)
				byPriority[k.priority] = at
				levels = append(levels, nil)
			}
			levels[at] = append(levels[at], k)
		}
		if k.capsules = append(k.capsules, c); c.Nomination().Lives() {
			k.nominated = true
		}
	}
	for _, k := range classes {
		if k.nominated { // nominated capsules first: their own room may be the only room where the class fits
			slices.SortStableFunc(k.capsules, func(a, b *orbit.Capsule) int { return btoi(b.Nomination().Lives()) - btoi(a.Nomination().Lives()) })
		}
	}
	slices.SortFunc(levels, func(a, b batchLevel) int { return cmp.Compare(b[0].priority, a[0].priority) })
	return levels, members
}

// sort orders the classes by size. Classes of the same size keep their order in the batch.
func (l batchLevel) sort(demand *demandVector, free *[seats.AllDims]float64) {
	for _, c := range l {
		c.size, c.share = 0, len(c.capsules)
		for d, v := range demand {
			if v > 0 {
				c.size += v * float64(seats.WantOf(c.spec, d)) / free[d]
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
	// rounds is the number of rounds; each round places the same part of every class's share.
	rounds int
	// largeFirst says that within a round the largest class comes first, not the smallest.
	largeFirst bool
	// tight is the weight with which nodes are filled one after another, and spares keeps work without devices off nodes
	// with devices; see packScore.
	tight  float64
	spares bool
}

// snug is the order if everything fits: first fit decreasing, the usual heuristic of bin packing.
var snug = batchOrder{rounds: 1, largeFirst: true, tight: 0.5, spares: true}

// crowded are the orders if not everything fits, the most promising first; which one is best depends on the mix. The
// first two place all classes in turn, so that every node gets close to the mix that uses it up. The last one leaves
// out large capsules, whatever their shares, and prefers the fullest of equally suitable nodes.
var crowded = []batchOrder{
	{rounds: 5},
	{rounds: 20, largeFirst: true},
	{tight: 0.001},
}
