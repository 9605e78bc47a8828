package navtest

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// The rule: a plan places pending capsules of the navigator: those that are assigned to its engine, and those without
// an owner that it claims, whether they were handed over or not. It releases no capsule or hold of another engine,
// places no capsule twice, and does not change nodes.

func checkOwnership(t *trial) {
	t.Where = "among the work of others: "
	t.amongOthers()
	t.Where = ""
	t.scripts(nil, t.trespass)
}

// amongOthers mixes the navigator's own work with work of others. All of it could be placed.
func (t *trial) amongOthers() {
	w := t.world()
	w.engine.MaxPlan = 7 // so that some of its own is not handed over
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

// trespass returns an error for what the plan does to the work of others. It follows the plan from proposal to
// proposal, because one may place what another one has released.
func (t *trial) trespass(c *call) error {
	placed := map[orbit.CapsuleID]bool{}
	for i, p := range c.plan.Proposals {
		for _, do := range p.Do {
			why := t.offence(c.state, do, placed)
			if n, ok := do.(orbit.Nominate); ok {
				why = t.misnominated(c.state, &p, n)
			}
			if why != "" {
				return c.fault("proposal %d %s", i, why)
			}
		}
	}
	return nil
}

// offence returns what is wrong with one commitment, "" if nothing is. Placed has the capsules that the plan has placed
// (true) or released (false) so far.
func (t *trial) offence(s *orbit.State, do orbit.Commitment, placed map[orbit.CapsuleID]bool) string {
	switch do := do.(type) {
	case orbit.Place:
		return t.misplaced(s, do.Capsule, placed)
	case orbit.Release:
		if h, there := s.Hold(do.Hold); do.Hold != "" && there && h.For == other {
			return fmt.Sprintf("releases hold %q, which is for %q", do.Hold, other)
		}
		if do.Capsule != "" {
			placed[do.Capsule] = false
			return t.foreign(s, do.Capsule, "releases")
		}
	case orbit.Evict:
		placed[do.Capsule] = false
		return t.foreign(s, do.Capsule, "evicts")
	case orbit.Assign:
		return t.foreign(s, do.Capsule, "assigns")
	case orbit.PutNode, orbit.RemoveNode:
		return fmt.Sprintf("changes the constellation (%T)", do)
	case orbit.PutBudget, orbit.RemoveBudget:
		return fmt.Sprintf("changes a budget (%T)", do)
	}
	return ""
}

// misnominated returns why a nomination may not be made or ended; "": it may. A nomination of others may be ended only
// by a proposal that makes one in its place.
func (t *trial) misnominated(s *orbit.State, p *orbit.Proposal, do orbit.Nominate) string {
	makes := func(c orbit.Commitment) bool { n, ok := c.(orbit.Nominate); return ok && len(n.Parts) > 0 }
	if len(do.Parts) == 0 && slices.ContainsFunc(p.Do, makes) {
		return ""
	}
	if do.Gang == "" {
		return t.foreign(s, do.Capsule, "nominates")
	}
	if s.Gang(do.Gang) == nil {
		return fmt.Sprintf("nominates gang %q, which there is not", do.Gang)
	}
	for c := range s.Members(do.Gang) {
		if why := t.foreign(s, c.ID, "nominates"); why != "" {
			return why
		}
	}
	return ""
}

// misplaced returns why a capsule may not be placed; "": it may.
func (t *trial) misplaced(s *orbit.State, id orbit.CapsuleID, placed map[orbit.CapsuleID]bool) string {
	if why := t.foreign(s, id, "places"); why != "" {
		return why
	}
	c := s.Capsule(id)
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

// foreign returns whose a capsule is; "": it is the navigator's.
func (t *trial) foreign(s *orbit.State, id orbit.CapsuleID, does string) string {
	c := s.Capsule(id)
	switch {
	case c == nil:
		return fmt.Sprintf("%s capsule %q, which there is not", does, id)
	case c.Owner == me:
	case c.Owner != "":
		return fmt.Sprintf("%s capsule %q, which is assigned to %q", does, id, c.Owner)
	case !t.owns(pair{c.Spec.Module, c.Spec.Class}):
		return fmt.Sprintf("%s capsule %q of module %q and class %v, which it does not claim", does, id, c.Spec.Module, c.Spec.Class)
	}
	return ""
}

// owns reports whether the navigator claims a pair.
func (t *trial) owns(p pair) bool { return slices.Contains(t.mine, p) }
