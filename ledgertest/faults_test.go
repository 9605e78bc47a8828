package ledgertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/nav"
)

// choose injects one fault after the other.
func choose(list ...ledgertest.Fault) *ledgertest.Faults {
	return &ledgertest.Faults{Choose: func(n int, _ orbit.Proposal) ledgertest.Fault { return list[n] }}
}

// sets proposes a mark; the ledger knows afterwards whether it was applied.
func sets(key string) orbit.Proposal {
	return orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: key, Value: "v"}}}
}

func isSet(t *testing.T, l orbit.Ledger, key string) bool {
	s, err := l.Snapshot(bg)
	require.NoError(t, err)
	_, at := s.Mark(key)
	return at != 0
}

// Each fault has its answer, and its effect or none; sent again, all of them have one.
func TestFaults(t *testing.T) {
	for fault, want := range map[ledgertest.Fault]struct {
		err     error
		applied bool
	}{
		ledgertest.None:        {nil, true},
		ledgertest.Conflict:    {orbit.ErrConflict, false},
		ledgertest.Unavailable: {orbit.ErrUnavailable, false},
		ledgertest.Lost:        {orbit.ErrUnknown, false},
		ledgertest.Applied:     {orbit.ErrUnknown, true},
		ledgertest.Delayed:     {nil, true},
	} {
		t.Run(fault.String(), func(t *testing.T) {
			l, f := &orbit.MemoryLedger{}, choose(fault, ledgertest.None)
			faulty := f.Around(l)
			p := sets("k")
			rev, err := faulty.Propose(bg, p)
			require.ErrorIs(t, err, want.err)
			assert.Equal(t, err == nil, rev != 0)
			assert.Equal(t, want.applied, isSet(t, l, "k"))
			if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
				assert.Equal(t, ledgertest.ErrInjected.Error(), r.Reason)
			} else if err != nil {
				assert.ErrorIs(t, err, ledgertest.ErrInjected)
			}
			_, err = faulty.Propose(bg, p)
			require.NoError(t, err)
			s, err := l.Snapshot(bg)
			require.NoError(t, err)
			assert.EqualValues(t, 1, s.Revision(), "one effect")
			assert.Equal(t, 1, f.Counts()[fault]-btoi(fault == ledgertest.None))
		})
	}
	assert.Equal(t, "Fault(99)", ledgertest.Fault(99).String())
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What is refused stays refused where the answer gets through, and is unknown where it is lost.
func TestFaultsOnRefusals(t *testing.T) {
	l := &orbit.MemoryLedger{}
	faulty := choose(ledgertest.Applied, ledgertest.Delayed).Around(l)
	bad := orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Place{Capsule: "c", Node: "n"}}}
	_, err := faulty.Propose(bg, bad)
	require.ErrorIs(t, err, orbit.ErrUnknown)
	_, err = faulty.Propose(bg, bad)
	require.ErrorIs(t, err, orbit.ErrInfeasible)
	ended, cancel := context.WithCancel(bg)
	cancel()
	_, err = choose(ledgertest.Applied).Around(l).Propose(ended, bad)
	require.ErrorIs(t, err, orbit.ErrUnavailable, "nothing was applied, and the ledger knows")
}

// A panic comes before anything is sent.
func TestFaultPanics(t *testing.T) {
	l := &orbit.MemoryLedger{}
	assert.PanicsWithValue(t, ledgertest.Panicked, func() { _, _ = choose(ledgertest.Panicked).Around(l).Propose(bg, sets("k")) })
	assert.False(t, isSet(t, l, "k"))
}

