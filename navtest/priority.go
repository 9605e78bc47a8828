package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: if capsules differ only in priority, no capsule with a lower priority is placed while one with a higher
// priority waits.

func checkPriority(t *trial) {
	for _, p := range t.mine {
		t.Where = fmt.Sprintf("%s %v, room for 3 of 9: ", p.module, p.class)
		w := t.world()
		w.racks(1)
		var ids [3][]orbit.CapsuleID
		for _, priority := range []int32{1, 0, 2} { // not in the order of submission
			spec := whole(p)
			spec.Priority = priority
			ids[priority] = w.submit(spec, 3)
		}
		for priority := int32(2); priority >= 0; priority-- {
			w.passUntilPlaced(fmt.Sprintf("priority %d is the highest that waits", priority), ids[priority], func(c *call) error {
				for _, place := range c.places() {
					if capsule := c.state.Capsule(place.Capsule); capsule != nil && capsule.Spec.Priority < priority {
						return c.fault("capsule %q of priority %d is placed, and priority %d waits", place.Capsule, capsule.Spec.Priority, priority)
					}
				}
				return nil
			})
			w.commit(final(ids[priority])...)
		}
	}
}
