package telemetry_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is a hand-set clock. It is not safe for concurrent use.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newBoard() (*telemetry.Board, *clock) {
	c := &clock{now: start}
	return &telemetry.Board{Now: c.Now}, c
}

func report(node orbit.NodeID, at time.Time) orbit.Report {
	return orbit.Report{Node: node, At: at, CPUPercent: 12, FreeSlots: 3, Warm: map[string]int{"py": 2}, Templates: []string{"go", "py"}}
}

// changed returns the ids of what has changed after a version, and the new version.
func changed(t testing.TB, b *telemetry.Board, after uint64) ([]orbit.NodeID, uint64) {
	t.Helper()
	reports, version, err := b.Reports(context.Background(), after)
	require.NoError(t, err)
	var ids []orbit.NodeID
	for _, r := range reports {
		ids = append(ids, r.Node)
	}
	return ids, version
}

func TestZeroBoard(t *testing.T) {
	var b telemetry.Board
	ids, v := changed(t, &b, 0)
	require.Empty(t, ids)
	require.Zero(t, v)
	_, ok := b.Latest("a")
	require.False(t, ok)
	require.Equal(t, 30*time.Second, b.StaleAfter())
	b.Forget("a")
	require.NoError(t, b.Report(report("a", time.Now())))
	require.Equal(t, telemetry.Stats{Nodes: 1, Reports: 1, Changed: 1}, b.Stats())
	require.Zero(t, (&telemetry.Board{Stale: -1}).StaleAfter(), "a negative bound means never")
}

func TestUnchangedReportsPropagateNothing(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	require.NoError(t, b.Report(report("b", start)))
	ids, v := changed(t, b, 0)
	require.Equal(t, []orbit.NodeID{"b", "a"}, ids, "newest first")

	c.now = start.Add(10 * time.Second)
	same := report("a", c.now)
	same.Templates = []string{"py", "go", "py"} // the order, and repetitions, say nothing
	same.Stale = true                           // a reader's word, not a node's
	require.NoError(t, b.Report(same))
	ids, after := changed(t, b, v)
	require.Empty(t, ids)
	require.Equal(t, v, after)
	latest, ok := b.Latest("a")
	require.True(t, ok)
	require.Equal(t, c.now, latest.At, "but the heartbeat is known")
	require.False(t, latest.Stale)
	require.Equal(t, []string{"go", "py"}, latest.Templates)
}

func TestEveryFieldIsAChange(t *testing.T) {
	for name, edit := range map[string]func(*orbit.Report){
		"usage":     func(r *orbit.Report) { r.Usage[orbit.Disk]++ },
		"cpu":       func(r *orbit.Report) { r.CPUPercent++ },
		"slots":     func(r *orbit.Report) { r.FreeSlots++ },
		"warm":      func(r *orbit.Report) { r.Warm = map[string]int{"py": 1} },
		"templates": func(r *orbit.Report) { r.Templates = r.Templates[:1] },
		"volumes":   func(r *orbit.Report) { r.Volumes = []string{"v"} },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newBoard()
			require.NoError(t, b.Report(report("a", start)))
			_, v := changed(t, b, 0)
			r := report("a", start)
			edit(&r)
			require.NoError(t, b.Report(r))
			ids, _ := changed(t, b, v)
			require.Equal(t, []orbit.NodeID{"a"}, ids)
			latest, _ := b.Latest("a")
			r.Received = start
			require.Equal(t, r, latest)
		})
	}
}

func TestBoardKeepsItsOwnCopy(t *testing.T) {
	b, _ := newBoard()
	r := report("a", start)
	require.NoError(t, b.Report(r))
	before, _ := b.Latest("a")
	r.Warm["py"], r.Templates[0] = 99, "changed by the reporter"
	latest, _ := b.Latest("a")
	require.Equal(t, 2, latest.Warm["py"])
	require.Equal(t, []string{"go", "py"}, latest.Templates)

	next := report("a", start)
	next.Warm = map[string]int{"py": 7}
	require.NoError(t, b.Report(next))
	require.Equal(t, 2, before.Warm["py"], "what a reader holds never changes under it")
}

