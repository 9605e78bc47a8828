package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/sandbox"
)

// Deleting a capsule frees its slot at once, though its node has not reported since: on the board that all gateways
// share, and in the gateway's own view without a refresh. The warm slot stays used.
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
		_, err := g.Create(context.Background(), "one too many", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrNoSlot)
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
				_, err := g.Create(context.Background(), "c2", bootSpec(code)) // another view
				require.ErrorIs(t, err, sandbox.ErrNoSlot)
				require.NoError(t, g.Delete(context.Background(), "c0"))
				made := f.create(g, "c3")
				require.False(t, made.Promised)
				_, err = g.Create(context.Background(), "c4", bootSpec(code))
				require.ErrorIs(t, err, sandbox.ErrNoSlot)
			})
		})
	}
}

// A node whose slot comes back while telemetry fails, and whose room the view has shown long since, is the best again at
// once.
func TestGatewayDeleteMakesANodeTheBestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.join("a", 9)
		f.report("a", 1, 2, 0)
		f.host("b", 9, 0, 0)
		g, _, r := f.watched()
		g.AllowStale = true
		require.Equal(t, "a", string(f.create(g, "c0").Node))
		r.broken.Store(true)
		time.Sleep(30 * time.Second)
		require.Equal(t, "b", string(f.create(g, "c1").Node), "a reported one slot, which c0 has")
		require.NoError(t, g.Delete(context.Background(), "c0"))
		require.Equal(t, "a", string(f.create(g, "c2").Node))
	})
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
		_, err := g.Create(context.Background(), "view", bootSpec("none"))
		require.ErrorIs(t, err, sandbox.ErrNoTemplate)
		f.create(g, "c1")
		require.NoError(t, g.Delete(context.Background(), "c0"))
		_, err = g.Create(context.Background(), "c2", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrNoSlot)
		require.NoError(t, g.Delete(context.Background(), "c1"))
		f.create(g, "c3")
		_, err = g.Create(context.Background(), "c4", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrNoSlot)
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
		require.LessOrEqual(t, sandbox.Kept(g), 9000, "views come every 30 s, that is 3,000 creates")
		require.NotZero(t, sandbox.Kept(g))
	})
}

// A conflict says nothing of the capsule: Delete and the clean-up of a failed create go by the record, and
// release it until it is released. Where the ledger refuses until their time is over they say that it may be
// left behind.
func TestGatewayReleasesInSpiteOfConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 4, 4, 0)
		refusals := 0
		faults := ledgertest.Faults{Choose: func(_ int, p orbit.Proposal) ledgertest.Fault {
			if r, ok := p.Do[0].(orbit.Release); ok && r.Final && refusals > 0 {
				refusals--
				return ledgertest.Conflict
			}
			return ledgertest.None
		}}
		g := &sandbox.Gateway{Ledger: faults.Around(f.ledger), Board: f.board}
		fails := &sandbox.Gateway{Ledger: g.Ledger, Board: f.board, Start: func(context.Context, sandbox.Created) (bool, error) {
			return false, errors.New("503")
		}}
		f.create(g, "a")
		refusals = 3
		require.NoError(t, g.Delete(context.Background(), "a"))
		require.True(t, snapshot(t, f.ledger).Capsule("a").Released())
		refusals = 3
		_, err := fails.Create(context.Background(), "b", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrStart)
		require.NotErrorIs(t, err, sandbox.ErrLeftBehind)
		require.True(t, snapshot(t, f.ledger).Capsule("b").Released())

		f.create(g, "c")
		refusals = math.MaxInt
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = g.Delete(ctx, "c")
		require.ErrorIs(t, err, sandbox.ErrLeftBehind)
		require.ErrorIs(t, err, orbit.ErrConflict)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		f.report("a", 4, 4, 0)
		_, err = fails.Create(context.Background(), "d", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrLeftBehind)
		require.Equal(t, 2, f.live())
		refusals = 0
		require.NoError(t, g.Delete(context.Background(), "c"))
		require.NoError(t, g.Delete(context.Background(), "d"))
		require.ErrorIs(t, g.Delete(context.Background(), "e"), sandbox.ErrNoCapsule)
		require.Zero(t, f.live())
	})
}

// Whatever goes wrong between a gateway and its ledger, an answer is true: what was created runs where it says,
// what was deleted is released, and what failed has left nothing behind unless it says so.
func TestGatewayAnswersAreTrueWhateverTheLedgerSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			f := newFleet(rt)
			f.host("a", 3, 2, 0)
			f.host("b", 3, 0, 0)
			chance := rapid.Float64Range(0, 0.3)
			faults := &ledgertest.Faults{
				Seed: rapid.Uint64().Draw(rt, "seed"), Conflict: chance.Draw(rt, "conflict"), Unavailable: chance.Draw(rt, "unavailable"),
				Lost: chance.Draw(rt, "lost"), Applied: chance.Draw(rt, "applied"),
			}
			g := &sandbox.Gateway{Ledger: faults.Around(f.ledger), Board: f.board, Cache: -1, AllowStale: true, CleanUp: time.Second}
			fails := false
			g.Start = func(_ context.Context, c sandbox.Created) (bool, error) {
				if fails && !c.Retried {
					return false, errors.New("503")
				}
				return true, nil
			}
			for i := range rapid.IntRange(1, 12).Draw(rt, "creates") {
				id := orbit.CapsuleID(fmt.Sprint("c", i))
				deletes := rapid.Bool().Draw(rt, "delete")
				fails = rapid.Bool().Draw(rt, "fails")
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rapid.IntRange(1, 100).Draw(rt, "ms"))*time.Millisecond)
				made, err := g.Create(ctx, id, bootSpec(code))
				c := snapshot(rt, f.ledger).Capsule(id)
				switch {
				case err == nil:
					require.Equal(rt, made.Node, c.Node)
				case !errors.Is(err, sandbox.ErrLeftBehind):
					require.True(rt, c == nil || c.Released(), "%v", err)
				}
				if deletes && g.Delete(ctx, id) == nil {
					require.True(rt, snapshot(rt, f.ledger).Capsule(id).Released())
				}
				cancel()
			}
		})
	})
}
