package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// host is a node's agent: it joins, reports every 10 s, and joins again when it is told that its term is over.
type host struct {
	id    orbit.NodeID
	m     *lease.Members
	board *telemetry.Board
	term  lease.Term
}

// beat sends one report.
func (h *host) beat(ctx context.Context) error {
	if h.term.Epoch == 0 {
		term, err := h.m.Join(ctx, orbit.Node{ID: h.id}, "agent")
		if err != nil {
			return err
		}
		h.term = term
	}
	r := report(h.id, time.Now())
	r.Term = h.term.Epoch
	err := h.board.Report(r)
	if errors.Is(err, lease.ErrExpired) {
		h.term = lease.Term{}
	}
	return err
}

func acquire(t testing.TB, l *lease.Keeper, name, holder string) lease.Term {
	t.Helper()
	term, err := l.Acquire(context.Background(), name, holder)
	require.NoError(t, err)
	return term
}

func snapshot(t testing.TB, l orbit.Ledger) *orbit.State {
	t.Helper()
	state, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return state
}

// rest waits, unless ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A node that joins is reported fresh under its term alone, and expires with it.
func TestReportsAfterAJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		m := &lease.Members{Leases: &lease.Keeper{Ledger: &ledger}}
		term, err := m.Join(t.Context(), orbit.Node{ID: "a"}, "host")
		require.NoError(t, err)
		n := snapshot(t, &ledger).Node("a")
		require.Equal(t, int64(16384), n.Node.Capacity[orbit.Slots])
		require.Equal(t, term.Epoch, n.Specification, "one commit")

		b := telemetry.Board{Leases: m.Leases}
		r := report("a", time.Now())
		require.ErrorIs(t, b.Report(r), lease.ErrExpired)
		r.Term = term.Epoch
		require.NoError(t, b.Report(r))
		_, v := changed(t, &b, 0)
		time.Sleep(60*time.Second - 1)
		ids, _ := changed(t, &b, v)
		require.Empty(t, ids)
		time.Sleep(1)
		ids, _ = changed(t, &b, v)
		require.Equal(t, []orbit.NodeID{"a"}, ids)
		_, err = m.Step(t.Context())
		require.NoError(t, err)
		require.False(t, snapshot(t, &ledger).Node("a").Node.Schedulable())
	})
}

// A fleet of hosts that come and go, creators that claim, views that follow and two processes that keep the
// members: all at once, for half an hour. At the end every view shows what the board has, and who has a lease is
// schedulable.
func TestAFleetInMotion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		m := &lease.Members{Leases: &lease.Keeper{Ledger: &ledger, Terms: -1}}
		board := &telemetry.Board{Leases: m.Leases}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		const hosts = 20
		m.Hook = func(r lease.MemberRound) {
			for _, err := range r.Errors {
				t.Error(err)
			}
		}
		all.Go(func() { m.Run(ctx) })
		for i := range hosts {
			dice := rand.New(rand.NewPCG(1, uint64(i)))
			h := &host{id: orbit.NodeID(fmt.Sprint("n", i)), m: m, board: board}
			all.Go(func() {
				for ctx.Err() == nil {
					if err := h.beat(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrExpired) {
						t.Error(err)
					}
					pause := 10 * time.Second
					if dice.IntN(20) == 0 {
						pause = time.Duration(dice.IntN(200)) * time.Second
					}
					rest(ctx, pause)
				}
			})
		}
		for i := range 4 {
			dice := rand.New(rand.NewPCG(2, uint64(i)))
			all.Go(func() {
				for ctx.Err() == nil {
					c := board.Claim(orbit.NodeID(fmt.Sprint("n", dice.IntN(hosts))), "py")
					if dice.IntN(4) == 0 {
						board.Unclaim(c)
					}
					rest(ctx, time.Duration(dice.IntN(1000))*time.Millisecond)
				}
			})
		}
		views := make([]orbit.View, 3)
		for i := range views {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := views[i].Refresh(t.Context(), &ledger, board, time.Now()); err != nil {
						t.Error(err)
					}
					rest(ctx, time.Duration(i+1)*time.Second)
				}
			})
		}
		all.Wait()
		_, err := m.Step(t.Context())
		require.NoError(t, err)
		for i := range views {
			require.NoError(t, views[i].Refresh(t.Context(), &ledger, board, time.Now()))
		}
		state, live := snapshot(t, &ledger), 0
		require.NoError(t, state.Verify())
		for n := range state.Nodes() {
			term, ok := m.Leases.Live(string(n.Node.ID))
			require.Equal(t, ok, n.Node.Schedulable(), n.Node.ID)
			latest, _ := board.Latest(n.Node.ID)
			require.Equal(t, ok && latest.Term == term.Epoch, !latest.Expired)
			for i := range views {
				seen := views[i].Report(n)
				require.Equal(t, latest.Expired, seen.Expired, n.Node.ID)
				require.Equal(t, latest.Warm, seen.Warm)
				require.Equal(t, latest.FreeSlots, seen.FreeSlots)
			}
			if ok {
				live++
			}
		}
		require.Greater(t, live, hosts/2)
		require.Zero(t, board.Stats().Invalid+board.Stats().Flooded)
	})
}

