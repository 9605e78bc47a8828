package nav

import (
	"cmp"
	"slices"
)

// shareTries divides the tries that a plan may make between work that has failed before and all other work. The
// argument failed has an entry for each work, in the order in which the plan serves them: the number of the plan in
// which the last try for it failed, or 0 if it has not failed since it last succeeded.
//
// Work that has failed would mostly fail again. In a fixed order, as much of it as there are tries would use them up in
// every plan, and no other work would ever be tried. So failed work takes at most half of the tries while other work
// needs them, and the work that has not been tried for longest comes first. The result says which work may be tried
// again, and how many tries are left for work that has not failed.
func shareTries(failed []uint64, tries int) (again []bool, left int) {
	var before []int
	for i, plan := range failed {
		if plan > 0 {
			before = append(before, i)
		}
	}
	slices.SortStableFunc(before, func(a, b int) int { return cmp.Compare(failed[a], failed[b]) })
	others := len(failed) - len(before)
	before = before[:min(len(before), max(tries/2, tries-others))]
	again = make([]bool, len(failed))
	for _, i := range before {
		again[i] = true
	}
	return again, tries - len(before)
}
