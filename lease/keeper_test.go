package lease_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is a hand-set clock. It is not safe for concurrent use.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

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

// A term lives until TTL after its last refresh, exact to the nanosecond, and never after.
func TestATermIsLiveUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		l := &lease.Keeper{Ledger: &ledger}
		term := acquire(t, l, "a", "host")
		time.Sleep(60*time.Second - 1)
		live, ok := l.Live("a")
		require.True(t, ok)
		require.Equal(t, term, live)
		require.NoError(t, l.Refresh(term))
		time.Sleep(60*time.Second - 1)
		require.NoError(t, l.Refresh(term))
		time.Sleep(60 * time.Second)
		require.ErrorIs(t, l.Refresh(term), lease.ErrExpired)
		_, ok = l.Live("a")
		require.False(t, ok)
		_, ok = l.In(snapshot(t, &ledger), "a")
		require.True(t, ok, "the end is not committed yet")
		require.ErrorIs(t, l.Refresh(term), lease.ErrExpired, "and it is over all the same")

		round, err := l.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, []lease.Term{term}, round.Ended)
		_, ok = l.In(snapshot(t, &ledger), "a")
		require.False(t, ok)
	})
}

func TestJoin(t *testing.T) {
	var ledger orbit.MemoryLedger
	m := &lease.Members{Leases: &lease.Keeper{Ledger: &ledger}}
	term, err := m.Join(t.Context(), orbit.Node{ID: "a"}, "host")
	require.NoError(t, err)
	n := snapshot(t, &ledger).Node("a")
	require.Equal(t, int64(lease.DefaultSlots), n.Node.Capacity[orbit.Slots])
	require.Equal(t, term.Epoch, n.Specification, "one commit")
}

// A refresh that comes at the end of a term or after it comes too late for ever, whatever the clock does next.
func TestAnEndIsForEver(t *testing.T) {
	c := &clock{start}
	l := &lease.Keeper{Ledger: &orbit.MemoryLedger{}, TTL: time.Second, Now: c.Now}
	term := acquire(t, l, "a", "host")
	c.now = start.Add(time.Second)
	require.ErrorIs(t, l.Refresh(term), lease.ErrExpired)
	c.now = start
	require.ErrorIs(t, l.Refresh(term), lease.ErrExpired)
	_, ok := l.Live("a")
	require.False(t, ok)

	term = acquire(t, l, "a", "host")
	c.now = start.Add(-time.Hour)
	require.NoError(t, l.Refresh(term))
	c.now = start.Add(time.Second - 1)
	require.NoError(t, l.Refresh(term), "a clock that was set back for a while takes nothing away")
}

func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		l := &lease.Keeper{Ledger: &ledger}
		first := acquire(t, l, "a", "one")
		value, at := snapshot(t, &ledger).Mark("lease/a")
		require.Equal(t, "1 live one", value)
		require.Equal(t, at, first.Epoch)

		// The same holder may begin a new term at any time, and the old one is over at once.
		second := acquire(t, l, "a", "one")
		require.Greater(t, second.Epoch, first.Epoch)
		require.ErrorIs(t, l.Refresh(first), lease.ErrExpired)
		require.NoError(t, l.Refresh(second))
		require.ErrorIs(t, l.Refresh(lease.Term{Name: "a", Holder: "two", Epoch: second.Epoch}), lease.ErrExpired)

		// Another holder may when it is over, to the nanosecond.
		time.Sleep(60*time.Second - 1)
		_, err := l.Acquire(t.Context(), "a", "two")
		require.ErrorIs(t, err, lease.ErrHeld)
		var held *lease.Error
		require.ErrorAs(t, err, &held)
		require.Equal(t, second, held.Held)
		require.Equal(t, time.Nanosecond, time.Until(held.Until))
		require.ErrorContains(t, err, `"a" by "one"`)
		time.Sleep(1)
		third := acquire(t, l, "a", "two")
		require.ErrorIs(t, l.Refresh(second), lease.ErrExpired)
		live, ok := l.Live("a")
		require.True(t, ok)
		require.Equal(t, third, live)
		in, ok := l.In(snapshot(t, &ledger), "a")
		require.True(t, ok)
		require.Equal(t, third, in)
		round, err := l.Step(t.Context())
		require.NoError(t, err)
		require.Empty(t, round.Ended, "the next term was the end of the one before")

		for _, bad := range [][2]string{{"", "one"}, {"b", ""}} {
			_, err = l.Acquire(t.Context(), bad[0], bad[1])
			require.ErrorIs(t, err, orbit.ErrInvalid)
		}
		_, err = (&lease.Keeper{}).Acquire(t.Context(), "a", "b")
		require.ErrorContains(t, err, "needs a Ledger")
		_, err = (&lease.Keeper{Ledger: &ledger, Prefix: "x"}).Step(t.Context())
		require.ErrorContains(t, err, "slash")
	})
}

