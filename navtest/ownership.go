package navtest

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// The rule: a plan places only pending capsules of the navigator: capsules that are assigned to its engine, and
// capsules without an owner that it claims, whether they are in the plan's batch or not. It releases no capsule or hold
// of another engine, places no capsule twice, and does not change nodes. It may take work of others off a node only by
// Evict, to make way for its own work that outranks it, or to place it again. An engine sends no proposal that breaks
// this rule.

func checkOwnership(t *trial) {
	t.Where = "among the work of others: "
	t.amongOthers()
	t.Where = ""
	t.scripts(nil, t.trespass)
}

// amongOthers mixes the navigator's own work with work of others. All of it could be placed.
func (t *trial) amongOthers() {
	w := t.world()
	w.engine.MaxPlan = 7 // so that a batch does not have all of its own work
	w.racks(t.plenty())
	for _, p := range t.rest {
		w.submit(small(p), 2)
	}
	for _, p := range t.mine {
		w.submitTo(other, small(p), 2)
	}
	w.commit(orbit.Hold{ID: "of others", Node: "node-r0-00", Room: orbit.Resources{orbit.CPU: 1}, For: other, Ends: never})
	_, err := w.occupy("node-r1-00", orbit.Resources{orbit.CPU: 1}, "")
	t.Must(err)
	gone := w.submit(small(t.mine[0]), 2)
	w.commit(orbit.Release{Capsule: gone[0], Final: true}, orbit.Release{Capsule: gone[1], Final: true})
	mine := w.easy(t.mine)
	for _, p := range t.singles() {
		mine = append(mine, w.submitTo(me, small(p), 2)...)
	}
	w.passes(2*t.suite.Passes, t.trespass)
	if id := w.firstPending(mine); id != "" {
		t.Failf("its own capsule %q is not placed", id)
	}
}

// trespass returns an error if the plan touches the work of others, as an engine would find it ([orbit.State.JudgePlan]),
// or places a capsule twice. It goes through the proposals in order, because one proposal may place what an earlier one
// has released.
func (t *trial) trespass(c *call) error {
	owns := func(owner string, spec *orbit.Spec) bool {
		return owner == me || owner == "" && t.owns(pair{spec.Module, spec.Class})
	}
	placed := map[orbit.CapsuleID]bool{}
	for i, p := range c.plan.Proposals {
		if err := c.state.JudgePlan(p, owns); err != nil {
			return c.fault("proposal %d %w", i, err)
		}
		for _, do := range p.Do {
			if why := careless(c.state, do, placed); why != "" {
				return c.fault("proposal %d %s", i, why)
			}
		}
	}
	return nil
}

// careless returns what is wrong with one commitment, regardless of who owns the work; "": nothing is. placed has the
// capsules that the plan has placed (true) or taken off their nodes (false) so far.
func careless(s *orbit.State, do orbit.Commitment, placed map[orbit.CapsuleID]bool) string {
	switch do := do.(type) {
	case orbit.Place:
		return misplaced(s, do.Capsule, placed)
	case orbit.Release:
		placed[do.Capsule] = false
		return missing(s, do.Capsule, "releases")
	case orbit.Evict:
		placed[do.Capsule] = false
		return missing(s, do.Capsule, "evicts")
	case orbit.Assign:
		return missing(s, do.Capsule, "assigns")
	case orbit.Nominate:
		return missing(s, do.Capsule, "nominates")
	}
	return ""
}

// missing returns a text if there is no such capsule; "": there is one, or none is named.
func missing(s *orbit.State, id orbit.CapsuleID, does string) string {
	if id == "" || s.Capsule(id) != nil {
		return ""
	}
	return fmt.Sprintf("%s capsule %q, which there is not", does, id)
}

// misplaced returns why a capsule may not be placed; "": it may.
func misplaced(s *orbit.State, id orbit.CapsuleID, placed map[orbit.CapsuleID]bool) string {
	c := s.Capsule(id)
	if c == nil {
		return missing(s, id, "places")
	}
	is, touched := placed[id]
	placed[id] = true
	switch {
	case touched && is:
		return fmt.Sprintf("places capsule %q, which the same plan has placed already", id)
	case !touched && c.Placed():
		return fmt.Sprintf("places capsule %q, which is on node %q", id, c.Node)
	case c.Released():
		return fmt.Sprintf("places capsule %q, which has been released for good", id)
	}
	return ""
}

// owns reports whether the navigator claims a pair.
func (t *trial) owns(p pair) bool { return slices.Contains(t.mine, p) }
