package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// refused requires that a report is refused for this reason, and returns the receipt.
func refused(t testing.TB, err, kind error) telemetry.Refusal {
	t.Helper()
	require.ErrorIs(t, err, kind)
	var refusal *telemetry.Refusal
	require.ErrorAs(t, err, &refusal)
	require.NotEmpty(t, refusal.Error())
	return *refusal
}

// A node may send ten seconds' worth of reports at once, then one every 100 ms, exact to the nanosecond.
func TestAFloodIsRefused(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	for range 100 {
		require.NoError(t, b.Report(report("a", start)))
	}
	_, v := changed(t, b, 0)
	for _, at := range []time.Duration{0, 100*time.Millisecond - 1} {
		c.now = start.Add(at)
		r := report("a", c.now)
		r.FreeSlots++
		refused(t, b.Report(r), telemetry.ErrFlood)
	}
	ids, _ := changed(t, b, v)
	require.Empty(t, ids)
	require.NoError(t, b.Report(report("b", start)), "others are not concerned")

	c.now = start.Add(100 * time.Millisecond)
	require.NoError(t, b.Report(report("a", c.now)))
	refused(t, b.Report(report("a", c.now)), telemetry.ErrFlood)
	require.Equal(t, uint64(3), b.Stats().Flooded)

	c.now = start.Add(-time.Hour)
	refused(t, b.Report(report("a", c.now)), telemetry.ErrOutdated) // not a flood for an hour
}

// An honest node reports every 10 s and whenever something happens, a few times a second in bursts.
func TestAnHonestNodeIsNeverAFlood(t *testing.T) {
	b, c := newBoard()
	for second := range 600 {
		reports := 1
		if second%30 < 3 {
			reports = 25 // a burst of creates
		}
		for i := range reports {
			c.now = start.Add(time.Duration(second)*time.Second + time.Duration(i)*10*time.Millisecond)
			require.NoError(t, b.Report(report("a", c.now)))
		}
	}
}

func TestFloodBounds(t *testing.T) {
	b := telemetry.Board{Now: (&clock{start}).Now, PerSecond: -1}
	for range 10_000 {
		require.NoError(t, b.Report(report("a", start)))
	}
	b = telemetry.Board{Now: (&clock{start}).Now, PerSecond: 1}
	for i := range 12 {
		err := b.Report(report("a", start))
		require.Equal(t, i < 11, err == nil, "the first, and ten seconds' worth")
	}
}

func TestOversizedReportsAreRefused(t *testing.T) {
	many := func(n int) (words []string) {
		for i := range n {
			words = append(words, fmt.Sprint(i))
		}
		return words
	}
	for name, edit := range map[string]func(*orbit.Report){
		"templates": func(r *orbit.Report) { r.Templates = many(4096) },
		"volumes":   func(r *orbit.Report) { r.Volumes = many(4094) },
		"warm": func(r *orbit.Report) {
			for _, w := range many(4094) {
				r.Warm[w] = 1
			}
		},
		"long template": func(r *orbit.Report) { r.Templates[0] = strings.Repeat("x", 254) },
		"long volume":   func(r *orbit.Report) { r.Volumes = []string{strings.Repeat("x", 254)} },
		"long warm":     func(r *orbit.Report) { r.Warm[strings.Repeat("x", 254)] = 0 },
		"long node":     func(r *orbit.Report) { r.Node = orbit.NodeID(strings.Repeat("x", 254)) },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newBoard()
			r := report("a", start)
			edit(&r)
			require.LessOrEqual(t, len(refused(t, b.Report(r), telemetry.ErrOversized).Node), 253)
			require.Equal(t, telemetry.Stats{Oversized: 1}, b.Stats())
		})
	}
	b, _ := newBoard()
	r := report("a", start)
	r.Volumes = many(4093) // with two templates and a warm one: 4,096
	r.Templates[0] = strings.Repeat("x", 253)
	require.NoError(t, b.Report(r))
	b.MaxWords = 2
	refused(t, b.Report(report("a", start)), telemetry.ErrOversized)
	b.MaxWords = -1
	r.Volumes = many(100_000)
	require.NoError(t, b.Report(r))
}

