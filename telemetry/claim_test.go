package telemetry_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// seen returns what readers see free of a node: slots, and warm slots of "py".
func seen(b *telemetry.Board, node orbit.NodeID) (slots, warm int) {
	r, _ := b.Latest(node)
	return r.FreeSlots, r.Warm["py"]
}

func requireSeen(t testing.TB, b *telemetry.Board, node orbit.NodeID, slots, warm int) {
	t.Helper()
	gotSlots, gotWarm := seen(b, node)
	require.Equal(t, [2]int{slots, warm}, [2]int{gotSlots, gotWarm}, "slots and warm slots seen")
}

func TestAClaimIsDebitedUntilTheNextReport(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", start))) // 3 slots, 2 warm
	_, v := changed(t, b, 0)
	require.True(t, b.Claim("a", "py").Warm())
	requireSeen(t, b, "a", 2, 1)
	ids, v := changed(t, b, v)
	require.Equal(t, []orbit.NodeID{"a"}, ids, "a claim is a change")
	require.False(t, b.Claim("a", "go").Warm(), "the node has no warm slot of that template")
	requireSeen(t, b, "a", 1, 1)
	require.True(t, b.Claim("a", "py").Warm())
	require.False(t, b.Claim("a", "py").Warm(), "none is left")
	require.False(t, b.Claim("a", "py").Warm())
	requireSeen(t, b, "a", 0, 0) // and not negative
	_, v = changed(t, b, v)

	c.now = start.Add(time.Second)
	require.NoError(t, b.Report(report("a", c.now)))
	requireSeen(t, b, "a", 3, 2)
	ids, v = changed(t, b, v)
	require.Equal(t, []orbit.NodeID{"a"}, ids, "an equal report that ends a claim is a change")
	c.now = c.now.Add(1)
	require.NoError(t, b.Report(report("a", c.now)))
	ids, _ = changed(t, b, v)
	require.Empty(t, ids, "and the one after it is not")
	require.Equal(t, telemetry.Stats{Nodes: 1, Reports: 3, Changed: 2, Claims: 5}, b.Stats())
}

// A report tells of what was before it was sent: a claim at that very instant survives it. When it was sent shows against
// the reports before it, to within a thousandth of the time between them, whatever the node's clock says and however long
// the report was on its way.
func TestAClaimSurvivesAnOlderReport(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		for _, x := range []struct {
			after, way time.Duration // of the report: how long after the claim it was sent, and how long it was on its way
			survives   bool
		}{
			{0, 0, true}, {1, 0, false}, {100 * time.Millisecond, 5 * time.Second, false}, {-100 * time.Millisecond, 5 * time.Second, true},
		} {
			b, c := newBoard()
			for range 3 {
				require.NoError(t, b.Report(report("a", c.now.Add(ahead))))
				c.now = c.now.Add(10 * time.Second)
			}
			b.Claim("a", "py")
			b.Exhausted("a", "go")
			sent := c.now.Add(x.after)
			c.now = sent.Add(x.way)
			require.NoError(t, b.Report(report("a", sent.Add(ahead))))
			if x.survives {
				requireSeen(t, b, "a", 2, 1)
			} else {
				requireSeen(t, b, "a", 3, 2)
			}
		}
	}
}

// A clock that is set, forward or back, or that drifts, keeps claims for hardly longer than until the next report.
func TestClaimsEndAlthoughTheClockChanges(t *testing.T) {
	for name, clock := range map[string]func(elapsed time.Duration) time.Duration{
		"forward": func(e time.Duration) time.Duration { return e + e.Truncate(time.Hour)/10 },
		"back":    func(e time.Duration) time.Duration { return e - e.Truncate(time.Hour)/10 },
		"slow":    func(e time.Duration) time.Duration { return e - e/2000 },
		"fast":    func(e time.Duration) time.Duration { return e + e/2000 },
	} {
		t.Run(name, func(t *testing.T) {
			b, c := newBoard()
			require.NoError(t, b.Report(report("a", c.now)))
			for e := time.Duration(0); e < 24*time.Hour; e += 10 * time.Second {
				c.now = start.Add(e)
				b.Claim("a", "py")
				c.now = c.now.Add(time.Second)
				err := b.Report(report("a", start.Add(clock(e+time.Second))))
				if e%time.Hour > 30*time.Second {
					require.NoError(t, err)
					requireSeen(t, b, "a", 3, 2)
				}
			}
		})
	}
}

