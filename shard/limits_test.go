package shard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// TestTinyLimits: with hardly any history, small marks and small proposals everything is placed all the same, and after
// a minute nothing is committed any more.
func TestTinyLimits(t *testing.T) {
	for _, mode := range []Mode{Strict, Soft} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1, ValueBytes: 16, Commitments: 3, Preconditions: 5, Terminal: 1, ProposalIDs: 1, PlacementIDs: 1}}
				s := newStage(t)
				s.ledger = ledger
				names := []string{"a/", "b", "c"}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					d := &Dispatcher{Ledger: ledger, Schedulers: names, Strict: mode == Strict, Retry: orbit.Backoff{Initial: time.Millisecond, Max: 20 * time.Millisecond}}
					d.Hook = func(r Round) { assert.Empty(t, r.Errors) }
					_ = d.Run(ctx)
				})
				wg.Go(func() {
					g := &Groups{Ledger: ledger, Schedulers: names, Every: time.Millisecond}
					g.Hook = func(r Regrouping) { assert.Empty(t, r.Errors) }
					_ = g.Run(ctx)
				})
				for _, name := range names {
					partition := &PartitionLedger{Ledger: ledger, Scheduler: name, Mode: mode}
					sch := &Scheduler{Name: name, Navigator: partition.Navigator(func() orbit.Navigator { return &nav.Services{} })}
					wg.Go(func() {
						e := &orbit.Engine{Name: name, Ledger: partition, Navigator: sch, Backoff: orbit.Backoff{Max: 5 * time.Millisecond}}
						e.OnRound = func(r orbit.Round) { assert.Zero(t, r.Invalid+r.Infeasible, "%v", r.Errors) }
						_ = e.Run(ctx)
					})
				}
				for i := range 60 {
					s.do(orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("x/", i))}, Spec: cpu(int64(1 + i%5))})
					if i%6 == 0 {
						s.do(node(orbit.NodeID(fmt.Sprint("n/", i)), 30))
					}
				}
				time.Sleep(time.Minute)
				require.Zero(t, s.state().PendingCount(), "forgotten")
				before := s.state().Revision()
				time.Sleep(10 * time.Second)
				require.Equal(t, before, s.state().Revision(), "never quiet")
				cancel()
				wg.Wait()
				require.NoError(t, s.state().Verify())
			})
		})
	}
}

// TestGroupsNeedsRoom: if the end of a handoff does not fit into a proposal, Groups returns an error.
func TestGroupsNeedsRoom(t *testing.T) {
	for _, limits := range []orbit.Limits{{Commitments: 2}, {Preconditions: 3}} {
		g := &Groups{Ledger: &orbit.MemoryLedger{Bounds: limits}, Schedulers: []string{"a"}}
		require.ErrorIs(t, g.Run(context.Background()), orbit.ErrInvalid)
	}
}
