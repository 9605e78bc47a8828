package claim_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sim"
)

// A request whose claim has conflicted returns to the head of the queue: it gets the next slot before later requests.
func TestConflictGoesToTheHead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{Latency: 10 * ms}, "s0", "s1")
		s.Inject = func(a claim.Attempt) error {
			if a.Slot.Name == "s0" || a.Slot.Name == "s1" {
				return orbit.ErrConflict
			}
			return nil
		}
		r := newRig(t, &claim.Pool{Source: slow{s, ms}}).run()
		r.until(ms)
		a, b, c := r.ask(), r.ask(), r.ask()
		r.until(3 * ms)
		s.Add("s2", "s3", "s4")
		r.until(20 * ms) // a and b have had conflicts, and a listing has shown the new slots
		for i, asked := range []<-chan claim.Result{a, b, c} {
			assert.Equal(t, fmt.Sprintf("s%d", i+2), got(t, asked).Slot.Name)
		}
		assert.Equal(t, uint64(2), r.Stats().Conflicts)
		assert.Equal(t, 3, s.Held())
	})
}

// Requests return to the queue in the order of their arrival, even if their conflicts come in another order.
func TestConflictsKeepTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, names(8)...)
		s.Inject = func(a claim.Attempt) error { // the first claim is answered last
			var n int
			if fmt.Sscanf(a.Slot.Name, "s%d", &n); n < 4 {
				time.Sleep(time.Duration(4-n) * ms)
				return orbit.ErrConflict
			}
			if n < 8 {
				return orbit.ErrConflict
			}
			return nil
		}
		r := newRig(t, &claim.Pool{Source: s, Inflight: 4}).run()
		var asked []<-chan claim.Result
		for range 6 {
			asked = append(asked, r.ask())
		}
		r.until(10 * ms)
		s.Add("s8", "s9", "s10", "s11", "s12", "s13")
		r.NotifyIdle()
		synctest.Wait()
		for i, c := range asked {
			assert.Equal(t, fmt.Sprintf("s%d", i+8), got(t, c).Slot.Name)
		}
	})
}

// After a conflict a slot is reserved for as long as ReserveFor says, however often listings show it as idle. Then it is claimed again
// at once, without a poll.
func TestConflictSetsTheSlotAside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		first := true
		s.Inject = func(claim.Attempt) error {
			if first {
				first = false
				return orbit.ErrConflict
			}
			return nil
		}
		r := newRig(t, &claim.Pool{Source: s}).run()
		c := r.ask()
		for d := range 19 {
			r.until(time.Duration(d) * 100 * ms)
			r.NotifyIdle()
			synctest.Wait()
			assert.Equal(t, 1, r.Snapshot().ReservedCount)
			assert.Equal(t, 0, r.Snapshot().IdleReady)
		}
		r.until(2*time.Second - ns)
		assert.Len(t, r.tried(), 1)
		none(t, c)
		r.until(2 * time.Second)
		require.NoError(t, got(t, c).Err)
		assert.Equal(t, 2*time.Second, r.tried()[1].at)
	})
}

// An error that is no conflict ends the reservation at once: the request gets the error, and the next request gets the slot.
func TestHardErrorFreesTheSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{Latency: 10 * ms}, "s0")
		forbidden := errors.New("forbidden")
		first := true
		s.Inject = func(claim.Attempt) error {
			if first {
				first = false
				return forbidden
			}
			return nil
		}
		r := newRig(t, &claim.Pool{Source: s}).run()
		a, b := r.ask(), r.ask()
		r.until(5 * ms)
		err := got(t, a).Err
		require.ErrorIs(t, err, forbidden)
		require.ErrorIs(t, err, claim.ErrSource)
		var typed *claim.Error
		require.ErrorAs(t, err, &typed)
		assert.Equal(t, "s0", typed.Slot.Name)
		r.until(15 * ms)
		require.NoError(t, got(t, b).Err)
		assert.Equal(t, claim.Stats{Claimed: 1, Failed: 1, Listings: 3}, r.Stats(), "listings: at first, because of b, and because of the error")
	})
}

