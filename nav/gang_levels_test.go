package nav_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Where the domains of two levels only overlap, a gang that is topped up stays in one domain: it does not go to both.
func TestGangIsToppedUpInOneOfTwoDomainsThatOverlap(t *testing.T) {
	for name, w := range map[string]struct {
		loose        bool
		alone, zoned int64
		on           [2]orbit.NodeID
	}{
		"as good":                   {false, 1, 1, [2]orbit.NodeID{"rack"}},
		"the wider one takes more":  {false, 1, 2, [2]orbit.NodeID{"zone", "zone"}},
		"levels are only preferred": {true, 1, 1, [2]orbit.NodeID{"rack", "zone"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			in := func(id string, cpu int64, rack, zone string) orbit.PutNode {
				n := node(id, cpu)
				n.Node.Labels = map[string]string{"rack": rack, "zone": zone}
				return n
			}
			commit(t, l, in("home", 3, "r", "z"), orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack", "zone"}, Loose: w.loose,
				Roles: []orbit.Role{{Name: "w", Spec: gangSpec(1), Members: []orbit.CapsuleID{"a", "b", "c"}}}}})
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			e.Pass(t.Context())
			home := in("home", 1, "r", "z")
			for _, id := range []orbit.CapsuleID{"b", "c"} {
				commit(t, l, orbit.Release{Capsule: id, From: "home", Stopped: true})
			}
			commit(t, l, home, in("rack", w.alone, "r", "y"), in("zone", w.zoned, "s", "z"))
			e.Pass(t.Context())
			s := snapshot(t, l)
			require.ElementsMatch(t, w.on, []orbit.NodeID{s.Capsule("b").Node, s.Capsule("c").Node})
		})
	}
}
