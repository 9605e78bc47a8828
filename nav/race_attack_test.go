package nav_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Services with anchors, batch with anchors, and two gang navigators run side by side on a constellation that is just
// large enough for some of it, while work ends and labels change: nothing is oversubscribed, no hold outlives its
// bound, no engine is ever told that it was its own mistake, and when there is room all is placed.
func TestNavigatorsSideBySideInEarnest(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{Terminal: 4}}
	racked(t, l, 6, 6, 16)
	for g := range 10 {
		owner := ""
		if g%2 == 1 {
			owner = "gangs2"
		}
		gangOf(t, l, fmt.Sprint("gang", g), owner, 6, 8) // half a rack
		submit(t, l, fmt.Sprint("group", g), 5, near(fmt.Sprint("group", g), 3))
		b := task(3, 0)
		b.Module, b.Group, b.Near = fmt.Sprint("bg", g), fmt.Sprint("bg", g), orbit.Near{Group: fmt.Sprint("bg", g), Level: "rack"}
		submit(t, l, fmt.Sprint("bg", g), 4, b)
		submit(t, l, fmt.Sprint("batch", g), 6, task(2, 0))
		submit(t, l, fmt.Sprint("web", g), 4, spec(2, 0))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wrong sync.Map
	hook := func(name string) func(context.Context, orbit.Round) {
		return func(_ context.Context, r orbit.Round) {
			for _, err := range r.Errors {
				if ctx.Err() == nil {
					wrong.Store(name+": "+err.Error(), true)
				}
			}
			if r.Infeasible > 0 {
				wrong.Store(name+": infeasible", true)
			}
		}
	}
	hold := 50 * time.Millisecond
	engines := []*orbit.Engine{
		{Name: "services", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, HoldFor: hold}},
		{Name: "batch", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Batch{}, HoldFor: hold, SelfMatch: true}},
		{Name: "gangs", Ledger: l, Navigator: &nav.Patient{Navigator: &nav.Gang{}, After: 1, For: hold}},
		{Name: "gangs2", Ledger: l, Navigator: orbit.Navigator(ownedOnly{&nav.Patient{Navigator: &nav.Gang{}, After: 1, For: hold}}), MaxPlan: 1},
	}
	var wg sync.WaitGroup
	for _, e := range engines {
		wg.Go(func() {
			h := hook(e.Name)
			for ctx.Err() == nil {
				h(ctx, e.Pass(ctx))
				time.Sleep(time.Millisecond)
			}
		})
	}
	deadline := time.Now().Add(time.Minute)
	for i := 0; snapshot(t, l).PendingCount() > 0; i++ {
		require.True(t, time.Now().Before(deadline), "%d wait", snapshot(t, l).PendingCount())
		sound(t, l)
		s := snapshot(t, l)
		done := 0
		for c := range s.Capsules() {
			if c.Placed() && done < 4 && (int(c.Submitted)+i)%7 == 0 {
				commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
				done++
			}
		}
		for h := range s.Holds() {
			require.Less(t, time.Until(h.Ends), time.Second)
		}
		n := rackNode("r0n0", fmt.Sprint("r", i%2), 16)
		commit(t, l, n)
		time.Sleep(2 * time.Millisecond)
	}
	require.Eventually(t, func() bool { return countHolds(t, l) == 0 }, time.Minute, time.Millisecond, "holds are left")
	cancel()
	wg.Wait()
	wrong.Range(func(k, _ any) bool { assert.Fail(t, k.(string)); return true })
	for _, e := range engines {
		e.Pass(context.Background())
	}
	assert.Zero(t, countHolds(t, l))
	sound(t, l)
}

// ownedOnly claims nothing: its engine has what it is assigned.
type ownedOnly struct{ orbit.Navigator }

func (ownedOnly) Claims(string, orbit.AppClass) bool { return false }
