package seats

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// A table of domains agrees with a plain map about every node, while nodes join, leave and change their labels.
func TestDomainTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		model := map[int32]string{}
		for range rapid.IntRange(1, 60).Draw(t, "moves") {
			node := rapid.Int32Range(0, 9).Draw(t, "node")
			name := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "name")
			require.Equal(t, model[node] != name, table.put(node, name, name != ""))
			model[node] = name
		}
		want, got := map[string][]int32{}, map[string][]int32{}
		for i := range int32(10) {
			if name := model[i]; name != "" {
				want[name] = append(want[name], i)
				require.Equal(t, name, table.Domains[table.Of[i]].Name)
			}
		}
		for _, d := range table.Domains {
			if len(d.Nodes) > 0 {
				got[d.Name] = d.Nodes
			}
		}
		require.Len(t, got, len(want))
		require.Equal(t, len(want), table.Live)
		for name := range want {
			require.ElementsMatch(t, want[name], got[name])
		}
	})
}

// A table whose domains have mostly lost their nodes is to be made anew, one with a domain a node is not.
func TestDomainTableIsSparse(t *testing.T) {
	var table Table
	for i := range 200 {
		table.put(int32(i), fmt.Sprint("d", i), true)
	}
	require.False(t, table.sparse())
	for i := range 150 {
		table.put(int32(i), "", false)
	}
	require.True(t, table.sparse())
}

// Where capacity has shrunk below what is used there is nothing, not less.
func TestMeasureOfAShrunkNode(t *testing.T) {
	l, node := &orbit.MemoryLedger{}, orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 10, orbit.Memory: 7}}
	node.Devices = orbit.Devices{Model: "D", Count: 2}
	spec := &orbit.Spec{Devices: orbit.DeviceRequest{Count: 1, Milli: 700}}
	spec.Envelope.Reservation[orbit.CPU] = 10
	shrunk := node
	shrunk.Capacity[orbit.CPU], shrunk.Devices.Unhealthy = 5, 0b10
	for _, do := range []orbit.Commitment{orbit.PutNode{Node: node}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec},
		orbit.Place{Capsule: "c", Node: "n", Devices: 1}, orbit.PutNode{Node: shrunk}} {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{do}})
		require.NoError(t, err)
	}
	state, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	require.Equal(t, Quantities{orbit.Memory: 7, DevicesDim: 300}, MeasureFree(state.Node("n")))
}
