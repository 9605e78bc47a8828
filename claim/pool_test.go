package claim_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// names returns s0, s1, ...
func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("s%d", i))
	}
	return out
}

// Requests in order of arrival are paired with slots in order of their listing.
func TestPairsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: store(&sim.StaleStore{Latency: ms}, names(5)...)}).run()
		var asked []<-chan claim.Result
		for range 7 {
			asked = append(asked, r.ask())
		}
		r.until(ms)
		for i, c := range asked[:5] {
			res := got(t, c)
			require.NoError(t, res.Err)
			assert.Equal(t, fmt.Sprintf("s%d", i), res.Slot.Name)
		}
		none(t, asked[5])
		assert.Equal(t, 2, r.Snapshot().QueueLen)
		r.Shutdown()
		for _, c := range asked[5:] {
			assert.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)
			none(t, c)
		}
		assert.Zero(t, r.Snapshot().QueueLen)
	})
}

// The counters: a request counts from Enqueue until its answer; a slot is ready, then reserved, then neither.
func TestSnapshotFollowsARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: store(&sim.StaleStore{Latency: 10 * ms}, names(2)...)})
		c := r.ask()
		assert.Equal(t, claim.Snapshot{QueueLen: 1}, r.Snapshot(), "before Run")
		r.run()
		assert.Equal(t, claim.Snapshot{IdleReady: 1, QueueLen: 1, ReservedCount: 1, InflightCAS: 1}, r.Snapshot(), "in flight")
		r.until(10*ms - ns)
		none(t, c)
		r.until(10 * ms)
		assert.NoError(t, got(t, c).Err)
		after := claim.Snapshot{IdleReady: 1, ReservedCount: 1, LastDispatchAt: time.Unix(0, r.start.Add(10*ms).UnixNano())}
		assert.Equal(t, after, r.Snapshot(), "answered")
		r.until(2010*ms - ns)
		assert.Equal(t, after, r.Snapshot(), "reserved for 2 s after the claim was answered")
		r.until(2010 * ms)
		after.ReservedCount = 0
		assert.Equal(t, after, r.Snapshot())
		assert.Equal(t, claim.Stats{Claimed: 1, Listings: 1}, r.Stats())
	})
}

// There are at most Inflight claims at a time, 128 by default, and no request is forgotten.
func TestInflightIsBounded(t *testing.T) {
	for _, bound := range []int{0, 3} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, &claim.Pool{Inflight: bound, Source: store(&sim.StaleStore{Latency: 10 * ms}, names(300)...)}).run()
			var asked []<-chan claim.Result
			for range 300 {
				asked = append(asked, r.ask())
			}
			want := bound
			if want == 0 {
				want = 128
			}
			rounds := (300 + want - 1) / want
			for k := range rounds {
				r.until(time.Duration(k)*10*ms + 5*ms)
				assert.Equal(t, min(want, 300-k*want), r.Snapshot().InflightCAS)
			}
			r.until(time.Duration(rounds) * 10 * ms)
			for i, c := range asked {
				assert.Equal(t, fmt.Sprintf("s%d", i), got(t, c).Slot.Name)
			}
		})
	}
}

// A full pool refuses requests and never writes to their channels. It accepts them again when there is room.
func TestEnqueueRefusesWhenFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &sim.StaleStore{Latency: ms}
		r := newRig(t, &claim.Pool{Queue: 2, Source: s}).run()
		a, b := r.ask(), r.ask()
		refused := make(chan claim.Result, 1)
		require.False(t, r.Enqueue(&claim.Request{Result: refused}))
		_, err := r.Claim(t.Context())
		require.ErrorIs(t, err, claim.ErrFull)
		assert.Equal(t, 2, r.Snapshot().QueueLen)
		s.Add("s0")
		r.NotifyIdle()
		r.until(ms)
		assert.NoError(t, got(t, a).Err)
		c := r.ask()
		r.Shutdown()
		assert.ErrorIs(t, got(t, b).Err, claim.ErrShutdown)
		assert.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)
		none(t, refused)
	})
}