func TestResign(t *testing.T) {
	var ledger orbit.MemoryLedger
	f := &faulty{Ledger: &ledger}
	l := &lease.Keeper{Ledger: f}
	term := acquire(t, l, "a", "one")
	require.NoError(t, l.Resign(t.Context(), term))
	_, ok := l.In(snapshot(t, &ledger), "a")
	require.False(t, ok)
	require.ErrorIs(t, l.Refresh(term), lease.ErrExpired)
	require.ErrorIs(t, l.Resign(t.Context(), term), lease.ErrExpired)

	term = acquire(t, l, "a", "two")
	f.before = times(1, orbit.ErrUnavailable)
	require.ErrorIs(t, l.Resign(t.Context(), term), orbit.ErrUnavailable)
	require.ErrorIs(t, l.Refresh(term), lease.ErrExpired, "it is over here")
	_, ok = l.In(snapshot(t, &ledger), "a")
	require.True(t, ok, "and not there")
	round, err := l.Step(t.Context())
	require.NoError(t, err)
	require.Equal(t, []lease.Term{term}, round.Ended)
}

// Names are anything, and no name's row can pass for another Leases' or another name's.
func TestKeys(t *testing.T) {
	var ledger orbit.MemoryLedger
	nodes := &lease.Keeper{Ledger: &ledger}
	others := &lease.Keeper{Ledger: &ledger, Prefix: "lease/schedulers/"}
	names := []string{"a", "schedulers/a", "a b", "ä", "%41", "A", "a/"}
	keys := map[string]bool{}
	for _, name := range names {
		keys[nodes.Key(name)] = true
		acquire(t, nodes, name, "x")
	}
	require.Len(t, keys, len(names))
	other := acquire(t, others, "a", "y")
	acquire(t, others, "b", "y")
	for _, key := range []string{"lease/%61%62", "lease/%zz", "lease/", "lease/a%20b%", "lease", "lease/ü"} { // keys of no lease
		_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: key, Value: "1 live z"}}})
		require.NoError(t, err)
	}
	again := &lease.Keeper{Ledger: &ledger}
	round, err := again.Step(t.Context())
	require.NoError(t, err)
	require.Equal(t, len(names), round.Live)
	for _, name := range names {
		_, ok := again.Live(name)
		require.True(t, ok, name)
	}
	in, ok := others.In(snapshot(t, &ledger), "a")
	require.True(t, ok)
	require.Equal(t, other, in)
}

// A holder that begins one term after another leaves nothing behind in the process: of the deadlines of old terms none is
// kept, however long the newest one lives.
func TestOldTermsLeaveNothing(t *testing.T) {
	c := &clock{now: start}
	l := &lease.Keeper{Ledger: &orbit.MemoryLedger{}, Now: c.Now, Terms: -1}
	var term lease.Term
	for range 50 {
		c.now = c.now.Add(time.Second)
		term = acquire(t, l, "a", "host")
	}
	for range 6 {
		c.now = c.now.Add(30 * time.Second)
		require.NoError(t, l.Refresh(term))
		_, err := l.Step(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 1, lease.Deadlines(l))
}

// A process that starts takes what the ledger says is live to be live for one TTL from then on.
func TestARestartGrantsOneTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		before := &lease.Keeper{Ledger: &ledger}
		kept, lost := acquire(t, before, "kept", "x"), acquire(t, before, "lost", "x")
		time.Sleep(time.Hour)
		after := &lease.Keeper{Ledger: &ledger}
		require.ErrorIs(t, after.Refresh(kept), lease.ErrUnheard)
		round, err := after.Step(t.Context())
		require.NoError(t, err)
		require.Empty(t, round.Ended)
		require.Equal(t, 2, round.Live)
		require.Equal(t, time.Minute, time.Until(round.Next))
		time.Sleep(60*time.Second - 1)
		require.NoError(t, after.Refresh(kept))
		_, err = after.Acquire(t.Context(), "lost", "y")
		require.ErrorIs(t, err, lease.ErrHeld)
		time.Sleep(1)
		round, err = after.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, []lease.Term{lost}, round.Ended)
		require.Equal(t, 1, round.Live)
		require.Equal(t, time.Minute-1, time.Until(round.Next))
	})
}