func TestMalformedReportsAreRefused(t *testing.T) {
	for name, edit := range map[string]func(*orbit.Report){
		"no node":         func(r *orbit.Report) { r.Node = "" },
		"no time":         func(r *orbit.Report) { r.At = time.Time{} },
		"NaN":             func(r *orbit.Report) { r.CPUPercent = math.NaN() },
		"+Inf":            func(r *orbit.Report) { r.CPUPercent = math.Inf(1) },
		"-Inf":            func(r *orbit.Report) { r.CPUPercent = math.Inf(-1) },
		"negative CPU":    func(r *orbit.Report) { r.CPUPercent = -0.5 },
		"negative slots":  func(r *orbit.Report) { r.FreeSlots = -1 },
		"negative usage":  func(r *orbit.Report) { r.Usage[7] = -1 },
		"negative warmth": func(r *orbit.Report) { r.Warm["py"] = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newBoard()
			r := report("a", start)
			edit(&r)
			err := b.Report(r)
			require.ErrorIs(t, err, orbit.ErrInvalid)
			require.ErrorContains(t, err, "correct the reporter")
			require.Equal(t, telemetry.Stats{Invalid: 1}, b.Stats())
		})
	}
}

// An older heartbeat is refused, the same one again is not; the boundary is exact to the nanosecond.
func TestOlderHeartbeatIsRefused(t *testing.T) {
	b, _ := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	require.NoError(t, b.Report(report("a", start)))
	late := report("a", start.Add(-1))
	late.FreeSlots = 0
	err := b.Report(late)
	require.ErrorIs(t, err, telemetry.ErrOutdated)
	var refusal *telemetry.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, telemetry.Refusal{Kind: telemetry.ErrOutdated, Node: "a", At: late.At, Against: start}, *refusal)
	latest, _ := b.Latest("a")
	require.Equal(t, 3, latest.FreeSlots, "a refused report changes nothing")

	b.Forget("a")
	require.NoError(t, b.Report(late), "a node that was forgotten starts anew")
	require.Equal(t, telemetry.Stats{Nodes: 1, Reports: 3, Changed: 2, Outdated: 1}, b.Stats())
}

// A report is as old as its receipt, however wrong the node's clock is.
func TestTheClockOfANodeIsNotItsAge(t *testing.T) {
	for _, ahead := range []time.Duration{-1000 * time.Hour, -31 * time.Second, 0, 11 * time.Second, 1000 * time.Hour} {
		b, c := newBoard()
		for range 3 {
			c.now = c.now.Add(10 * time.Second)
			require.NoError(t, b.Report(report("a", c.now.Add(ahead))))
			latest, _ := b.Latest("a")
			require.Equal(t, c.now, latest.Received)
		}
		require.Equal(t, uint64(1), b.Stats().Changed, "ahead by %v: no reader can have found the node stale", ahead)
	}
}

// A node whose clock is set back is not heard for 10 s, and not until its clock has caught up.
func TestTheClockOfANodeIsSetBack(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", c.now)))
	c.now = start.Add(10*time.Second - 1)
	require.ErrorIs(t, b.Report(report("a", c.now.Add(-time.Hour))), telemetry.ErrOutdated)
	c.now = start.Add(10 * time.Second)
	require.NoError(t, b.Report(report("a", c.now.Add(-time.Hour))))
	c.now = start.Add(15 * time.Second)
	require.NoError(t, b.Report(report("a", c.now.Add(-time.Hour))))
	require.ErrorIs(t, b.Report(report("a", c.now.Add(-time.Hour-time.Second))), telemetry.ErrOutdated, "the order is that of the new time")
}

