package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a plan is made from its own view and from no earlier one. It names nodes that exist and are schedulable,
// places no capsule that has ended, and states the revision of the view or none.

func checkFreshness(t *trial) {
	w := t.world()
	w.racks(t.plenty())
	w.passUntilPlaced("it fits easily", w.easy(t.mine), (*call).stale)
	for round := range 3 {
		t.Where = fmt.Sprintf("all nodes have been replaced, %d: ", round)
		w.replace(round)
		w.passUntilPlaced("it fits easily on the new nodes", w.easy(t.mine), (*call).stale)
	}
	t.Where = ""
	t.scripts(nil, (*call).stale)
}

// replace removes or drains all nodes, and adds as many new ones, some of them under the id of a removed node but in
// another rack.
func (w *world) replace(round int) {
	i := 0
	for n := range w.state().Nodes() {
		if !n.Node.Schedulable() {
			continue
		}
		id := fmt.Sprintf("node-%d-%02d", round, i)
		gone := orbit.RemoveNode{Node: n.Node.ID}
		switch {
		case w.attempt(gone) == nil && i%2 == 0:
			id = string(n.Node.ID)
		case n.Capsules > 0:
			drained := *n.Node
			drained.State = orbit.Cordoned
			w.commit(orbit.PutNode{Node: drained})
		}
		w.put(large(id, fmt.Sprint("r", i%3+round), fmt.Sprint("b", round)))
		i++
	}
}

// stale returns an error for a proposal that is not made from the plan's view.
func (c *call) stale() error {
	for i, p := range c.plan.Proposals {
		if p.View != 0 && p.View != c.state.Revision() {
			return c.fault("proposal %d says that it was planned on revision %d", i, p.View)
		}
	}
	for _, place := range c.places() {
		capsule, n := c.state.Capsule(place.Capsule), c.state.Node(place.Node)
		switch {
		case n == nil:
			return c.fault("capsule %q is placed on node %q, which is not a member", place.Capsule, place.Node)
		case !n.Node.Schedulable():
			return c.fault("capsule %q is placed on node %q, which is unschedulable", place.Capsule, place.Node)
		case capsule == nil || capsule.Released():
			return c.fault("capsule %q is placed, which there is not any more", place.Capsule)
		}
	}
	return nil
}