// Without leases any node may report, but the number of names is bounded.
func TestABoardTakesSoManyNodes(t *testing.T) {
	b, _ := newBoard()
	b.MaxNodes = 2
	require.NoError(t, b.Report(report("a", start)))
	require.NoError(t, b.Report(report("b", start)))
	refused(t, b.Report(report("c", start)), telemetry.ErrFull)
	require.NoError(t, b.Report(report("b", start)), "who is known is known")
	b.Forget("a")
	require.NoError(t, b.Report(report("c", start)))
	require.Equal(t, telemetry.Stats{Nodes: 2, Reports: 4, Changed: 3, Full: 1}, b.Stats())
	b.MaxNodes = -1
	require.NoError(t, b.Report(report("d", start)))
}

// With leases only the current term of a node may speak for it; and who cannot, cannot use up what the node may
// send.
func TestReportsWithoutTheCurrentTermAreRefused(t *testing.T) {
	c := &clock{start}
	var ledger orbit.MemoryLedger
	leases := &lease.Keeper{Ledger: &ledger, Now: c.Now}
	b := telemetry.Board{Now: c.Now, Leases: leases, PerSecond: 1}
	under := func(term lease.Term) error {
		r := report("a", c.now)
		r.Term = term.Epoch
		return b.Report(r)
	}
	refused(t, under(lease.Term{}), lease.ErrExpired)
	require.Equal(t, telemetry.Stats{Unleased: 1}, b.Stats())
	old := acquire(t, leases, "a", "host")
	require.NoError(t, under(old))
	current := acquire(t, leases, "a", "host")
	require.Equal(t, current.Epoch, refused(t, under(old), lease.ErrExpired).Current)
	refused(t, under(lease.Term{}), lease.ErrExpired)
	refused(t, under(lease.Term{Epoch: 99}), lease.ErrUnheard)
	require.Equal(t, telemetry.Stats{Nodes: 1, Reports: 1, Changed: 1, Unleased: 1, OldTerm: 2, Unheard: 1}, b.Stats())
	latest, _ := b.Latest("a")
	require.True(t, latest.Expired, "what is known of it was said under an old term")
	require.NoError(t, under(current))
	latest, _ = b.Latest("a")
	require.False(t, latest.Expired)

	for range 100 {
		refused(t, under(old), lease.ErrExpired)
	}
	require.NoError(t, under(current))

	// A report is a refresh, and one that is refused is none.
	c.now = start.Add(60*time.Second - 1)
	require.NoError(t, under(current))
	base := c.now
	c.now = base.Add(9 * time.Second)
	for _, edit := range []func(*orbit.Report){
		func(r *orbit.Report) { r.At = base.Add(-1) },
		func(r *orbit.Report) { r.FreeSlots = -1 },
	} {
		r := report("a", c.now)
		r.Term = current.Epoch
		edit(&r)
		require.Error(t, b.Report(r))
	}
	c.now = base.Add(60 * time.Second)
	refused(t, under(current), lease.ErrExpired)
	require.Equal(t, uint64(2), b.Stats().Unleased)
	_, ok := leases.Live("a")
	require.False(t, ok)
}

// A reader that knows a version of a board that died hears of everything from the one after it, also if that has
// had more changes than the first one when the reader asks again.
func TestVersionsSurviveARestart(t *testing.T) {
	before, c := newBoard()
	for i := range 5 {
		require.NoError(t, before.Report(report(orbit.NodeID(fmt.Sprint(i)), start)))
	}
	_, version := changed(t, before, 0)

	c.now = start.Add(time.Millisecond)
	after := telemetry.Board{Now: c.Now}
	for i := range 10 {
		r := report(orbit.NodeID(fmt.Sprint(i)), c.now)
		r.FreeSlots = 7
		require.NoError(t, after.Report(r))
	}
	reports, v, err := after.Reports(context.Background(), version)
	require.NoError(t, err)
	require.Len(t, reports, 10)
	require.Greater(t, v, version)
}
