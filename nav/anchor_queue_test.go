package nav_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// The anchor of a group that lacks quota comes as soon as there is some, and nothing else has to change: what a queue may use of a
// resource is more also when its tree divides the resource no more.
func TestAnchorComesBackForQuota(t *testing.T) {
	for name, enough := range map[string]orbit.PutQueue{
		"a quota is raised":              queueOf("q", "", 2, 0),
		"the tree divides nothing (cpu)": {Queue: orbit.Queue{ID: "q"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, rackNode("n", "r", 10_000), queueOf("q", "", 1, 0))
			spec := near("g", 2000)
			spec.Queue = "q"
			submit(t, l, "g", 1, spec)
			e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
			settle(t, e)
			commit(t, l, enough)
			settle(t, e)
			assert.Equal(t, orbit.NodeID("n"), snapshot(t, l).Capsule("g-0").Node)
		})
	}
}

// The wrapped navigator does not see what members take of a quota that come to held room. What it plans beyond the quota is left out, and
// the plan does not lose to itself.
func TestAnchorKeepsToQuotaBesideItsNavigator(t *testing.T) {
	for _, quota := range []int64{3, 4} {
		l := &orbit.MemoryLedger{}
		commit(t, l, rackNode("n", "r", 10_000), queueOf("q", "", quota, 0))
		member, other := near("g", 1000), spec(1000, 0)
		member.Queue, other.Queue = "q", "q"
		submit(t, l, "g", 2, member)
		a := &nav.Anchor{Navigator: &nav.Services{}}
		commitAll(t, l, planOf(t, l, a))
		submit(t, l, "c", 2, other)
		plan := planOf(t, l, a)
		assert.Equal(t, 4-quota, noteOf(plan.Notes, "leftOut"))
		commitAll(t, l, plan)
		for c := range snapshot(t, l).Capsules() {
			assert.True(t, c.Placed() || quota == 3 && c.ID == "c-1", "%s", c.ID)
		}
	}
}
