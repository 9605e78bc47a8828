package nav_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// A gang that a rule Even lets nowhere, because it counts a zone where no node takes work, says which zone: also if one
// member alone would still be admitted.
func TestGangNoFitNamesIdleDomains(t *testing.T) {
	for members, want := range map[int]string{2: "", 3: "rule Even of group g counts zone c, where no node takes such work; with HonorTaints it leaves out what is cordoned or tainted"} {
		l := &orbit.MemoryLedger{}
		for _, zone := range []string{"a", "b", "c"} {
			n := orbit.Node{ID: orbit.NodeID(zone), Labels: map[string]string{"zone": zone}, Capacity: orbit.Resources{orbit.CPU: 9}}
			if zone == "c" {
				n.State = orbit.Cordoned
			}
			commit(t, l, orbit.PutNode{Node: n})
		}
		s := gangSpec(1)
		s.Group, s.Even = "g", []orbit.Even{{Group: "g", Level: "zone"}}
		role := orbit.Role{Name: "w", Spec: s}
		for i := range members {
			role.Members = append(role.Members, orbit.CapsuleID(rune('p'+i)))
		}
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "gang", Roles: []orbit.Role{role}}})
		e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
		round := e.Pass(t.Context())
		if want == "" {
			require.Empty(t, round.Unplaced)
			continue
		}
		var fit *nav.GangNoFit
		require.ErrorAs(t, round.Unplaced[0].Why, &fit)
		require.Equal(t, want, fit.Idle)
		require.ErrorContains(t, fit, "; "+want)
	}
}
