package nav_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// A navigator that wraps another one leaves the room alone into which the plan of the other lets a capsule grow.
func TestWrappersSeeWhatGrows(t *testing.T) {
	near := spec(4, 9)
	near.Group, near.Near = "set", orbit.Near{Group: "set", Level: "rack"}
	for name, c := range map[string]struct {
		waits *orbit.Spec
		wrap  func(orbit.Navigator) orbit.Navigator
	}{
		"Preempting": {spec(5, 9), func(n orbit.Navigator) orbit.Navigator { return &nav.Preempting{Navigator: n} }},
		"Patient":    {spec(4, 9), func(n orbit.Navigator) orbit.Navigator { return &nav.Patient{Navigator: n, After: time.Nanosecond} }},
		"Anchor":     {near, func(n orbit.Navigator) orbit.Navigator { return &nav.Anchor{Navigator: n} }},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, rackNode("n", "r1", 10), orbit.Submit{IDs: []orbit.CapsuleID{"db"}, Spec: spec(5, 10)}, orbit.Place{Capsule: "db", Node: "n"})
			if name == "Preempting" {
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: spec(1, 0)}, orbit.Place{Capsule: "low", Node: "n"})
			}
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: c.waits}, orbit.Submit{IDs: []orbit.CapsuleID{"too large"}, Spec: spec(50, 1)})
			grows := nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
				var d orbit.Draft
				d.Sync(view)
				if db := view.State().Capsule("db"); db.Spec.Envelope.Reservation[orbit.CPU] == 5 {
					require.NoError(t, d.Respec(orbit.Respec{Capsule: "db", Spec: spec(8, 10)}))
					plan.Proposals = append(plan.Proposals, d.Propose())
				}
				for _, w := range pending {
					plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: w, Why: d.PlaceBest(&place.Indexed{}, w)})
				}
				return plan, nil
			})
			e := &orbit.Engine{Name: "e", Ledger: l, Navigator: c.wrap(grows)}
			for range 2 {
				round := e.Pass(t.Context())
				require.Empty(t, round.Errors)
				require.Zero(t, round.Conflicts)
			}
			require.Equal(t, int64(8), snapshot(t, l).Capsule("db").Spec.Envelope.Reservation[orbit.CPU])
			require.True(t, snapshot(t, l).Capsule("x").Pending())
		})
	}
}
