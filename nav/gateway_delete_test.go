package nav_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// What is deleted gives its slot back at once, though its node has not reported since: on the board for everybody, and in
// the gateway's own books without another view. The warm slot was used up.
func TestGatewayDeleteGivesTheSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 4, 2, 0)
		g, _, r := f.watched()
		for i := range 20 {
			id := fmt.Sprint("c", i)
			require.Equal(t, i < 2, f.create(g, id).Promised, "create %d", i)
			require.NoError(t, g.Delete(context.Background(), orbit.CapsuleID(id)))
			require.NoError(t, g.Delete(context.Background(), orbit.CapsuleID(id)))
			seen, _ := f.board.Latest("a")
			require.Equal(t, []int{4, max(0, 1-i)}, []int{seen.FreeSlots, seen.Warm[code]})
		}
		require.Equal(t, int64(1), r.reports.Load(), "no other view was needed")
		for i := range 4 {
			f.create(g, fmt.Sprint("d", i))
		}
		_, err := g.Create(context.Background(), "one too many", sandbox(code))
		require.ErrorIs(t, err, nav.ErrNoSlot)
		require.Zero(t, g.Stats().Conflicts)
	})
}

// So it does when the view has come to show the claim, and when telemetry has failed since.
func TestGatewayDeleteAfterAnotherView(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf=", deaf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.host("a", 2, 2, 0)
				g, _, r := f.watched()
				g.AllowStale = true
				f.create(g, "c0")
				f.create(g, "c1")
				r.broken.Store(deaf)
				time.Sleep(30 * time.Second)
				_, err := g.Create(context.Background(), "c2", sandbox(code)) // another view
				require.ErrorIs(t, err, nav.ErrNoSlot)
				require.NoError(t, g.Delete(context.Background(), "c0"))
				made := f.create(g, "c3")
				require.False(t, made.Promised)
				_, err = g.Create(context.Background(), "c4", sandbox(code))
				require.ErrorIs(t, err, nav.ErrNoSlot)
			})
		})
	}
}

// After the node has reported it is for its report to say what is free; what was claimed later is not given back for it.
func TestGatewayDeleteAfterAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 2, 0, 0)
		g := f.gateway()
		f.create(g, "c0")
		time.Sleep(time.Second)
		f.report("a", 1, 0, 0)
		_, err := g.Create(context.Background(), "view", sandbox("none"))
		require.ErrorIs(t, err, nav.ErrNoTemplate)
		f.create(g, "c1")
		require.NoError(t, g.Delete(context.Background(), "c0"))
		_, err = g.Create(context.Background(), "c2", sandbox(code))
		require.ErrorIs(t, err, nav.ErrNoSlot)
		require.NoError(t, g.Delete(context.Background(), "c1"))
		f.create(g, "c3")
		_, err = g.Create(context.Background(), "c4", sandbox(code))
		require.ErrorIs(t, err, nav.ErrNoSlot)
		time.Sleep(time.Second)
		f.report("a", 1, 0, 0)
		f.create(g, "c5")
	})
}

// A gateway remembers no more of what it has created than what could be given back, however much that was.
func TestGatewayForgetsWhatIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 1<<20, 0, 0)
		g := f.gateway()
		for i := range 10_000 {
			f.create(g, fmt.Sprint("c", i))
			if i%100 == 0 {
				time.Sleep(time.Second)
				f.report("a", 1<<20, 0, 0)
			}
		}
		require.LessOrEqual(t, nav.Kept(g), 9000, "views come every 30 s, that is 3,000 creates")
		require.NotZero(t, nav.Kept(g))
	})
}
