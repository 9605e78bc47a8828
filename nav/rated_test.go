package nav_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Without a placement engine of their own, Services and Batch choose from an index: a plan rates few of many nodes, and never
// all of them for one choice.
func TestNavigatorsRateFewNodes(t *testing.T) {
	const nodes, capsules = 3000, 100
	for name, navigator := range map[string]orbit.Navigator{"services": &nav.Services{}, "batch": &nav.Batch{}, "services in a Preempting": &nav.Preempting{Navigator: &nav.Services{}},
		"services in a Patient": &nav.Patient{Navigator: &nav.Services{}}, "services in an Anchor": &nav.Anchor{Navigator: &nav.Services{}}} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			for i := range nodes {
				commit(t, l, node(fmt.Sprint("n", i), int64(4+i%5)))
			}
			s := spec(1, 0)
			if name == "batch" {
				s.Class = orbit.Batch
			}
			for i := range capsules {
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: s})
			}
			r := (&orbit.Engine{Name: "e", Ledger: l, Navigator: navigator}).Pass(t.Context())
			require.Equal(t, capsules, r.Committed)
			require.EqualValues(t, capsules, noteOf(r.Notes, "asked"))
			require.Zero(t, noteOf(r.Notes, "scanned"))
			rated := noteOf(r.Notes, "rated")
			require.Positive(t, rated)
			require.LessOrEqual(t, rated, int64(4*capsules))
		})
	}
}
