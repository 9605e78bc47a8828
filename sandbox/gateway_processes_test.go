package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// Two processes with a board and a gateway each create at the same time on one host, which reports to the first alone. No slot is
// given away twice and no id is created twice; both may promise the one warm slot, and one sandbox boots warm.
func TestGatewaysOfTwoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, ids = 30, 40
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		ledger := &orbit.MemoryLedger{}
		_, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
			orbit.PutNode{Node: orbit.Node{ID: "host", Capacity: orbit.Resources{orbit.Slots: slots}}},
		}})
		require.NoError(t, err)
		var warm, booted atomic.Int64
		warm.Store(1)
		gateways := make([]*sandbox.Gateway, 2)
		for i := range gateways {
			gateways[i] = &sandbox.Gateway{Ledger: ledger, Board: &telemetry.Board{}, Start: func(context.Context, sandbox.Created) (bool, error) {
				return warm.Add(-1) >= 0, nil
			}}
		}
		here, there := gateways[0].Board, gateways[1].Board
		out, in := net.Pipe()
		all.Go(func() { _ = here.Feed(ctx, out) })
		all.Go(func() { _ = there.Follow(ctx, in) })
		beat := func(free, warm int) {
			require.NoError(t, here.Report(orbit.Report{Node: "host", At: time.Now(), FreeSlots: free, Warm: map[string]int{code: warm}, Templates: []string{code}}))
			time.Sleep(20 * time.Millisecond)
		}
		beat(slots, 1)
		spec := &orbit.Spec{Start: orbit.Start{Template: code}}
		var creating sync.WaitGroup
		var made, promised, taken, full atomic.Int64
		for i := range 2 * ids { // each id is asked for at both
			creating.Go(func() {
				got, err := gateways[i%2].Create(ctx, orbit.CapsuleID(fmt.Sprint("box-", i/2)), spec)
				switch {
				case err == nil:
					made.Add(1)
					if got.Promised {
						promised.Add(1)
					}
					if got.Warm {
						booted.Add(1)
					}
				case errors.Is(err, sandbox.ErrNoSlot):
					full.Add(1)
				default:
					require.ErrorIs(t, err, sandbox.ErrTaken)
					taken.Add(1)
				}
			})
		}
		creating.Wait()
		t.Logf("%d made, %d promised, %d taken, %d full", made.Load(), promised.Load(), taken.Load(), full.Load())
		state, err := ledger.Snapshot(ctx)
		require.NoError(t, err)
		require.EqualValues(t, made.Load(), state.Node("host").Capsules)
		require.LessOrEqual(t, made.Load(), int64(slots))
		require.LessOrEqual(t, promised.Load(), int64(2))
		require.EqualValues(t, 1, booted.Load())
		time.Sleep(time.Millisecond)
		beat(slots-int(made.Load()), 0)
		r, known := there.Latest("host")
		require.True(t, known)
		require.Zero(t, r.Warm[code])
	})
}
