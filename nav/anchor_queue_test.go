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
