package nav_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Work without devices stays off nodes with devices while it fits on others, and then goes there too.
func TestWorkWithoutDevicesStaysOffNodesWithDevices(t *testing.T) {
	for name, navigator := range map[string]func() orbit.Navigator{
		"services": func() orbit.Navigator { return &nav.Services{} },
		"batch":    func() orbit.Navigator { return &nav.Batch{} },
	} {
		for _, nodes := range []int{2, 40} { // of each kind: few are all rated, of many an index chooses
			for _, prefix := range []string{"a", "z"} { // before or after the others, where ids break ties
				t.Run(fmt.Sprint(name, " ", nodes, prefix), func(t *testing.T) {
					l := &orbit.MemoryLedger{}
					for i := range nodes {
						commit(t, l, node(fmt.Sprint("m", i), 8))
						with := node(fmt.Sprint(prefix, i), 8)
						with.Node.Devices = orbit.Devices{Model: "g", Count: 4}
						commit(t, l, with)
					}
					s := spec(1, 0)
					if name == "batch" {
						s.Class = orbit.Batch
					}
					ids := func(from, to int) (out []orbit.CapsuleID) {
						for i := from; i < to; i++ {
							out = append(out, orbit.CapsuleID(fmt.Sprint("c", i)))
						}
						return out
					}
					beside := func() (n int) {
						for c := range snapshot(t, l).Capsules() {
							n += btoi(c.Node != "" && c.Node[0] == prefix[0])
						}
						return n
					}
					e := &orbit.Engine{Name: "e", Ledger: l, Navigator: navigator()}
					commit(t, l, orbit.Submit{IDs: ids(0, 8*nodes), Spec: s})
					require.Equal(t, 8*nodes, e.Pass(t.Context()).Committed)
					assert.Zero(t, beside())
					commit(t, l, orbit.Submit{IDs: ids(8*nodes, 8*nodes+5), Spec: s})
					require.Equal(t, 5, e.Pass(t.Context()).Committed)
					assert.Equal(t, 5, beside())
				})
			}
		}
	}
}
