package nav_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// TestFairReclaimsDevices checks that a queue takes back devices that others borrow also for work that asks for nothing else: where
// nodes are full, and where only the quota is used up. Room for extras is not made by evictions at all.
func TestFairReclaimsDevices(t *testing.T) {
	spec := func(q orbit.QueueID, models ...string) *orbit.Spec {
		return &orbit.Spec{Queue: q, Devices: orbit.DeviceRequest{Count: 1, Milli: 1_000, Models: models}}
	}
	for _, c := range []struct {
		name          string
		nodes, placed int
		models        []string
		extras        bool
	}{
		{"the nodes are full", 2, 8, []string{"A100"}, false},
		{"of any model", 2, 8, nil, false},
		{"one of two models", 2, 8, []string{"A100", "T4"}, false},
		{"only quota is short", 4, 8, []string{"A100"}, false},
		{"only quota is short, of any model", 4, 8, nil, false},
		{"extras, and only quota is short", 4, 8, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commits := func(do ...orbit.Commitment) {
				_, err := l.Propose(t.Context(), orbit.Proposal{Do: do})
				require.NoError(t, err)
			}
			nominal, b := map[string]int64{"device/A100": 4_000}, spec("b", "A100")
			a := spec("a", c.models...)
			if c.extras {
				nominal = map[string]int64{"extra/key": 4}
				a, b = &orbit.Spec{Queue: "a", Extras: []orbit.Extra{{Name: "key", Amount: 1}}}, &orbit.Spec{Queue: "b", Extras: []orbit.Extra{{Name: "key", Amount: 1}}}
			}
			commits(orbit.PutQueue{Queue: orbit.Queue{ID: "root"}}, orbit.PutQueue{Queue: orbit.Queue{ID: "a", Parent: "root", Nominal: nominal}},
				orbit.PutQueue{Queue: orbit.Queue{ID: "b", Parent: "root", Nominal: nominal}})
			for i := range c.nodes {
				commits(orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID("n" + string(rune('0'+i))), Capacity: orbit.Resources{orbit.CPU: 1_000},
					Devices: orbit.Devices{Model: "A100", Count: 4}, Extras: []orbit.Extra{{Name: "key", Amount: 4}}}})
			}
			commits(orbit.Submit{IDs: []orbit.CapsuleID{"b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"}, Spec: b})
			e := reclaiming(l)
			passes(t, e, 4)
			require.Equal(t, "b0 b1 b2 b3 b4 b5 b6 b7", where(t, l, "b"))
			commits(orbit.Submit{IDs: []orbit.CapsuleID{"a0", "a1"}, Spec: a})
			passes(t, e, 6)
			require.Equal(t, "a0 a1", where(t, l, "a"))
			require.Len(t, strings.Fields(where(t, l, "b")), 6)
		})
	}
}
