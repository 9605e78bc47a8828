package navtest

import (
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: the reason for a capsule may be a *NoFit only if the capsule is in no gang and fits on no node, given what
// the plan itself places and releases, and leaving out the nodes that Suite.Filter refuses.

func checkExhaustion(t *trial) {
	t.scripts(nil, (*call).falseNoFit)
	for _, p := range t.singles() {
		t.Where = fmt.Sprintf("%s %v, a full node has been emptied: ", p.module, p.class)
		w := t.world()
		w.put(large("node-only", "r0", "b0"))
		first := small(p)
		first.Envelope.Reservation[orbit.CPU] = 16_000
		w.passUntilPlaced("the node is empty", w.submit(first, 1), nil)
		second := small(p)
		second.Envelope.Reservation[orbit.CPU] = 15_000
		ids := w.submit(second, 1)
		w.pass()
		for c := range w.state().On("node-only") {
			w.commit(orbit.Release{Capsule: c.ID, Final: true})
		}
		w.passUntilPlaced("the node is empty again", ids, (*call).falseNoFit)
	}
}

// wantsCompany reports whether a capsule of the spec has to be near a group, so that not every node with room does.
func wantsCompany(spec *orbit.Spec) bool {
	for range spec.AllNear {
		return true
	}
	return false
}

// falseNoFit returns an error for a capsule that has a *NoFit and would fit on a node.
func (c *call) falseNoFit() error {
	end, err := c.replay()
	if err != nil {
		return nil // the rule "capacity" reports that
	}
	for _, u := range c.plan.Unplaced {
		var nofit *orbit.NoFit
		if u.Capsule == nil || u.Capsule.Gang() != "" || wantsCompany(u.Capsule.Spec) || !errors.As(u.Why, &nofit) {
			continue
		}
		for n := range end.Nodes() {
			if n.Fits(u.Capsule.Spec) && !c.t.refuses(n, u.Capsule.Spec) {
				return c.fault("capsule %q is said to fit nowhere (%w), and fits on node %q, of which %v is free%s",
					u.Capsule.ID, u.Why, n.Node.ID, n.Free(), c.t.unknownFilter())
			}
		}
	}
	return nil
}