// The proposals of a batch have faults of their own, and their places.
func TestFaultsInABatch(t *testing.T) {
	l := &orbit.MemoryLedger{}
	faulty := choose(ledgertest.None, ledgertest.Lost, ledgertest.Applied, ledgertest.Conflict, ledgertest.None).Around(l)
	batch := []orbit.Proposal{sets("a"), sets("b"), sets("c"), sets("d"), {}}
	out := faulty.(orbit.Batcher).ProposeBatch(bg, batch)
	require.Len(t, out, 5)
	for i, want := range []error{nil, orbit.ErrUnknown, orbit.ErrUnknown, orbit.ErrConflict, orbit.ErrInvalid} {
		assert.ErrorIs(t, out[i].Err, want)
	}
	for key, want := range map[string]bool{"a": true, "b": false, "c": true, "d": false} {
		assert.Equal(t, want, isSet(t, l, key), key)
	}
	_, ok := (&ledgertest.Faults{}).Around(unbatched{l}).(orbit.Batcher)
	assert.False(t, ok, "what takes no batches takes none with faults")
}

// unbatched hides that a ledger takes batches.
type unbatched struct{ orbit.Ledger }

// The same seed and the same calls have the same faults; chances come about.
func TestFaultsAreSeeded(t *testing.T) {
	var told [2]string
	for i := range told {
		f := &ledgertest.Faults{Seed: 7, Conflict: .1, Unavailable: .1, Lost: .1, Applied: .1, Delay: .1, DelayUpTo: time.Nanosecond}
		l := f.Around(&orbit.MemoryLedger{})
		for k := range 1000 {
			_, err := l.Propose(bg, orbit.Proposal{ID: orbit.ProposalID{byte(k), byte(k >> 8)}, Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}})
			told[i] += fmt.Sprintln(err)
			_, err = l.Snapshot(bg)
			told[i] += fmt.Sprintln(err)
		}
		for fault, n := range f.Counts() {
			least, most := 70, 130
			if fault == ledgertest.None {
				least, most = 440, 560
			}
			assert.True(t, n > least && n < most, "%v came %d times in 1000", fault, n)
		}
	}
	assert.Equal(t, told[0], told[1])
}

// Reads fail, too, and delays end with their context.
func TestFaultyReads(t *testing.T) {
	l := (&ledgertest.Faults{Unavailable: 1}).Around(&orbit.MemoryLedger{})
	_, err := l.Snapshot(bg)
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	_, err = l.Changes(bg, 0)
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	_, err = l.Wait(bg, 0)
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	synctest.Test(t, func(t *testing.T) {
		l := (&ledgertest.Faults{Delay: 1, DelayUpTo: time.Hour}).Around(&orbit.MemoryLedger{})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		for range 10 {
			_, err := l.Propose(ctx, sets("k"))
			require.True(t, err == nil || errors.Is(err, orbit.ErrUnavailable))
		}
		require.LessOrEqual(t, time.Since(begin), time.Second)
		_, err := l.Snapshot(bg)
		require.NoError(t, err)
		require.Greater(t, time.Since(begin), time.Second)
	})
}

// An engine gets its work done, each capsule once, whatever goes wrong between it and the ledger.
func TestEngineOverFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &orbit.MemoryLedger{}
		recorder, err := ledgertest.NewRecorder(bg, memory)
		require.NoError(t, err)
		faults := &ledgertest.Faults{Seed: 3, Conflict: .1, Unavailable: .1, Lost: .1, Applied: .2, Delay: .1}
		do := []orbit.Commitment{}
		for i := range 10 {
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 10}}})
		}
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
		for i := range 100 {
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: spec})
		}
		_, err = recorder.Handle(memory).Propose(bg, orbit.Proposal{Do: do})
		require.NoError(t, err)
		engine := &orbit.Engine{Name: "services", Ledger: faults.Around(recorder.Handle(memory)), Navigator: &nav.Services{}}
		for range 200 {
			engine.Pass(bg)
		}
		s, err := memory.Snapshot(bg)
		require.NoError(t, err)
		require.NoError(t, s.Verify())
		require.Zero(t, s.PendingCount())
		h, err := recorder.History(bg)
		require.NoError(t, err)
		require.NoError(t, h.Check())
		require.Len(t, h.Changes, len(do)+100, "each capsule was placed once")
		require.NotZero(t, faults.Counts()[ledgertest.Applied])
	})
}
