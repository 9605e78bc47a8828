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
	past, others := make([]pastTry, 0, len(failed)), 0
	for _, plan := range failed {
		past = append(past, pastTry{plan, 1})
		others += btoi(plan == 0)
	}
	again, spent := shareCost(past, max(tries/2, tries-others))
	return again, tries - spent
}

// pastTry is the number of the plan in which the last try for a work failed, 0 if it has not failed, and what a try for
// this work costs.
type pastTry struct {
	failed uint64
	cost   int
}

// shareCost says which work that has failed may be tried again, so that these tries together cost no more than most:
// the work that has not been tried for longest first, until the next would cost too much.
func shareCost(past []pastTry, most int) (again []bool, spent int) {
	var before []int
	for i, try := range past {
		if try.failed > 0 {
			before = append(before, i)
		}
	}
	slices.SortStableFunc(before, func(a, b int) int { return cmp.Compare(past[a].failed, past[b].failed) })
	again = make([]bool, len(past))
	for _, i := range before {
		if past[i].cost > most-spent {
			break
		}
		again[i], spent = true, spent+past[i].cost
	}
	return again, spent
}