// A reader may have called the node stale, so it must hear that it is back, though nothing else is new.
func TestHeardAgainCountsAsChanged(t *testing.T) {
	for _, pause := range []time.Duration{30*time.Second - 1, 30 * time.Second} {
		back := pause >= 30*time.Second
		t.Run(fmt.Sprintf("paused %v", pause), func(t *testing.T) {
			b, c := newBoard()
			require.NoError(t, b.Report(report("a", start)))
			_, v := changed(t, b, 0)
			c.now = start.Add(pause)
			require.NoError(t, b.Report(report("a", c.now)))
			ids, _ := changed(t, b, v)
			require.Equal(t, back, len(ids) == 1)
		})
		t.Run(fmt.Sprintf("on the way for %v", pause), func(t *testing.T) {
			b, c := newBoard()
			require.NoError(t, b.Report(report("a", start)))
			_, v := changed(t, b, 0)
			c.now = start.Add(pause)
			require.NoError(t, b.Report(report("a", start.Add(time.Second))))
			ids, v := changed(t, b, v)
			require.Equal(t, back, len(ids) == 1)
			c.now = c.now.Add(30*time.Second - 1)
			require.NoError(t, b.Report(report("a", start.Add(2*time.Second))))
			ids, _ = changed(t, b, v)
			require.Empty(t, ids, "the age counts from the receipt")
		})
	}
	b := telemetry.Board{Stale: -1}
	require.NoError(t, b.Report(report("a", start)))
	require.NoError(t, b.Report(report("a", start.Add(time.Hour))))
	require.Equal(t, uint64(1), b.Stats().Changed, "nothing is ever stale")
}

func TestReportsOfAnotherBoard(t *testing.T) {
	b, _ := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	ids, v := changed(t, b, 1000) // the version of a board before a restart
	require.Equal(t, []orbit.NodeID{"a"}, ids)
	ids, _ = changed(t, b, v+1000) // that of one whose clock was ahead
	require.Equal(t, []orbit.NodeID{"a"}, ids)
	ids, _ = changed(t, b, v)
	require.Empty(t, ids)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, v, err := b.Reports(ctx, 7)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, uint64(7), v)
}

// The default clock is the time package's.
func TestDefaultClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b telemetry.Board
		require.NoError(t, b.Report(report("a", time.Now())))
		time.Sleep(30*time.Second - 1)
		require.NoError(t, b.Report(report("a", time.Now())))
		time.Sleep(30 * time.Second)
		require.NoError(t, b.Report(report("a", time.Now())))
		require.Equal(t, uint64(2), b.Stats().Changed)
		latest, _ := b.Latest("a")
		require.Equal(t, time.Now(), latest.Received)
	})
}

// Readers that follow the board end up with what the board has, whatever happens at the same time.
func TestConcurrentUse(t *testing.T) {
	b := telemetry.Board{PerSecond: -1}
	const nodes, rounds = 20, 200
	now := time.Now()
	var reporters, readers sync.WaitGroup
	done := make(chan struct{})
	for n := range nodes {
		reporters.Go(func() {
			for i := range rounds {
				r := report(orbit.NodeID(fmt.Sprint("n", n)), now.Add(time.Duration(i)))
				r.FreeSlots = i / 3
				if err := b.Report(r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			mirror, version := map[orbit.NodeID]orbit.Report{}, uint64(0)
			follow := func() {
				reports, v, err := b.Reports(context.Background(), version)
				if err != nil || v < version {
					t.Error("version", v, "after", version, err)
				}
				version = v
				for _, r := range reports {
					mirror[r.Node] = r
					b.Latest(r.Node)
				}
			}
			for running := true; running; {
				select {
				case <-done:
					running = false
				case <-time.After(100 * time.Microsecond):
				}
				follow()
			}
			for id, r := range mirror {
				if latest, _ := b.Latest(id); latest.FreeSlots != r.FreeSlots {
					t.Errorf("%s: reader has %d slots, board %d", id, r.FreeSlots, latest.FreeSlots)
				}
			}
			if len(mirror) != nodes {
				t.Errorf("reader knows %d of %d nodes", len(mirror), nodes)
			}
		})
	}
	reporters.Wait()
	close(done)
	readers.Wait()
}