// What a sandbox leaves when it ends is its slot, and not the warm one that it used up. A claim gives back once.
func TestVacate(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	took, plain := b.Claim("a", "py"), b.Claim("a", "go")
	requireSeen(t, b, "a", 1, 1)
	_, v := changed(t, b, 0)
	b.Vacate(took)
	requireSeen(t, b, "a", 2, 1)
	ids, _ := changed(t, b, v)
	require.Equal(t, []orbit.NodeID{"a"}, ids, "it is a change")
	b.Vacate(took)
	b.Unclaim(took)
	b.Vacate(telemetry.Claim{})
	requireSeen(t, b, "a", 2, 1)
	require.False(t, b.Holds(took))
	require.True(t, b.Holds(plain))
	b.Vacate(plain)
	requireSeen(t, b, "a", 3, 1)
	last := b.Claim("a", "py")
	c.now = start.Add(time.Second)
	require.NoError(t, b.Report(report("a", c.now)))
	require.False(t, b.Holds(last))
	b.Vacate(last)
	requireSeen(t, b, "a", 3, 2)
	require.Equal(t, telemetry.Stats{Nodes: 1, Reports: 2, Changed: 2, Claims: 3, Vacated: 2}, b.Stats())
}

func TestUnclaim(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	first, second := b.Claim("a", "py"), b.Claim("a", "py")
	third := b.Claim("a", "py")
	requireSeen(t, b, "a", 0, 0)
	_, v := changed(t, b, 0)
	b.Unclaim(first)
	requireSeen(t, b, "a", 1, 1)
	ids, v := changed(t, b, v)
	require.Equal(t, []orbit.NodeID{"a"}, ids)
	b.Unclaim(first)
	b.Unclaim(telemetry.Claim{})
	requireSeen(t, b, "a", 1, 1)
	ids, _ = changed(t, b, v)
	require.Empty(t, ids, "what has no effect is no change")
	b.Unclaim(third)
	requireSeen(t, b, "a", 2, 1) // it had no warm slot

	c.now = start.Add(time.Second)
	require.NoError(t, b.Report(report("a", c.now)))
	fourth := b.Claim("a", "py")
	for _, old := range []telemetry.Claim{first, second, third} {
		b.Unclaim(old)
	}
	requireSeen(t, b, "a", 2, 1) // the node has reported since

	b.Forget("a")
	require.NoError(t, b.Report(report("a", c.now)))
	b.Claim("a", "py")
	b.Claim("a", "py")
	b.Unclaim(fourth)
	requireSeen(t, b, "a", 1, 0) // it is not the node that it was
	require.Equal(t, uint64(2), b.Stats().Unclaimed)
}

// What was taken back is no claim any more: that it ends is no change.
func TestTheEndOfWhatWasTakenBackIsNoChange(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	b.Unclaim(b.Claim("a", "py"))
	_, v := changed(t, b, 0)
	c.now = start.Add(time.Second)
	require.NoError(t, b.Report(report("a", start.Add(time.Second))))
	ids, _ := changed(t, b, v)
	require.Empty(t, ids)

	b.Claim("a", "py")
	b.Unclaim(b.Claim("a", "py"))
	_, v = changed(t, b, v)
	c.now = start.Add(2 * time.Second)
	require.NoError(t, b.Report(report("a", start.Add(2*time.Second))))
	ids, _ = changed(t, b, v)
	require.Equal(t, []orbit.NodeID{"a"}, ids, "one of the two was kept")
}

