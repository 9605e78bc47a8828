package shard

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file keeps the two navigators of soft mode, which plan one after the other on the same state, from doing the
// same thing twice.

// splitUnplaced divides the capsules that near has not placed into those that stay unplaced (left) and those that far
// gets (rest). If near has just placed members of a gang or of a co-location group, the other members stay unplaced in
// this pass: far does not see the placed ones yet, and would start the gang again elsewhere.
func (s *soft) splitUnplaced(state *orbit.State, plan *orbit.Plan, pending []*orbit.Capsule) (left []orbit.Unplaced, rest []*orbit.Capsule) {
	gangs, groups := begun(state, plan.Proposals)
	late := map[unit]bool{} // a gang of which one member has to stay unplaced stays as a whole
	for _, u := range plan.Unplaced {
		if gangs[u.Capsule.Gang()] || groups[u.Capsule.Spec.Near.Group] {
			late[unitOf(u.Capsule)] = true
		}
	}
	unplaced := make(map[orbit.CapsuleID]bool, len(plan.Unplaced))
	for _, u := range plan.Unplaced {
		if !late[unitOf(u.Capsule)] {
			unplaced[u.Capsule.ID] = true
			continue
		}
		if noFit := (*orbit.NoFit)(nil); errors.As(u.Why, &noFit) { // it is true of the own group only, so the engine must not set the class aside
			u.Why = errBehind
		}
		left = append(left, u)
	}
	rest, _ = divide(pending, unplaced)
	return left, rest
}

// withoutBegun leaves out the capsules that a plan places, although they were not handed over, and those of gangs and
// groups of which it places members: these stay unplaced in this pass.
func withoutBegun(state *orbit.State, plan *orbit.Plan, capsules []*orbit.Capsule) (rest []*orbit.Capsule, left []orbit.Unplaced) {
	if len(capsules) == 0 {
		return nil, nil
	}
	said := map[orbit.CapsuleID]bool{}
	for c := range placed(state, plan.Proposals) {
		said[c.ID] = true
	}
	for _, u := range plan.Unplaced {
		said[u.Capsule.ID] = true
	}
	gangs, groups := begun(state, plan.Proposals)
	late := map[unit]bool{}
	for _, c := range capsules {
		late[unitOf(c)] = late[unitOf(c)] || gangs[c.Gang()] || groups[c.Spec.Near.Group]
	}
	for _, c := range capsules {
		switch {
		case said[c.ID]:
		case late[unitOf(c)]:
			left = append(left, orbit.Unplaced{Capsule: c, Why: errBehind})
		default:
			rest = append(rest, c)
		}
	}
	return rest, left
}

// begun returns the gangs and the co-location groups of the capsules that proposals place.
func begun(state *orbit.State, proposals []orbit.Proposal) (gangs map[orbit.GangID]bool, groups map[string]bool) {
	gangs, groups = map[orbit.GangID]bool{}, map[string]bool{}
	for c := range placed(state, proposals) {
		if c.Gang() != "" {
			gangs[c.Gang()] = true
		}
		for group := range c.Spec.MemberOf {
			groups[group] = true
		}
	}
	return gangs, groups
}

// noteBehind remembers the capsules that far has not placed, if they might fit on the nodes that near has planned on.
// It replaces their NoFit: the engine would set the class aside until a node has more free capacity than now, but far
// has not seen those nodes.
func (s *soft) noteBehind(state *orbit.State, unplaced []orbit.Unplaced, planned map[orbit.NodeID]bool) {
	s.behind = map[orbit.CapsuleID]bool{}
	may, told := map[*orbit.Spec]bool{}, map[error]error{}
	for i := range unplaced {
		u, noFit := &unplaced[i], (*orbit.NoFit)(nil)
		said := errors.As(u.Why, &noFit)
		if _, known := may[u.Capsule.Spec]; !known {
			for id := range planned {
				n := state.Node(id)
				may[u.Capsule.Spec] = may[u.Capsule.Spec] || n != nil && (!said || n.Fits(u.Capsule.Spec))
			}
		}
		if !may[u.Capsule.Spec] {
			if said && len(planned) > 0 {
				u.Why = wrapOnce(told, u.Why, func() error {
					return fmt.Errorf("%w; %d of the unschedulable ones are only closed to this plan, because the pass has used them for other capsules; they do not fit either", u.Why, len(planned))
				})
			}
			continue
		}
		if s.behind[u.Capsule.ID] = true; said {
			u.Why = errBehind
		}
	}
}

