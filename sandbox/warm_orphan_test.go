package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// A fork that has lost its host together with its parent's record goes where a plain capsule would, across hosts or not.
// While its parent waits, it waits too; and a new fork needs a parent that runs.
func TestWarmPlacesOrphanedForks(t *testing.T) {
	for _, gone := range []string{"released", "unknown"} {
		t.Run(gone, func(t *testing.T) {
			f := newFleet(t)
			f.ledger.Bounds.Terminal = 1
			f.host("a", 9, 9, 0)
			f.host("b", 9, 5, 0)
			g := f.gateway()
			f.create(g, "parent")
			start := orbit.Start{Template: code, Parent: "parent"}
			fork := func(id orbit.CapsuleID, s orbit.Start) {
				spec := bootSpec(code)
				spec.Start = s
				_, err := g.Create(context.Background(), id, spec)
				require.NoError(t, err)
			}
			fork("beside", start)
			start.CrossHost = true
			fork("across", start)
			long := orbit.Instant(1) // so long ago that the host is not avoided for it
			commit(t, f.ledger, orbit.Release{Capsule: "beside", Stopped: true, At: long}, orbit.Release{Capsule: "across", Stopped: true, At: long}, orbit.Release{Capsule: "parent", Stopped: true, At: long})
			spec := bootSpec(code)
			spec.Start = orbit.Start{Template: code, Parent: "parent"}
			commit(t, f.ledger, orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: spec})

			var view orbit.View
			var w sandbox.Warm
			plan := func() orbit.Plan {
				require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
				pending := view.State().Pending()
				plan, err := w.Plan(context.Background(), &view, pending)
				require.NoError(t, err)
				return plan
			}
			p := plan()
			require.Len(t, p.Proposals, 1, "the parent only")
			require.Len(t, p.Unplaced, 3)
			for _, u := range p.Unplaced {
				require.ErrorIs(t, u.Why, sandbox.ErrNoParent)
			}

			commit(t, f.ledger, orbit.Release{Capsule: "parent", Final: true})
			if gone == "unknown" {
				commit(t, f.ledger, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: bootSpec(code)}, orbit.Release{Capsule: "other", Final: true})
				require.Nil(t, snapshot(t, f.ledger).Capsule("parent"))
			}
			p = plan()
			placed := []orbit.CapsuleID{}
			for _, q := range p.Proposals {
				placed = append(placed, q.Do[0].(orbit.Place).Capsule)
				require.Equal(t, orbit.NodeID("a"), q.Do[0].(orbit.Place).Node)
			}
			require.ElementsMatch(t, []orbit.CapsuleID{"beside", "across"}, placed)
			require.Len(t, p.Unplaced, 1)
			require.Equal(t, orbit.CapsuleID("new"), p.Unplaced[0].Capsule.ID)
			require.ErrorIs(t, p.Unplaced[0].Why, sandbox.ErrNoParent)
			_, err := f.gateway().Create(context.Background(), "newer", spec)
			require.ErrorIs(t, err, sandbox.ErrNoParent)
		})
	}
}