// A claim that survives a report is debited from what that one says.
func TestASurvivingClaimIsDebitedFromTheNewReport(t *testing.T) {
	b, c := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	c.now = start.Add(time.Minute)
	b.Claim("a", "py")
	requireSeen(t, b, "a", 2, 1)
	r := report("a", c.now)
	r.FreeSlots, r.Warm["py"] = 9, 7
	require.NoError(t, b.Report(r))
	requireSeen(t, b, "a", 8, 6)
}

// A reader who asks again when nothing was claimed costs nothing, however many templates the node has.
func TestWhatReadersSeeIsMadeOnce(t *testing.T) {
	b, _ := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	b.Claim("a", "py")
	b.Latest("a")
	require.Zero(t, testing.AllocsPerRun(100, func() { b.Latest("a") }))
}

func TestExhausted(t *testing.T) {
	b, c := newBoard()
	r := report("a", start)
	r.Warm["go"] = 5
	require.NoError(t, b.Report(r))
	_, v := changed(t, b, 0)
	b.Exhausted("a", "py")
	b.Exhausted("a", "unheard of")
	ids, _ := changed(t, b, v)
	require.Equal(t, []orbit.NodeID{"a"}, ids)
	latest, _ := b.Latest("a")
	require.Equal(t, map[string]int{"py": 0, "go": 5}, latest.Warm)
	require.Equal(t, 3, latest.FreeSlots, "its slots are another matter")
	require.False(t, b.Claim("a", "py").Warm())
	c.now = start.Add(time.Second)
	require.NoError(t, b.Report(report("a", c.now)))
	requireSeen(t, b, "a", 3, 2)
	require.Equal(t, uint64(2), b.Stats().Exhausted)
}

func TestClaimsOnAnUnknownNodeDoNothing(t *testing.T) {
	b, _ := newBoard()
	require.False(t, b.Claim("a", "py").Warm())
	b.Exhausted("a", "py")
	b.Unclaim(b.Claim("a", "py"))
	require.Zero(t, b.Stats())
	require.NoError(t, b.Report(report("a", start)))
	requireSeen(t, b, "a", 3, 2)

	other, _ := newBoard()
	require.NoError(t, other.Report(report("a", start)))
	b.Claim("a", "py")
	b.Unclaim(other.Claim("a", "py"))
	requireSeen(t, b, "a", 2, 1) // a claim on another board is not taken back here
}

// What a reader holds is never written again, whatever is claimed.
func TestClaimsDoNotWriteWhatReadersHold(t *testing.T) {
	b, _ := newBoard()
	require.NoError(t, b.Report(report("a", start)))
	before, _ := b.Latest("a")
	b.Claim("a", "py")
	between, _ := b.Latest("a")
	b.Claim("a", "py")
	require.Equal(t, 2, before.Warm["py"])
	require.Equal(t, 1, between.Warm["py"])
	requireSeen(t, b, "a", 1, 0)
}

// However much is claimed of a node that does not report, a board remembers a bounded part of it, and shows
// nothing free where it has lost count.
func TestClaimsAreBounded(t *testing.T) {
	b, c := newBoard()
	r := report("a", start)
	r.FreeSlots, r.Warm["py"] = math.MaxInt, math.MaxInt
	require.NoError(t, b.Report(r))
	var last telemetry.Claim
	for range 16_384 {
		last = b.Claim("a", "py")
	}
	require.True(t, last.Warm())
	requireSeen(t, b, "a", math.MaxInt-16_384, math.MaxInt-16_384)
	c.now = start.Add(time.Second)
	over := b.Claim("a", "py")
	require.False(t, over.Warm())
	requireSeen(t, b, "a", 0, 0)
	b.Unclaim(over)
	b.Unclaim(last)
	requireSeen(t, b, "a", 0, 0) // it has lost count
	require.False(t, b.Claim("a", "py").Warm())

	r.At = c.now
	require.NoError(t, b.Report(r))
	requireSeen(t, b, "a", 0, 0) // the claim that was too many is not before this heartbeat
	_, v := changed(t, b, 0)
	c.now = c.now.Add(1)
	r.At = c.now
	require.NoError(t, b.Report(r))
	requireSeen(t, b, "a", math.MaxInt, math.MaxInt)
	ids, _ := changed(t, b, v)
	require.Equal(t, []orbit.NodeID{"a"}, ids)
	require.True(t, b.Claim("a", "py").Warm())
}