// What other processes commit is followed, also where the history does not reach back.
func TestOtherProcessesAreFollowed(t *testing.T) {
	for _, history := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			ledger := orbit.MemoryLedger{Bounds: orbit.Limits{History: history}}
			here, there := &lease.Keeper{Ledger: &ledger}, &lease.Keeper{Ledger: &ledger}
			term := acquire(t, here, "a", "one")
			require.ErrorIs(t, there.Refresh(term), lease.ErrUnheard)
			_, err := there.Step(t.Context())
			require.NoError(t, err)
			require.NoError(t, there.Refresh(term))
			time.Sleep(time.Second)
			other := acquire(t, there, "b", "two")
			resigned := acquire(t, there, "c", "three")
			require.NoError(t, there.Resign(t.Context(), resigned))
			require.NoError(t, here.Refresh(term))
			time.Sleep(time.Second)
			round, err := here.Step(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, round.Live)
			require.NoError(t, here.Refresh(other))
			require.ErrorIs(t, here.Refresh(resigned), lease.ErrExpired)
			require.Equal(t, 59*time.Second, time.Until(round.Next), "what was known stays as it was")

			time.Sleep(59 * time.Second)
			round, err = here.Step(t.Context())
			require.NoError(t, err)
			require.Equal(t, []lease.Term{term}, round.Ended)
			_, err = there.Step(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, there.Refresh(term), lease.ErrExpired)
		})
	}
}

// SCENARIOS 27: a lease is lost while its holder is healthy, and what it commits under it is refused from then on.
// I13.
func TestAnExpiredHolderCannotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		m := lease.Members{Leases: &lease.Keeper{Ledger: &ledger}}
		term, err := m.Join(t.Context(), orbit.Node{ID: "n"}, "host")
		require.NoError(t, err)
		_, err = ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{"x", "y", "z"}, Spec: &orbit.Spec{}}}})
		require.NoError(t, err)
		place := func(id orbit.CapsuleID, term lease.Term) error {
			_, err := ledger.Propose(t.Context(), orbit.Proposal{
				Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: "n"}},
				If: []orbit.Precondition{orbit.MarkAt{Key: m.Leases.Key("n"), Revision: term.Epoch}},
			})
			return err
		}
		require.NoError(t, place("x", term))

		// The holder runs on, but its refreshes do not get through.
		time.Sleep(60 * time.Second)
		_, err = m.Step(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, place("y", term), orbit.ErrConflict)
		again, err := m.Join(t.Context(), orbit.Node{ID: "n"}, "host")
		require.NoError(t, err)
		require.ErrorIs(t, place("y", term), orbit.ErrConflict, "nor under its old term once it has a new one")
		require.NoError(t, place("y", again))

		// Also not after the row was swept and begun anew.
		require.NoError(t, m.Leases.Resign(t.Context(), again))
		time.Sleep(2 * time.Hour)
		for range 4 {
			_, err = m.Step(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		require.Nil(t, snapshot(t, &ledger).Node("n"))
		third, err := m.Join(t.Context(), orbit.Node{ID: "n"}, "host")
		require.NoError(t, err)
		require.Greater(t, third.Epoch, again.Epoch)
		require.ErrorIs(t, place("z", again), orbit.ErrConflict)
		require.NoError(t, place("z", third))
	})
}

