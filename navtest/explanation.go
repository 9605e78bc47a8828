package navtest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
)

// The rule: every pending capsule that Plan gets is either placed by a proposal of the plan or listed in Unplaced with
// a reason; never both, and not twice.

func checkExplanation(t *trial) {
	t.Where = "work that cannot be placed: "
	w := t.world()
	w.racks(2)
	for _, p := range t.mine {
		for _, spec := range impossible(p) {
			w.submit(spec, 3)
		}
		w.submit(small(p), 3)
	}
	for _, p := range t.rest {
		if p.class != orbit.GangClass { // it is not claimed, but assigned to the engine
			w.submitTo(me, small(p), 2)
		}
	}
	w.passes(3, (*call).unaccounted)
	t.Where = ""
	t.scripts(nil, (*call).unaccounted)
}

// impossible returns specs that no node of racks takes.
func impossible(p pair) []*orbit.Spec {
	large, where, device, company := small(p), small(p), small(p), small(p)
	large.Envelope.Reservation[orbit.CPU] = 1 << 40
	where.Require = []orbit.Predicate{{Key: "kind", Op: "In", Values: []string{"none such"}}}
	device.Devices = orbit.DeviceRequest{Count: 9, Milli: 1000}
	company.Near = orbit.Near{Group: "absent", Level: "rack"}
	return []*orbit.Spec{large, where, device, company}
}

// unaccounted returns an error for a capsule that is not accounted for, or that is accounted for twice.
func (c *call) unaccounted() error {
	placed, unplaced := map[orbit.CapsuleID]bool{}, map[orbit.CapsuleID]bool{}
	for _, place := range c.places() {
		placed[place.Capsule] = true
	}
	for _, u := range c.plan.Unplaced {
		id := idOf(u.Capsule)
		why := ""
		switch {
		case u.Capsule == nil:
			why = "a nil capsule is said to be unplaced"
		case c.state.Capsule(id) == nil || !c.state.Capsule(id).Pending():
			why = fmt.Sprintf("capsule %q is said to be unplaced, and is not pending", id)
		case unplaced[id]:
			why = fmt.Sprintf("capsule %q is said twice to be unplaced", id)
		case placed[id]:
			why = fmt.Sprintf("capsule %q is said to be unplaced (%v), and is placed as well", id, u.Why)
		case u.Why == nil || strings.TrimSpace(u.Why.Error()) == "":
			why = fmt.Sprintf("capsule %q is unplaced, and nothing says why", id)
		}
		if why != "" {
			return c.fault("%s", why)
		}
		unplaced[id] = true
	}
	for _, capsule := range c.pending {
		if !placed[capsule.ID] && !unplaced[capsule.ID] {
			return c.fault("capsule %q was handed over, and is neither placed nor explained", capsule.ID)
		}
	}
	return nil
}

// idOf returns the id of a capsule; "": the capsule is nil.
func idOf(c *orbit.Capsule) orbit.CapsuleID {
	if c == nil {
		return ""
	}
	return c.ID
}

// parks reports whether an engine parks a class for this reason.
func parks(why error) bool {
	var nofit *orbit.NoFit
	return errors.As(why, &nofit)
}
