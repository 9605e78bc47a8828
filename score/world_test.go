package score_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

const gib = 1 << 30

func spec(cpu, memory int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu, orbit.Memory: memory}}}
}

func devices(s *orbit.Spec, count, milli int) *orbit.Spec {
	s.Devices = orbit.DeviceRequest{Count: count, Milli: milli}
	return s
}

// gpuNode is the commonest machine of the openb trace.
func gpuNode() orbit.Node {
	return orbit.Node{
		ID:       "node-1",
		Capacity: orbit.Resources{orbit.CPU: 96_000, orbit.Memory: 384 * gib},
		Labels:   map[string]string{"zone": "z1", "disk": "ssd"},
		Devices:  orbit.Devices{Model: "G2", Count: 8},
	}
}

// nodeWith returns a node that has joined a ledger and has taken one capsule of each spec.
func nodeWith(t testing.TB, node orbit.Node, placed ...*orbit.Spec) *orbit.NodeState {
	t.Helper()
	var ledger orbit.MemoryLedger
	ctx := context.Background()
	propose := func(do ...orbit.Commitment) {
		_, err := ledger.Propose(ctx, orbit.Proposal{Do: do})
		require.NoError(t, err)
	}
	propose(orbit.PutNode{Node: node})
	for i, s := range placed {
		state, err := ledger.Snapshot(ctx)
		require.NoError(t, err)
		set, ok := state.Node(node.ID).PickDevices(s)
		require.True(t, ok)
		id := orbit.CapsuleID(fmt.Sprint("c", i))
		propose(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: node.ID, Devices: set})
	}
	state, err := ledger.Snapshot(ctx)
	require.NoError(t, err)
	return state.Node(node.ID)
}