// The default bound of the queue also holds in a pool that does not run yet.
func TestQueueBoundIs4096(t *testing.T) {
	p := &claim.Pool{Source: &sim.StaleStore{}}
	c := make(chan claim.Result, 5000)
	n := 0
	for n < 5000 && p.Enqueue(&claim.Request{Result: c}) {
		n++
	}
	assert.Equal(t, 4096, n)
	p.Shutdown()
	assert.Len(t, c, 4096)
}

// Requests that end before Run leave the queue, so a pool that is run late does not fill up with them.
func TestTheDeadMakeRoomBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &claim.Pool{Queue: 3, Source: store(&sim.StaleStore{}, "s0")}
		c := make(chan claim.Result, 100)
		for range 30 {
			require.True(t, p.Enqueue(&claim.Request{Deadline: time.Now().Add(ms), Result: c}))
			time.Sleep(ms)
			synctest.Wait()
			require.ErrorIs(t, (<-c).Err, context.DeadlineExceeded)
		}
		assert.Equal(t, claim.Snapshot{}, p.Snapshot())
		p.Shutdown()
	})
}

// A second Run is an error, and so is an invalid field. Run after Shutdown returns at once.
func TestRunOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Name: "web", Source: &sim.StaleStore{}}).run()
		err := r.Run(t.Context())
		require.ErrorIs(t, err, claim.ErrRan)
		var typed *claim.Error
		require.ErrorAs(t, err, &typed)
		assert.Equal(t, "web", typed.Pool)
		assert.Equal(t, `claim: pool "web": pool has been run already`, err.Error())
		r.Shutdown()
		require.ErrorIs(t, r.Run(t.Context()), claim.ErrRan)

		p := &claim.Pool{Source: &sim.StaleStore{}}
		p.Shutdown()
		require.NoError(t, p.Run(t.Context()))

		err = (&claim.Pool{Queue: -1, Grace: -1}).Run(t.Context())
		require.ErrorIs(t, err, orbit.ErrInvalid)
		assert.ErrorContains(t, err, "Source is nil")
		assert.ErrorContains(t, err, "Queue is negative")
		assert.ErrorContains(t, err, "Grace is negative")
	})
}

// The end of Run's context is a Shutdown.
func TestRunEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &claim.Pool{Source: &sim.StaleStore{}}
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		c := make(chan claim.Result, 1)
		require.True(t, p.Enqueue(&claim.Request{Result: c}))
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.ErrorIs(t, (<-c).Err, claim.ErrShutdown)
		assert.False(t, p.Enqueue(&claim.Request{Result: c}))
		_, err := p.Claim(t.Context())
		assert.ErrorIs(t, err, claim.ErrShutdown)
		p.Shutdown()
		p.NotifyIdle()
	})
}

// Shutdown waits for claims in flight, whose requests are answered with the outcome. For a conflict the answer is
// ErrShutdown.
func TestShutdownWaitsForFlights(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{Latency: 1900 * ms}, "good", "bad")
		s.Inject = func(a claim.Attempt) error {
			if a.Slot.Name == "bad" {
				return orbit.ErrConflict
			}
			return nil
		}
		r := newRig(t, &claim.Pool{Source: s}).run()
		a, b, c := r.ask(), r.ask(), r.ask()
		synctest.Wait()
		r.Shutdown()
		assert.Equal(t, 1900*ms, time.Since(r.start))
		assert.NoError(t, got(t, a).Err)
		assert.ErrorIs(t, got(t, b).Err, claim.ErrShutdown)
		assert.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)
		assert.Zero(t, r.Snapshot().InflightCAS)
	})
}

// After Grace Shutdown answers the requests of claims in flight as well, and the slots that they claim are given back.
func TestShutdownDoesNotWaitForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		release := make(chan struct{})
		s.Lose = func(claim.Attempt) error { <-release; return nil } // committed, although its context has ended
		r := newRig(t, &claim.Pool{Source: s}).run()
		c := r.ask()
		synctest.Wait()
		time.AfterFunc(3*time.Second, func() { close(release) })
		r.Shutdown()
		assert.Equal(t, 3010*ms, time.Since(r.start), "2 s of grace, until the source answered, asked again, and undone")
		res := got(t, c)
		require.ErrorIs(t, res.Err, claim.ErrShutdown)
		assert.Zero(t, s.Held())
		none(t, c)
	})
}