// SCENARIOS 29: a row vanishes under a live term. Its holder is told and begins another; if it does not, the lease
// is over like any other, and nothing is stuck. I11.
func TestARowThatVanishesIsRecovered(t *testing.T) {
	for _, history := range []int{0, 1} {
		for _, back := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				ledger := orbit.MemoryLedger{Bounds: orbit.Limits{History: history}}
				l := &lease.Keeper{Ledger: &ledger}
				term := acquire(t, l, "a", "host")
				_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
					orbit.Mark{Key: "other"}, orbit.Mark{Key: l.Key("a")}}})
				require.NoError(t, err)
				if back {
					again := acquire(t, l, "a", "host")
					require.ErrorIs(t, l.Refresh(term), lease.ErrExpired)
					require.NoError(t, l.Refresh(again))
					return
				}
				round, err := l.Step(t.Context())
				require.NoError(t, err)
				require.Equal(t, []lease.Term{term}, round.Ended)
				require.ErrorIs(t, l.Refresh(term), lease.ErrExpired)
				value, _ := snapshot(t, &ledger).Mark("lease/a")
				require.Contains(t, value, "1 over ")
				acquire(t, l, "a", "other")
			})
		}
	}
}

// A corrupt row affects only its own name: that lease is not held, and all others go on.
func TestACorruptRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		l := &lease.Keeper{Ledger: &ledger}
		bad, good := acquire(t, l, "bad", "x"), acquire(t, l, "good", "x")
		for _, value := range []string{"?", "1 live ", "1 live", "2 live x", "1 over x", "1 over 1 ", "1 over 01 x", "1 over +1 x",
			"1 over 99999999999999999999 x", "1 over  x", " 1 live x", "1 dead x", "\x001 live x"} {
			_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "lease/bad", Value: value}}})
			require.NoError(t, err)
			round, err := l.Step(t.Context())
			require.ErrorIs(t, err, lease.ErrCorrupt, value)
			require.Len(t, round.Errors, 1)
			require.Equal(t, 1, round.Live)
			require.ErrorIs(t, l.Refresh(bad), lease.ErrExpired)
			require.NoError(t, l.Refresh(good))
			_, ok := l.Live("bad")
			require.False(t, ok)
			_, ok = l.In(snapshot(t, &ledger), "bad")
			require.False(t, ok)
			_, err = l.Acquire(t.Context(), "bad", "x")
			require.ErrorIs(t, err, lease.ErrCorrupt)
			require.ErrorContains(t, err, "delete the mark")
		}
		time.Sleep(60 * time.Second)
		round, err := l.Step(t.Context())
		require.ErrorIs(t, err, lease.ErrCorrupt)
		require.Equal(t, []lease.Term{good}, round.Ended, "the others go on")

		_, err = ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "lease/bad"}}})
		require.NoError(t, err)
		_, err = l.Step(t.Context())
		require.NoError(t, err)
		acquire(t, l, "bad", "x")
	})
}

// Rows that have been over for long are swept a few at a time, oldest first; those that are younger stay.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		l := &lease.Keeper{Ledger: &ledger}
		for i := range 100 {
			require.NoError(t, l.Resign(t.Context(), acquire(t, l, fmt.Sprintf("n%03d", i), "x")))
			time.Sleep(1)
		}
		round, err := l.Step(t.Context())
		require.NoError(t, err)
		require.Empty(t, round.Swept)
		require.Equal(t, time.Hour-100, time.Until(round.Next))
		time.Sleep(time.Hour - 100 + 97)
		round, err = l.Step(t.Context())
		require.NoError(t, err)
		require.Len(t, round.Swept, 64)
		require.True(t, slices.IsSorted(round.Swept))
		require.Equal(t, "n000", round.Swept[0])
		require.Zero(t, max(0, time.Until(round.Next)), "there is more")
		round, err = l.Step(t.Context())
		require.NoError(t, err)
		require.Len(t, round.Swept, 34)
		require.Equal(t, "n097", round.Swept[33])
		require.Equal(t, time.Nanosecond, time.Until(round.Next))
		rows := 0
		for range snapshot(t, &ledger).Marks("lease/") {
			rows++
		}
		require.Equal(t, 2, rows)
		require.ErrorIs(t, l.Refresh(lease.Term{Name: "n000", Epoch: 1}), lease.ErrExpired)
	})
}

// The clock of the process that ended a lease may be ahead; the row is swept in time all the same.
func TestAnEndInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Mark{Key: "lease/a", Value: fmt.Sprintf("1 over %d x", time.Now().Add(1000*time.Hour).UnixNano())}}})
		require.NoError(t, err)
		l := &lease.Keeper{Ledger: &ledger}
		round, err := l.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Until(round.Next))
	})
}

