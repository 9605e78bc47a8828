//go:build stress

package orbit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// stressNav owns one module's capsules.
type stressNav struct {
	nav.Services
	module string
}

func (n *stressNav) Claims(module string, _ orbit.AppClass) bool { return module == n.module }

const (
	stressEngines = 8
	stressNodes   = 200
)

// stressCapsules are as many for each engine, and as many for each node.
var stressCapsules = 200 * scale.Of(0, 100)

// TestStressKills lets eight engines place 20,000 capsules, at full scale, on a constellation that just takes them, while
// engines are killed in the middle of passes and replaced, and nodes are drained and come back. In the end
// every capsule is placed, the books add up, and the whole history replays under the ledger's rules.
func TestStressKills(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 22}}
	empty, err := ledger.Snapshot(ctx)
	require.NoError(t, err)
	stressWorld(t, ledger)

	work, stop := context.WithCancel(ctx)
	var crowd sync.WaitGroup
	for i := range stressEngines {
		crowd.Go(func() { mortalEngine(work, ledger, i) })
	}
	drainAndReturn(ctx, ledger)
	require.NoError(t, allPlaced(ctx, ledger))
	stop()
	crowd.Wait()

	final, err := ledger.Snapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, final.Verify())
	require.Zero(t, final.PendingCount())
	changes, err := ledger.Changes(ctx, 0)
	require.NoError(t, err)
	replayed, err := empty.Apply(changes)
	require.NoError(t, err, "the history breaks a rule")
	require.Equal(t, final.PendingCount(), replayed.PendingCount())
	require.NoError(t, replayed.Verify())
	t.Logf("%d changes, final revision %d", len(changes), final.Revision())
}

// stressWorld has room for every capsule and one node in ten more.
func stressWorld(t *testing.T, ledger orbit.Ledger) {
	for i := range stressNodes {
		commit(ledger, orbit.PutNode{Node: stressNode(i)})
	}
	for e := range stressEngines {
		submit := orbit.Submit{Spec: &orbit.Spec{
			Module:   fmt.Sprint("module-", e),
			Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 100}},
		}}
		for i := range stressCapsules / stressEngines {
			submit.IDs = append(submit.IDs, orbit.CapsuleID(fmt.Sprintf("m%d-%05d", e, i)))
		}
		commit(ledger, submit)
	}
	require.Equal(t, stressCapsules, snapshot(ledger).PendingCount())
}

func stressNode(i int) orbit.Node {
	return orbit.Node{
		ID:       orbit.NodeID(fmt.Sprintf("node-%03d", i)),
		Capacity: orbit.Resources{orbit.CPU: int64(100 * stressCapsules / stressNodes * 11 / 10)},
	}
}

// mortalEngine runs engine after engine, each until a random death.
func mortalEngine(ctx context.Context, ledger orbit.Ledger, i int) {
	for ctx.Err() == nil {
		life, cancel := context.WithTimeout(ctx, time.Duration(20+rand.IntN(400))*time.Millisecond)
		engine := &orbit.Engine{
			Name: fmt.Sprint("engine-", i), Ledger: ledger, MaxPlan: 100,
			Navigator: &stressNav{module: fmt.Sprint("module-", i), Services: nav.Services{Placement: &place.Exhaustive{Seed: uint64(i)}}},
			Backoff:   orbit.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond},
		}
		_ = engine.Run(life)
		cancel()
	}
}

// drainAndReturn empties one node in seven, one after another, while commits race, and puts each back.
func drainAndReturn(ctx context.Context, ledger orbit.Ledger) {
	for i := 0; ctx.Err() == nil && i < stressNodes; i += 7 {
		node := stressNode(i)
		node.State = orbit.Cordoned
		commit(ledger, orbit.PutNode{Node: node})
		for c := range snapshot(ledger).On(node.ID) {
			commit(ledger, orbit.Release{Capsule: c.ID, From: node.ID, Stopped: true})
		}
		commit(ledger, orbit.RemoveNode{Node: node.ID})
		commit(ledger, orbit.PutNode{Node: stressNode(i)})
	}
}

// allPlaced waits until nothing is pending.
func allPlaced(ctx context.Context, ledger orbit.Ledger) error {
	for {
		state, err := ledger.Snapshot(ctx)
		if err != nil || state.PendingCount() == 0 {
			return err
		}
		if _, err := ledger.Wait(ctx, state.Revision()); err != nil {
			return fmt.Errorf("%d capsules still pending: %w", state.PendingCount(), err)
		}
	}
}