// A source that blocks for good delays Shutdown by 4 s at most, twice its Grace.
func TestShutdownLeavesTheBlocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		release := make(chan struct{})
		s.Inject = func(claim.Attempt) error { <-release; return errors.New("too late") }
		r := newRig(t, &claim.Pool{Source: s}).run()
		c := r.ask()
		synctest.Wait()
		r.Shutdown()
		assert.Equal(t, 4*time.Second, time.Since(r.start))
		require.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)
		close(release)
	})
}

// Shutdown does not deadlock when the pool's own hook or its source calls it.
func TestShutdownFromInside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &claim.Pool{Source: &sim.StaleStore{}}
		p.ScaleUp = func(context.Context, claim.Shortage) error { p.Shutdown(); return nil }
		r := newRig(t, p).run()
		c := r.ask()
		<-r.ended
		assert.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)

		s := store(&sim.StaleStore{}, "s0")
		q := &claim.Pool{Source: s}
		s.Inject = func(claim.Attempt) error { q.Shutdown(); return nil }
		r = newRig(t, q).run()
		c = r.ask()
		<-r.ended
		assert.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)
		time.Sleep(10 * ms)
		synctest.Wait()
		assert.Zero(t, s.Held(), "what was claimed after all is given back")
	})
}

// Snapshot allocates nothing, and neither does Best among many pools.
func TestSnapshotAllocatesNothing(t *testing.T) {
	p := &claim.Pool{Source: &sim.StaleStore{}}
	pools := claim.Pools{p, {}, {}}
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = p.Snapshot() }))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = pools.Best() }))
}

// A source that panics, or exits its goroutine, costs one request. The slot is reported, because it may be claimed.
func TestSourceIsContained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "panics", "exits", "fails", "good")
		s.Inject = func(a claim.Attempt) error {
			switch a.Slot.Name {
			case "panics":
				panic("ouch")
			case "exits":
				runtime.Goexit()
			case "fails":
				return errors.New("forbidden")
			}
			return nil
		}
		r := newRig(t, &claim.Pool{Source: s}).run()
		a, b, c, d := r.ask(), r.ask(), r.ask(), r.ask()
		synctest.Wait()
		assert.ErrorContains(t, got(t, a).Err, "ouch")
		assert.ErrorContains(t, got(t, b).Err, "exited its goroutine")
		err := got(t, c).Err
		assert.ErrorContains(t, err, "forbidden")
		require.ErrorIs(t, err, claim.ErrSource)
		assert.NoError(t, got(t, d).Err)
		assert.Equal(t, claim.Snapshot{IdleReady: 1, ReservedCount: 3, LastDispatchAt: r.Snapshot().LastDispatchAt}, r.Snapshot(),
			"the slot that failed is free at once and is listed again; those that crashed are set aside")
		require.Len(t, r.reported(), 2)
		assert.ErrorIs(t, r.reported()[0], claim.ErrLeak)
	})
}

// Listings that panic, exit or fail are reported, and the pool goes on with the slots that it knows.
func TestListingsAreContained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.say = func() (claim.Listing, error) {
			return claim.Listing{Slots: []claim.Slot{{Name: "a"}, {Name: "b"}}}, nil
		}
		r := newRig(t, &claim.Pool{Source: l}).run()
		for _, bad := range []func() (claim.Listing, error){
			func() (claim.Listing, error) { panic("ouch") },
			func() (claim.Listing, error) { runtime.Goexit(); return claim.Listing{}, nil },
			func() (claim.Listing, error) { return claim.Listing{}, errors.New("unreachable") },
		} {
			l.set(bad)
			r.NotifyIdle()
			synctest.Wait()
			assert.Equal(t, 2, r.Snapshot().IdleReady)
		}
		assert.Len(t, r.reported(), 3)
		require.ErrorIs(t, r.reported()[2], claim.ErrSource)
		c := r.ask()
		synctest.Wait()
		assert.NoError(t, got(t, c).Err)
		r.until(10*time.Second - ns)
		looks := len(r.seen())
		r.until(10 * time.Second)
		assert.Len(t, r.seen(), looks+1, "a listing that failed is asked for again, though no request waits")
	})
}