// released returns the ids of the holds that proposals release.
func released(proposals []orbit.Proposal) map[orbit.HoldID]bool {
	out := map[orbit.HoldID]bool{}
	for do := range commitments(proposals) {
		if release, ok := do.(orbit.Release); ok && release.Hold != "" {
			out[release.Hold] = true
		}
	}
	return out
}

// withoutRepeats removes from a plan the proposals that repeat a proposal of the first navigator: they release a hold
// that the first navigator releases too, or place a capsule that it places too, or another member of a gang of which it
// places members, or a capsule that has to stay unplaced in this pass (left). A navigator that remembers gangs may do so.
func withoutRepeats(state *orbit.State, plan *orbit.Plan, first []orbit.Proposal, left []orbit.Unplaced) {
	spent, done := released(first), map[*orbit.Capsule]bool{}
	for c := range placed(state, first) {
		done[c] = true
	}
	gangs, _ := begun(state, first)
	stays := map[orbit.CapsuleID]bool{}
	for _, u := range left {
		stays[u.Capsule.ID] = true
	}
	if len(spent)+len(done)+len(stays) == 0 {
		return
	}
	kept := make([]orbit.Proposal, 0, len(plan.Proposals))
	for _, p := range plan.Proposals {
		again := slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool {
			switch do := do.(type) {
			case orbit.Release:
				return spent[do.Hold]
			case orbit.Place:
				c := state.Capsule(do.Capsule)
				return done[c] || c != nil && (gangs[c.Gang()] || stays[c.ID])
			}
			return false
		})
		if !again {
			kept = append(kept, p)
			continue
		}
		for c := range placed(state, []orbit.Proposal{p}) {
			if !done[c] && !stays[c.ID] {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: errBehind})
			}
		}
	}
	plan.Proposals = kept
}

// divide returns the capsules that are in a set and those that are not, both in their original order.
func divide(capsules []*orbit.Capsule, set map[orbit.CapsuleID]bool) (in, out []*orbit.Capsule) {
	if len(set) == 0 {
		return nil, capsules
	}
	for _, c := range capsules {
		if set[c.ID] {
			in = append(in, c)
		} else {
			out = append(out, c)
		}
	}
	return in, out
}

// targets returns the nodes on which proposals place a capsule or a hold, or nominate room.
func targets(proposals []orbit.Proposal) map[orbit.NodeID]bool {
	out := map[orbit.NodeID]bool{}
	for do := range commitments(proposals) {
		for node := range nodesOf(do) {
			out[node] = true
		}
	}
	return out
}

// commitments yields the commitments of all proposals.
func commitments(proposals []orbit.Proposal) iter.Seq[orbit.Commitment] {
	return func(yield func(orbit.Commitment) bool) {
		for _, p := range proposals {
			for _, do := range p.Do {
				if !yield(do) {
					return
				}
			}
		}
	}
}

// placed yields the capsules of a state that proposals place.
func placed(state *orbit.State, proposals []orbit.Proposal) iter.Seq[*orbit.Capsule] {
	return func(yield func(*orbit.Capsule) bool) {
		for do := range commitments(proposals) {
			place, ok := do.(orbit.Place)
			if c := state.Capsule(place.Capsule); ok && c != nil && !yield(c) {
				return
			}
		}
	}
}
