package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a plan rests on the view that it is given and on no earlier one: it names the nodes that there
// are, as they are, places what is pending now, and says the view's revision or none.

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

// replace drains all nodes or lets them go, and lets as many new ones join, some under the id of one that
// has left, in another rack.
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

// stale says which proposal does not rest on the view.
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
