package nav_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// A waiting member that has got another spec than its role says is seated by its own, beside the others of its role.
func TestGangSeatsMembersByTheirOwnSpecs(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("large", 5), node("small", 2),
		orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: gangSpec(2), Members: []orbit.CapsuleID{"a", "b", "c"}}}}})
	commit(t, l, orbit.Respec{Capsule: "a", Spec: gangSpec(5)}, orbit.Respec{Capsule: "c", Spec: gangSpec(0)})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	e.Pass(t.Context())
	for id, on := range map[orbit.CapsuleID]orbit.NodeID{"a": "large", "b": "small"} {
		require.Equal(t, on, snapshot(t, l).Capsule(id).Node, id)
	}
	require.True(t, snapshot(t, l).Capsule("c").Placed())
}
