package whatif_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/whatif"
)

// A member that has a spec of its own is explained by it, beside those that have the spec of the role.
func TestGangIsExplainedByTheSpecsOfItsMembers(t *testing.T) {
	l := racks(t, 1, 2)
	large := orbit.Node{ID: "large", Labels: map[string]string{"rack": "other"}, Capacity: orbit.Resources{orbit.CPU: 9, orbit.Memory: 9}}
	commit(t, l, orbit.PutNode{Node: large})
	gangOf(t, l, gangSpec(3, 5), 3, 0)
	commit(t, l, orbit.Respec{Capsule: "w2", Spec: gangSpec(9, 5)})
	e := gangFixes(t, snapshot(t, l))
	require.Equal(t, `gang "g" needs 3 members placed at once
  rack other: 2 fit, then none of role "worker": 0 of 3 nodes fit: 2 do not meet rack in (other), 1 lacks cpu
  rack r0: 2 fit, then none of role "worker": 0 of 3 nodes fit: 2 lack cpu, 1 does not meet rack in (r0); no node that suits it is that large: the largest has 0.004 cores
one member of role "worker": 3 of 3 nodes fit
capsule "w2" of role "worker": 1 of 3 nodes fit
         2: lacks cpu, as r0-n0
it would fit if you
  * add a node like large: then it fits in rack r0`, e.String())
}

// A node to add is one that takes the member with a spec of its own, although it takes none of the others.
func TestGangFixAddsANodeForAMemberWithItsOwnSpec(t *testing.T) {
	l := racks(t, 1, 2)
	on := func(disk string) *orbit.Spec {
		s := gangSpec(3, 5)
		s.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{disk}}}
		return s
	}
	for id, disk := range map[orbit.NodeID]string{"r0-n0": "hdd", "r0-n1": "hdd", "ssd": "ssd"} {
		n := orbit.Node{ID: id, Labels: map[string]string{"rack": "r0", "disk": disk}, Capacity: orbit.Resources{orbit.CPU: 4}}
		if disk == "ssd" {
			delete(n.Labels, "rack")
		}
		commit(t, l, orbit.PutNode{Node: n})
	}
	gangOf(t, l, on("hdd"), 2, 0)
	commit(t, l, orbit.Respec{Capsule: "w1", Spec: on("ssd")})
	e := gangFixes(t, snapshot(t, l))
	require.Len(t, e.Fixes, 1)
	require.Equal(t, "add a node like ssd: then it fits in rack r0", e.Fixes[0].String())
}

// The nodes are listed on which most starts have failed, once for all members that would fit there.
func TestGangIsExplainedWithNodesWhoseStartsFail(t *testing.T) {
	l := racks(t, 1, 2)
	for _, id := range []orbit.CapsuleID{"x", "y"} {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: wants(1, 0)}, orbit.Place{Capsule: id, Node: "r0-n1"})
		commit(t, l, orbit.Release{Capsule: id, From: "r0-n1", Stopped: true, At: orbit.Instant(time.Now().UnixNano())})
	}
	gang := &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "a", Spec: gangSpec(3, 5), Members: []orbit.CapsuleID{"a"}}, {Name: "b", Spec: gangSpec(2, 5), Members: []orbit.CapsuleID{"b"}}}}
	commit(t, l, orbit.Submit{Gang: gang})
	e, err := whatif.ExplainGang(t.Context(), snapshot(t, l), "g")
	require.NoError(t, err)
	require.Equal(t, []string{`node "r0-n1": 2 of 2 starts failed`}, e.Failing)
	require.Equal(t, `gang "g" needs 2 members placed at once
  all nodes: all 2 fit
one member of role "a": 2 of 2 nodes fit
one member of role "b": 2 of 2 nodes fit
used only if nothing else fits
  * node "r0-n1": 2 of 2 starts failed`, e.String())
}
