package whatif_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/whatif"
)

// Each co-location of a spec is a reason of its own, by a label and by node, and each may be given up.
func TestExplainKnowsAllCoLocations(t *testing.T) {
	l := racks(t, 2, 2)
	for id, at := range map[string]orbit.NodeID{"db": "r0-n0", "cache": "r1-n0", "full": "r1-n1"} {
		s := wants(1, 0)
		if s.Group = id; id == "full" {
			s.Envelope.Reservation[orbit.CPU] = 4
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: s}, orbit.Place{Capsule: orbit.CapsuleID(id), Node: at})
	}
	near := func(nears ...orbit.Near) *orbit.Spec {
		s := wants(2, 0)
		s.Nears = nears
		return s
	}
	own := near(orbit.Near{Group: "new", Level: orbit.NodeKey}, orbit.Near{Group: "cache", Level: "rack"})
	own.Group = "new"
	for name, c := range map[string]struct {
		spec *orbit.Spec
		want string
	}{
		"by node and by rack": {near(orbit.Near{Group: "db", Level: orbit.NodeKey}, orbit.Near{Group: "cache", Level: "rack"}), `0 of 4 nodes fit
       1: is in no rack of group "cache", as r0-n0
       1: has no member of group "db", as r1-n0
       1: is in no rack of group "cache"; has no member of group "db", as r0-n1
       1: has no member of group "db"; lacks cpu, as r1-n1
it would fit if you
  * do not ask to be near group "cache": then node r0-n0 takes it
  * do not ask to be near group "db": then node r1-n0 takes it`},
		"two by rack": {near(orbit.Near{Group: "db", Level: "rack"}, orbit.Near{Group: "cache", Level: "rack"}, orbit.Near{Group: "full", Level: "rack"}), `0 of 4 nodes fit
       1: is in no rack of group "db", as r1-n0
       2: is in no rack of group "cache"; is in no rack of group "full", as r0-n0
       1: is in no rack of group "db"; lacks cpu, as r1-n1
it would fit if you
  * do not ask to be near group "db": then node r1-n0 takes it
  * do not ask to be near group "cache" and do not ask to be near group "full": then node r0-n0 takes it`},
		"the first of its own group": {own, `1 of 4 nodes fit
       2: is in no rack of group "cache", as r0-n0
       1: lacks cpu, as r1-n1`},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := whatif.Explain(t.Context(), snapshot(t, l), c.spec)
			require.NoError(t, err)
			for i := range e.Fixes {
				_, err := snapshot(t, l).With(e.Fixes[i].Proposal("new"))
				require.NoError(t, err)
			}
			got := strings.Split(e.String(), "\n")
			for i := range got {
				got[i] = strings.TrimSpace(got[i])
			}
			var want []string
			for line := range strings.SplitSeq(c.want, "\n") {
				want = append(want, strings.TrimSpace(line))
			}
			require.Equal(t, strings.Join(want, "\n"), strings.Join(got, "\n"))
		})
	}
}
