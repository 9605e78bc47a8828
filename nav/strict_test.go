package nav_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// TestStrictPopulation: a service of high priority comes before a gang of low priority, whichever engine is the first in the list, when both are
// submitted and when capacity becomes free for which both wait; and the gang is placed as soon as there is more.
func TestStrictPopulation(t *testing.T) {
	for _, first := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			services := &orbit.Engine{Name: "services", Ledger: l, Navigator: &nav.Services{}}
			gangs := &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}
			p := orbit.Population{Engines: []*orbit.Engine{gangs, services}, Strict: true}
			if first {
				p.Engines = []*orbit.Engine{services, gangs}
			}
			low := gangSpec(4)
			low.Priority = 1
			commit(t, l, node("a", 8), orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: low, Members: []orbit.CapsuleID{"x", "y"}}}}},
				orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: spec(8, 100)})
			go func() { assert.NoError(t, p.Run(t.Context())) }()
			time.Sleep(time.Minute)
			assert.Equal(t, orbit.NodeID("a"), snapshot(t, l).Capsule("urgent").Node)
			assert.True(t, snapshot(t, l).Capsule("x").Pending())
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"next"}, Spec: spec(8, 50)})
			time.Sleep(time.Minute)
			commit(t, l, orbit.Release{Capsule: "urgent", Final: true})
			time.Sleep(time.Minute)
			assert.Equal(t, orbit.NodeID("a"), snapshot(t, l).Capsule("next").Node)
			commit(t, l, node("b", 8))
			synctest.Wait()
			assert.Equal(t, orbit.NodeID("b"), snapshot(t, l).Capsule("y").Node, "at once")
		})
	}
}
