package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

func acquire(t testing.TB, l *telemetry.Leases, name, holder string) telemetry.Term {
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

// A term lives until TTL after its last refresh, exact to the nanosecond, and never after.
func TestATermIsLiveUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		l := &telemetry.Leases{Ledger: &ledger}
		term := acquire(t, l, "a", "host")
		time.Sleep(60*time.Second - 1)
		live, ok := l.Live("a")
		require.True(t, ok)
		require.Equal(t, term, live)
		require.NoError(t, l.Refresh(term))
		time.Sleep(60*time.Second - 1)
		require.NoError(t, l.Refresh(term))
		time.Sleep(60 * time.Second)
		require.ErrorIs(t, l.Refresh(term), telemetry.ErrExpired)
		_, ok = l.Live("a")
		require.False(t, ok)
		_, ok = l.In(snapshot(t, &ledger), "a")
		require.True(t, ok, "the end is not committed yet")
		require.ErrorIs(t, l.Refresh(term), telemetry.ErrExpired, "and it is over all the same")

		round, err := l.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, []telemetry.Term{term}, round.Ended)
		_, ok = l.In(snapshot(t, &ledger), "a")
		require.False(t, ok)
	})
}

func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		m := &telemetry.Members{Leases: &telemetry.Leases{Ledger: &ledger}}
		term, err := m.Join(t.Context(), orbit.Node{ID: "a"}, "host")
		require.NoError(t, err)
		n := snapshot(t, &ledger).Node("a")
		require.Equal(t, int64(16384), n.Node.Capacity[orbit.Slots])
		require.Equal(t, term.Epoch, n.Specification, "one commit")

		b := telemetry.Board{Leases: m.Leases}
		r := report("a", time.Now())
		require.ErrorIs(t, b.Report(r), telemetry.ErrExpired)
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
		require.True(t, snapshot(t, &ledger).Node("a").Node.Unschedulable)
	})
}