// What was claimed beyond the bound is unknown to the board, so the node has nothing free until a report is later than the
// last of it.
func TestTheLastClaimTooManyCounts(t *testing.T) {
	b, c := newBoard()
	r := report("a", start)
	r.FreeSlots = math.MaxInt
	require.NoError(t, b.Report(r))
	for range 16_385 {
		b.Claim("a", "go")
	}
	c.now = start.Add(2)
	b.Claim("a", "go")
	r.At = start.Add(1)
	require.NoError(t, b.Report(r))
	requireSeen(t, b, "a", 0, 0)
	c.now = start.Add(3)
	r.At = c.now
	require.NoError(t, b.Report(r))
	requireSeen(t, b, "a", math.MaxInt, 2)
}

// Many creators never debit more than was reported, and never twice what one of them debited.
func TestConcurrentClaims(t *testing.T) {
	b, _ := newBoard()
	r := report("a", start)
	r.FreeSlots, r.Warm["py"] = 1000, 300
	require.NoError(t, b.Report(r))
	var creators sync.WaitGroup
	var warm atomic.Int64
	for i := range 8 {
		creators.Go(func() {
			version := uint64(0)
			for j := range 100 {
				c := b.Claim("a", "py")
				if c.Warm() {
					warm.Add(1)
				}
				if j%2 == i%2 {
					b.Unclaim(c)
					if c.Warm() {
						warm.Add(-1)
					}
				}
				reports, v, err := b.Reports(context.Background(), version)
				if err != nil || len(reports) > 0 && (reports[0].FreeSlots < 200 || reports[0].Warm["py"] < 0) {
					t.Error(reports, err)
				}
				version = v
			}
		})
	}
	creators.Wait()
	requireSeen(t, b, "a", 600, 300-int(warm.Load()))
}

// The default clock is the time package's.
func TestClaimsByTheDefaultClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b telemetry.Board
		require.NoError(t, b.Report(report("a", time.Now())))
		time.Sleep(10 * time.Second)
		b.Claim("a", "py")
		require.NoError(t, b.Report(report("a", time.Now())))
		requireSeen(t, &b, "a", 2, 1)
		time.Sleep(1)
		require.NoError(t, b.Report(report("a", time.Now())))
		requireSeen(t, &b, "a", 3, 2)
	})
}

// A view sees what is claimed, and whose lease has run out.
func TestAViewSeesClaimsAndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		m := lease.Members{Leases: &lease.Keeper{Ledger: &ledger}}
		b := telemetry.Board{Leases: m.Leases, Stale: -1}
		for i := range 3 {
			term, err := m.Join(t.Context(), orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i))}, "host")
			require.NoError(t, err)
			if i < 2 {
				r := report(orbit.NodeID(term.Name), time.Now())
				r.Term = term.Epoch
				require.NoError(t, b.Report(r))
			}
		}
		var view orbit.View
		look := func(id orbit.NodeID) *orbit.Report {
			require.NoError(t, view.Refresh(t.Context(), &ledger, &b, time.Now()))
			return view.Report(view.State().Node(id))
		}
		require.False(t, look("n0").Expired)
		require.True(t, look("n2").Expired, "it has not reported under its term")
		b.Claim("n0", "py")
		require.Equal(t, 2, look("n0").FreeSlots)
		require.Equal(t, 1, look("n0").Warm["py"])
		require.Equal(t, 2, look("n1").Warm["py"])
		time.Sleep(60*time.Second - 1)
		require.False(t, look("n1").Expired)
		_, cursor, _ := view.Changed(0)
		time.Sleep(1)
		require.True(t, look("n1").Expired)
		indices, _, all := view.Changed(cursor)
		require.False(t, all)
		require.Len(t, indices, 2, "nothing was said, and yet they have changed")
	})
}
