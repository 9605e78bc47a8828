package nav_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sandbox"
)

// The same misfit is said in the same words, whichever navigator says it: those of the placement engine.
func TestMisfitsAreSaidAlike(t *testing.T) {
	for name, change := range map[string]func(*orbit.Node, *orbit.Spec){
		"unschedulable": func(n *orbit.Node, _ *orbit.Spec) { n.State = orbit.Cordoned },
		"requirement":   func(_ *orbit.Node, s *orbit.Spec) { s.Require = []orbit.Predicate{{Key: "ssd", Op: "Exists"}} },
		"model": func(_ *orbit.Node, s *orbit.Spec) {
			s.Devices = orbit.DeviceRequest{Count: 1, Milli: 10, Models: []string{"b", "c d"}}
		},
		"any model": func(n *orbit.Node, s *orbit.Spec) {
			n.Devices, s.Devices = orbit.Devices{}, orbit.DeviceRequest{Count: 1, Milli: 10}
		},
		"a device": func(n *orbit.Node, s *orbit.Spec) {
			n.Devices.Unhealthy, s.Devices = 3, orbit.DeviceRequest{Count: 1, Milli: 600}
		},
		"devices": func(n *orbit.Node, s *orbit.Spec) {
			n.Devices.Unhealthy, s.Devices = 1, orbit.DeviceRequest{Count: 2, Milli: 600}
		},
		"memory": func(_ *orbit.Node, s *orbit.Spec) { s.Envelope.Reservation[orbit.Memory] = 1 },
		"both": func(_ *orbit.Node, s *orbit.Spec) {
			s.Envelope.Reservation[orbit.Memory], s.Devices = 1, orbit.DeviceRequest{Count: 3, Milli: 600}
		},
		"requirement and model": func(_ *orbit.Node, s *orbit.Spec) {
			s.Require = []orbit.Predicate{{Key: "ssd", Op: "Exists"}}
			s.Devices = orbit.DeviceRequest{Count: 1, Milli: 10, Models: []string{"b"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := rackNode("n", "r", 4)
			n.Node.Devices = orbit.Devices{Model: "a", Count: 2}
			alone, near, gang := spec(1, 0), near("g", 1), gangSpec(1)
			for _, s := range []*orbit.Spec{alone, near, gang} {
				own := n
				change(&own.Node, s)
			}
			change(&n.Node, spec(1, 0))
			l := &orbit.MemoryLedger{}
			commit(t, l, n)
			submit(t, l, "alone", 1, alone)
			submit(t, l, "near", 1, near)
			commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{
				{Name: "w", Spec: gang, Members: []orbit.CapsuleID{"member"}}}}})
			unplaced := anchored(l).Pass(t.Context()).Unplaced
			require.Len(t, unplaced, 2)
			var said []string
			for _, u := range unplaced {
				var fit *orbit.NoFit
				require.ErrorAs(t, u.Why, &fit)
				said = append(said, onlyReason(t, fit.Reasons()))
			}
			assert.Equal(t, said[0], said[1])
			waits := (&orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context()).Unplaced
			require.Len(t, waits, 1)
			var fit *nav.GangNoFit
			require.ErrorAs(t, waits[0].Why, &fit)
			assert.Equal(t, said[1], onlyReason(t, fit.Levels[0].Lacks))
			view := viewOf(t, l)
			plan, err := (&sandbox.Warm{}).Plan(t.Context(), view, []*orbit.Capsule{view.State().Capsule("alone-0")})
			require.NoError(t, err)
			var cold *orbit.NoFit
			require.ErrorAs(t, plan.Unplaced[0].Why, &cold)
			assert.Equal(t, said[0], onlyReason(t, cold.Reasons()))
		})
	}
}

// onlyReason returns the one reason that nodes are counted by.
func onlyReason(t *testing.T, reasons map[string]int) string {
	require.Len(t, reasons, 1)
	for why := range reasons {
		return why
	}
	return ""
}