// An outcome that is not known is found out by sending the same proposal again, and has one effect.
func TestUnknownOutcomes(t *testing.T) {
	for name, fault := range map[string]func(f *faulty){
		"was committed":     func(f *faulty) { f.after = times(2, orbit.ErrUnknown) },
		"was not committed": func(f *faulty) { f.before = times(2, orbit.ErrUnknown) },
		"then unavailable": func(f *faulty) {
			f.after = times(1, orbit.ErrUnknown)
			f.before = func(orbit.Proposal) error {
				if len(f.ids) == 3 {
					return orbit.ErrUnavailable
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ledger orbit.MemoryLedger
				f := &faulty{Ledger: &ledger}
				l := &lease.Keeper{Ledger: f}
				_, err := l.Step(t.Context())
				require.NoError(t, err)
				acquire(t, l, "z", "x")

				fault(f)
				term := acquire(t, l, "a", "x")
				require.NoError(t, l.Refresh(term))
				require.Equal(t, f.ids[1], f.ids[len(f.ids)-1], "the same proposal")
				in, _ := l.In(snapshot(t, &ledger), "a")
				require.Equal(t, term, in)
				require.Equal(t, orbit.Revision(2), snapshot(t, &ledger).Revision(), "one effect")

				f.ids, f.before, f.after = f.ids[:1], nil, nil
				require.NoError(t, l.Resign(t.Context(), lease.Term{Name: "z", Epoch: 1}))
				f.ids = f.ids[:1]
				time.Sleep(time.Minute)
				fault(f)
				var ended []lease.Term
				for range 4 {
					round, _ := l.Step(t.Context())
					ended = append(ended, round.Ended...)
				}
				require.Equal(t, f.ids[1], f.ids[len(f.ids)-1])
				_, ok := l.In(snapshot(t, &ledger), "a")
				require.False(t, ok)
				require.Equal(t, orbit.Revision(4), snapshot(t, &ledger).Revision())
				if name == "was not committed" {
					require.Equal(t, []lease.Term{term}, ended)
				}
			})
		})
	}
}

// When the context ends before the outcome is known, the error says so, and the lease is not stuck.
func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Ledger: &orbit.MemoryLedger{}}
		l := &lease.Keeper{Ledger: f}
		f.after = times(1000, orbit.ErrUnknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "a", "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, orbit.ErrUnknown)
		f.after = nil
		_, err = l.Acquire(t.Context(), "a", "y")
		require.ErrorIs(t, err, lease.ErrHeld, "it was committed, and is live until it runs out")
		acquire(t, l, "a", "x")

		f.before = times(1, orbit.ErrUnavailable)
		_, err = l.Acquire(t.Context(), "b", "x")
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.Step(ended)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A name may begin twenty terms at once, and twenty in an hour after that, whatever it does.
func TestTermsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		begun := 0
		for begin := time.Now(); time.Since(begin) < time.Hour; time.Sleep(time.Second) {
			_, err := l.Acquire(t.Context(), "a", "x")
			if err == nil {
				begun++
				continue
			}
			require.ErrorIs(t, err, lease.ErrTooMany)
			var flood *lease.Error
			require.ErrorAs(t, err, &flood)
			time.Sleep(time.Until(flood.Until) - 1)
			_, err = l.Acquire(t.Context(), "a", "x")
			require.ErrorIs(t, err, lease.ErrTooMany)
			time.Sleep(1)
			acquire(t, l, "a", "x")
			begun++
		}
		require.Equal(t, 1+20+20, begun) // the first one is not counted, for there was no row
	})
	l := &lease.Keeper{Ledger: &orbit.MemoryLedger{}, Terms: -1}
	for range 1000 {
		acquire(t, l, "a", "x")
	}
}

// The bound holds for all processes together, if a holder begins its terms at one after the other.
func TestTermsAreBoundedForAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := &orbit.MemoryLedger{}
		keepers := []*lease.Keeper{{Ledger: ledger}, {Ledger: ledger}, {Ledger: ledger}}
		begun := 0
		for begin := time.Now(); time.Since(begin) < time.Hour; time.Sleep(time.Second) {
			for _, k := range keepers {
				_, err := k.Acquire(t.Context(), "a", "x")
				if err == nil {
					begun++
					continue
				}
				require.ErrorIs(t, err, lease.ErrTooMany)
			}
		}
		require.GreaterOrEqual(t, begun, 20+20)
		require.LessOrEqual(t, begun, 1+20+20)
	})
}