// Everything at once, as fast as it goes, for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	scale.Long(t)
	var ledger orbit.MemoryLedger
	m := &lease.Members{Leases: &lease.Keeper{Ledger: &ledger, TTL: 3 * time.Millisecond, Sweep: 5 * time.Millisecond, Terms: -1}, Gone: time.Millisecond}
	board := &telemetry.Board{Leases: m.Leases, PerSecond: -1}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { m.Run(ctx) })
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = m.Leases.Step(ctx)
			}
		})
	}
	for i := range 6 {
		h := &host{id: orbit.NodeID(fmt.Sprint("n", i%4)), m: m, board: board}
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_ = h.beat(ctx)
				c := board.Claim(h.id, "py")
				board.Exhausted(h.id, "go")
				board.Unclaim(c)
				if n%50 == 0 {
					_ = m.Leases.Resign(ctx, h.term)
					board.Forget(h.id)
					time.Sleep(4 * time.Millisecond)
				}
			}
		})
	}
	for range 2 {
		all.Go(func() {
			var view orbit.View
			for ctx.Err() == nil {
				_ = view.Refresh(t.Context(), &ledger, board, time.Now())
				for n := range view.State().Nodes() {
					for template, warm := range view.Report(n).Warm {
						if warm < 0 {
							t.Error(template, warm)
						}
					}
				}
				board.Stats()
			}
		})
	}
	all.Wait()
	require.NoError(t, snapshot(t, &ledger).Verify())
}

// A board hears of every lease that changes, also if more have changed since it was asked last than are
// remembered.
func TestABoardHearsOfEveryLease(t *testing.T) {
	leases := &lease.Keeper{Ledger: &orbit.MemoryLedger{}, Terms: -1}
	b := telemetry.Board{Leases: leases}
	term := acquire(t, leases, "a", "x")
	r := report("a", time.Now())
	r.Term = term.Epoch
	require.NoError(t, b.Report(r))
	_, v := changed(t, &b, 0)
	for _, others := range []int{0, 1, 3000, 5191, 8191, 1, 20_000, 5, 0} {
		term = acquire(t, leases, "a", "x")
		for range others {
			acquire(t, leases, "b", "x")
		}
		var ids []orbit.NodeID
		ids, v = changed(t, &b, v)
		require.Equal(t, []orbit.NodeID{"a"}, ids)
		ids, v = changed(t, &b, v)
		require.Empty(t, ids)
	}
	late := telemetry.Board{Leases: leases}
	r.Term = term.Epoch
	require.NoError(t, late.Report(r))
	ids, _ := changed(t, &late, 0)
	require.Equal(t, []orbit.NodeID{"a"}, ids)
}

// What a board knows of a node goes with the row of its lease.
func TestABoardForgetsWithTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		b := telemetry.Board{Leases: leases}
		r := report("a", time.Now())
		r.Term = acquire(t, leases, "a", "x").Epoch
		require.NoError(t, b.Report(r))
		_, v := changed(t, &b, 0)
		time.Sleep(time.Minute)
		_, err := leases.Step(t.Context())
		require.NoError(t, err)
		ids, v := changed(t, &b, v)
		require.Equal(t, []orbit.NodeID{"a"}, ids)
		time.Sleep(time.Hour)
		_, err = leases.Step(t.Context())
		require.NoError(t, err)
		ids, _ = changed(t, &b, v)
		require.Empty(t, ids)
		require.Zero(t, b.Stats().Nodes)
		latest, ok := b.Latest("a")
		require.False(t, ok)
		require.True(t, latest.Expired)
	})
}
