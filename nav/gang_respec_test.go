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

// A gang is nominated if its waiting members fit by their own specs, although its role asks for more than any node has,
// and not if one of them does not.
func TestPatientNominatesGangsByTheSpecsOfTheirMembers(t *testing.T) {
	for name, w := range map[string]struct {
		role, own int64
		nominated bool
	}{
		"its member asks for less than its role": {9, 4, true},
		"its member asks for more than its role": {4, 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			submit(t, l, "runs", 1, spec(2, 0))
			commit(t, l, node("n", 4), orbit.Place{Capsule: "runs-0", Node: "n"},
				orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: gangSpec(w.role), Members: []orbit.CapsuleID{"a"}}}}})
			commit(t, l, orbit.Respec{Capsule: "a", Spec: gangSpec(w.own)})
			e := &orbit.Engine{Ledger: l, Navigator: impatient(&nav.Gang{})}
			for range 2 {
				require.Empty(t, e.Pass(t.Context()).Errors)
			}
			require.Equal(t, w.nominated, snapshot(t, l).Gang("g").Nomination.Lives())
		})
	}
}

// Demand asks for what the waiting members ask for now, and a member that has left a group waits for it no more.
func TestGroupWatchKnowsMembersBySpecsOfTheirOwn(t *testing.T) {
	l, w := &orbit.MemoryLedger{}, &nav.GroupWatch{}
	racked(t, l, 1, 1, 1)
	gangOf(t, l, "gang", "", 2, 2)
	submit(t, l, "co", 2, near("co", 3))
	require.Empty(t, at(t, w, l, 0))
	own := gangSpec(5)
	commit(t, l, orbit.Respec{Capsule: "gang-1", Spec: own}, orbit.Respec{Capsule: "co-0", Spec: near("other", 7)}, orbit.Respec{Capsule: "co-1", Spec: spec(8, 0)})
	require.Empty(t, at(t, w, l, 1))
	lacks := map[string]int64{}
	for _, d := range w.Demand() {
		lacks[string(d.Gang)+d.Group] = d.Domains[0].Lacks[orbit.CPU]
	}
	require.Equal(t, map[string]int64{"gang": 2 + 5, "other": 7}, lacks)
}