// Run commits ends when they are due, to the nanosecond, goes on after errors, and tells.
func TestLeasesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		var failures atomic.Int64
		f := &faulty{Ledger: &ledger, before: func(orbit.Proposal) error {
			if failures.Add(-1) >= 0 {
				return orbit.ErrUnavailable
			}
			return nil
		}}
		rounds := make(chan lease.Round, 10)
		l := &lease.Keeper{Ledger: f, Hook: func(r lease.Round) { rounds <- r }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(300 * time.Millisecond)
		term := acquire(t, l, "a", "x")
		time.Sleep(20*time.Second + 1)
		require.NoError(t, l.Refresh(term))
		time.Sleep(60*time.Second - 1)
		synctest.Wait()
		require.Empty(t, rounds)
		time.Sleep(1)
		synctest.Wait()
		require.Len(t, rounds, 1)
		require.Equal(t, []lease.Term{term}, (<-rounds).Ended)

		second := acquire(t, l, "a", "x")
		failures.Store(2)
		time.Sleep(60 * time.Second)
		synctest.Wait()
		require.Len(t, rounds, 1)
		require.ErrorIs(t, (<-rounds).Errors[0], orbit.ErrUnavailable)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, rounds, 2)
		<-rounds
		require.Equal(t, []lease.Term{second}, (<-rounds).Ended)
		cancel()
		require.NoError(t, <-done, "a context that has ended is no error")
	})
}

// A row that is corrupt does not make the ends of others late.
func TestRunIsNotHeldUpByACorruptRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger orbit.MemoryLedger
		l := &lease.Keeper{Ledger: &ledger}
		_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "lease/bad", Value: "?"}}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		time.Sleep(300 * time.Millisecond)
		acquire(t, l, "a", "x")
		time.Sleep(time.Minute)
		synctest.Wait()
		_, ok := l.In(snapshot(t, &ledger), "a")
		require.False(t, ok)
	})
}

// What ends at once is committed in order of the ends, then of names.
func TestEndsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		var last lease.Term
		for _, name := range []string{"d", "b", "c", "a"} {
			last = acquire(t, l, name, "x")
		}
		time.Sleep(time.Second)
		require.NoError(t, l.Refresh(lease.Term{Name: "b", Epoch: 2}))
		time.Sleep(2 * time.Minute)
		_, ok := l.Live(last.Name)
		require.False(t, ok, "noticed first")
		round, err := l.Step(t.Context())
		require.NoError(t, err)
		var names []string
		for _, term := range round.Ended {
			names = append(names, term.Name)
		}
		require.Equal(t, []string{"a", "c", "d", "b"}, names)
	})
}

// A term that was over and swept before its holder had the answer is not taken for live.
func TestATermThatIsGoneBeforeTheAnswer(t *testing.T) {
	var ledger orbit.MemoryLedger
	f := &faulty{Ledger: &ledger}
	l := &lease.Keeper{Ledger: f}
	f.after = func(orbit.Proposal) error {
		f.after = nil
		for _, value := range []string{"1 over 1 x", ""} {
			_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: l.Key("a"), Value: value}}})
			require.NoError(t, err)
		}
		_, err := l.Step(t.Context())
		require.NoError(t, err)
		return nil
	}
	term := acquire(t, l, "a", "x")
	_, ok := l.Live("a")
	require.False(t, ok)
	require.ErrorIs(t, l.Refresh(term), lease.ErrExpired)
}

func TestRunNeedsALedger(t *testing.T) {
	require.ErrorIs(t, (&lease.Keeper{}).Run(t.Context()), orbit.ErrInvalid)
}

// A term may have begun if the answer to Acquire's proposal was lost, also when the ledger cannot be reached after that until
// the call ends: then the outcome is unknown, and the error says so.
func TestAcquireSaysThatItsOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := true
		k := &lease.Keeper{Ledger: &faulty{Ledger: &orbit.MemoryLedger{}, before: func(orbit.Proposal) error {
			defer func() { lost = false }()
			if lost {
				return orbit.ErrUnknown
			}
			return orbit.ErrUnavailable
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := k.Acquire(ctx, "n", "h")
		require.ErrorIs(t, err, orbit.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
