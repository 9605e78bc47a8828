package orbit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// TestOwnRemainsHaveStopped: a node without an agent takes a capsule only when the capsule has stopped where it was. Then the engine evicts for it there at once, though
// the capsule was parked as work for which no eviction helps.
func TestOwnRemainsHaveStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		do := func(do ...orbit.Commitment) {
			_, err := l.Propose(t.Context(), orbit.Proposal{Do: do})
			require.NoError(t, err)
		}
		state := func() *orbit.State {
			s, err := l.Snapshot(t.Context())
			require.NoError(t, err)
			return s
		}
		submit := func(id orbit.CapsuleID, cpu int64, priority int32) orbit.Submit {
			return orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}}
		}
		eight := orbit.Resources{orbit.CPU: 8}
		do(orbit.PutNode{Node: orbit.Node{ID: "agent", Capacity: eight, Confirms: true}}, orbit.PutNode{Node: orbit.Node{ID: "bare", Capacity: eight}},
			submit("middle", 5, 1), submit("low", 8, 0), orbit.Place{Capsule: "middle", Node: "agent"}, orbit.Place{Capsule: "low", Node: "bare"})
		since := state().Capsule("middle").PlacedAt
		do(orbit.Confirm{Capsule: "middle", Since: since, Begun: true})
		do(submit("high", 8, 2), orbit.Evict{Capsule: "middle", From: "agent", Since: since, For: "high"}, orbit.Place{Capsule: "high", Node: "agent"})
		ctx, cancel := context.WithCancel(t.Context())
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(5 * time.Second)
		require.True(t, state().Capsule("middle").Pending())
		do(orbit.Confirm{Capsule: "middle", Since: since, Stopped: true})
		time.Sleep(time.Second)
		require.Equal(t, orbit.NodeID("bare"), state().Capsule("middle").Node)
		cancel()
		require.NoError(t, <-done)
	})
}
