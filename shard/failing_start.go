package shard

import (
	"cmp"
	"errors"
	"slices"

	"github.com/orbitsched/orbit"
)

// Planners avoid a node on which starts of a capsule have failed only while another node fits. A scheduler that sees one
// part of the nodes would go back to it again and again, though other schedulers have good nodes. So in soft mode work
// whose starts have failed is planned on all nodes, and in strict mode it is given back if it has failed wherever it fits.

var errStarts = errors.New("its starts have failed on all nodes of this scheduler that take it")

// failed returns the units with a pending capsule whose last start has failed.
func failed(state *orbit.State, pending []*orbit.Capsule) map[unit]bool {
	var units map[unit]bool
	for _, c := range pending {
		if state.Failures(c.ID).InARow == 0 {
			continue
		}
		if units == nil {
			units = map[unit]bool{}
		}
		units[unitOf(c)] = true
	}
	return units
}

// leaveFailing gives back the units whose starts have failed on each node that takes them, if another scheduler lives that
// has not failed the unit: the last one tries these nodes again. It returns the capsules that are left to plan, and adds to
// the plan. A pinned unit, and a gang that runs, stays.
func (s *Scheduler) leaveFailing(view *orbit.View, pending []*orbit.Capsule, plan *orbit.Plan) (rest []*orbit.Capsule) {
	state := view.State()
	back := failed(state, pending)
	if len(back) == 0 {
		return pending
	}
	for u := range back {
		back[u] = s.startsElsewhere(state, u)
	}
	done := map[unit]bool{}
	for _, c := range pending {
		u := unitOf(c)
		if !back[u] {
			rest = append(rest, c)
			continue
		}
		if !done[u] {
			done[u] = true
			plan.Proposals = append(plan.Proposals, s.back(view, u, errStarts)...)
		}
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: givenBackError(u, s.Name, errStarts)})
	}
	return rest
}

// startsElsewhere reports whether a unit whose starts have failed is to be given back.
func (s *Scheduler) startsElsewhere(state *orbit.State, u unit) bool {
	pinned, _ := state.Mark(u.pinnedMark().key(u.id))
	if pinned != "" || u.gang && runs(state, orbit.GangID(u.id)) || u.failedMark().fits(u.id, state.Limits()) != nil || !s.othersMayTry(state, u) {
		return false
	}
	for c := range u.members(state) {
		if c.Pending() && state.Failures(c.ID).InARow > 0 && onlyWhereItFailed(state, c) {
			return true
		}
	}
	return false
}

// othersMayTry reports whether another scheduler lives that has not failed the unit.
func (s *Scheduler) othersMayTry(state *orbit.State, u unit) bool {
	if s.Leases == nil {
		return false
	}
	value, _ := state.Mark(u.failedMark().key(u.id))
	list, _ := parseFailures(value)
	return slices.ContainsFunc(schedulersIn(state, s.Leases), func(name string) bool {
		_, known := list.find(name)
		return name != s.Name && !known
	})
}

// onlyWhereItFailed reports whether some node takes a capsule, and starts of it have failed on each such node.
func onlyWhereItFailed(state *orbit.State, c *orbit.Capsule) (fits bool) {
	last := state.Failures(c.ID).Nodes
	for n := range state.Nodes() {
		if !n.Fits(c.Spec) {
			continue
		}
		if !slices.ContainsFunc(last, func(f orbit.NodeFailure) bool { return f.Node == n.Node.ID }) {
			return false
		}
		fits = true
	}
	return fits
}

// divideUnits returns the capsules of these units and the others, both in their original order.
func divideUnits(capsules []*orbit.Capsule, units map[unit]bool) (in, out []*orbit.Capsule) {
	if len(units) == 0 {
		return nil, capsules
	}
	for _, c := range capsules {
		if units[unitOf(c)] {
			in = append(in, c)
		} else {
			out = append(out, c)
		}
	}
	return in, out
}

// inOrder returns the capsules of both lists in the order of all.
func inOrder(all, a, b []*orbit.Capsule) []*orbit.Capsule {
	at := make(map[*orbit.Capsule]int, len(all))
	for i, c := range all {
		at[c] = i
	}
	both := slices.Concat(a, b)
	slices.SortFunc(both, func(a, b *orbit.Capsule) int { return cmp.Compare(at[a], at[b]) })
	return both
}