// A pool without reservations believes stale listings, and its claims conflict until a listing has caught up. With reservations no
// claim conflicts. The listings are 50, 200 and 300 ms stale. The counts are exact, because time in a bubble is virtual.
func TestConflictsOfAStaleListing(t *testing.T) {
	scale.Long(t)
	for _, lag := range []time.Duration{50 * ms, 200 * ms, 300 * ms} {
		counted := map[bool]sim.StoreTally{}
		for _, reserve := range []bool{true, false} {
			bubble(t, func(t *testing.T) { counted[reserve] = staleBurst(t, lag, reserve) })
		}
		with, without := counted[true], counted[false]
		t.Logf("listing %v stale: %d claims granted; conflicts %d with reservations, %d without", lag, with.Granted, with.Conflicts, without.Conflicts)
		assert.Zero(t, with.Conflicts)
		assert.Greater(t, without.Conflicts, 50)
		assert.Equal(t, 300, with.Granted)
		assert.Equal(t, 300, without.Granted)
	}
}

// staleBurst serves 300 requests with 100 slots, and returns what the store has counted. Each request uses its slot for 2.5 s, gives it
// back and notifies the pool.
func staleBurst(t *testing.T, lag time.Duration, reserve bool) sim.StoreTally {
	s := store(&sim.StaleStore{Lag: lag, Latency: 5 * ms}, names(100)...)
	p := &claim.Pool{Source: s, NotifyDelay: lag}
	if !reserve {
		p.ReserveFor = -1
	}
	r := newRig(t, p).run()
	served := make(chan struct{}, 300)
	for i := range 300 {
		go func() {
			time.Sleep(time.Duration(i) * 2 * ms)
			slot, err := r.Claim(soon(t))
			assert.NoError(t, err)
			time.Sleep(2500 * ms)
			assert.NoError(t, s.Return(t.Context(), slot))
			r.NotifyIdle()
			served <- struct{}{}
		}()
	}
	for range 300 {
		<-served
	}
	assert.Zero(t, s.Doubled())
	assert.Zero(t, s.Held())
	return s.Tally()
}

// QueueLen is 1 at every moment from the Enqueue of the only request to its answer, even while it returns after a conflict.
func TestQueueLenIsStable(t *testing.T) {
	s := store(&sim.StaleStore{}, names(400)...)
	var conflicts atomic.Int64
	s.Inject = func(claim.Attempt) error {
		if conflicts.Add(1) < 400 {
			return errConflict
		}
		return nil
	}
	p := started(t, &claim.Pool{Source: s})
	answer := make(chan claim.Result, 1)
	require.True(t, p.Enqueue(&claim.Request{Result: answer}))
	for p.Snapshot().QueueLen == 1 {
		runtime.Gosched()
	}
	require.Zero(t, p.Snapshot().QueueLen)
	require.Equal(t, int64(400), conflicts.Load(), "QueueLen was 0 before the answer")
	require.NoError(t, (<-answer).Err)
	assert.Zero(t, p.Snapshot().QueueLen)
	assert.Equal(t, uint64(399), p.Stats().Conflicts)
}

// A request that has ended while its claim was in flight does not return to the queue when the claim conflicts. So the source is not
// listed for it again, and ScaleUp orders no slots.
func TestTheDeadDoNotComeBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{Latency: 100 * ms}, "s0")
		s.Inject = func(claim.Attempt) error { return errConflict }
		told := &told{}
		r := newRig(t, &claim.Pool{Source: s, ScaleUp: told.hook, ReserveFor: time.Hour}).run()
		_, c := r.request(t.Context(), 30*ms)
		r.until(100 * sec)
		require.ErrorIs(t, got(t, c).Err, claim.ErrEnded)
		assert.Equal(t, []time.Duration{0}, r.seen())
		assert.Empty(t, told.deficits())
	})
}
