package claim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// The four stress tests. With the tag stress they run at full size and more, otherwise at a small size.

func TestExtremeScale(t *testing.T) { extremeScale(t, 200, 50) }
func TestStorm(t *testing.T)        { bubble(t, func(t *testing.T) { storm(t, 100*ms) }) }
func TestConflictInjectionUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) { conflictInjection(t, 60) })
}
func TestConcurrentEnqueueAndShutdown(t *testing.T) {
	for range 5 {
		enqueueAndShutdown(t, 50)
	}
}

// started runs a pool until the test ends.
func started(t *testing.T, p *claim.Pool) *claim.Pool {
	done := make(chan error, 1)
	go func() { done <- p.Run(context.Background()) }()
	t.Cleanup(func() {
		p.Shutdown()
		assert.NoError(t, <-done)
	})
	return p
}

// extremeScale has many concurrent requests for fewer slots, on a ledger and on a stale store. Each slot is handed out
// exactly once, and every request ends.
func extremeScale(t *testing.T, requests, slots int) {
	inBubble := func(name string, f func(*testing.T)) { t.Run(name, func(t *testing.T) { bubble(t, f) }) }
	inBubble("ledger", func(t *testing.T) {
		src := &claim.LedgerSource{}
		require.NoError(t, src.Join(t.Context(), nodes(slots)...))
		crowd(t, src, requests, slots)
		state := snapshot(t, src)
		for n := range state.Nodes() {
			require.Equal(t, 1, n.Capsules)
		}
	})
	inBubble("stale store", func(t *testing.T) {
		s := store(&sim.StaleStore{Lag: 200 * ms, Latency: ms}, names(slots)...)
		crowd(t, s, requests, slots)
		require.Zero(t, s.Doubled())
		require.Equal(t, slots, s.Held())
		require.Zero(t, s.Tally().Conflicts, "reservations outlast the lag")
	})
}

// crowd asks for slots from one goroutine for each request, in a bubble.
func crowd(t *testing.T, src claim.Source, requests, slots int) {
	p := &claim.Pool{Source: src, Queue: requests, NotifyDelay: 200 * ms}
	go func() { assert.NoError(t, p.Run(context.Background())) }()
	var mu sync.Mutex
	users := map[string]int{}
	var ended, served atomic.Int64
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			slot, err := p.Claim(ctx)
			ended.Add(1)
			if err != nil {
				assert.ErrorIs(t, err, claim.ErrShutdown)
				return
			}
			served.Add(1)
			mu.Lock()
			defer mu.Unlock()
			users[slot.Name]++
		})
	}
	time.Sleep(10 * time.Second)
	require.Equal(t, int64(slots), served.Load())
	p.NotifyIdle()
	time.Sleep(time.Second)
	synctest.Wait()
	require.Equal(t, int64(slots), served.Load(), "no other request is served")
	p.Shutdown()
	all.Wait()
	assert.Equal(t, int64(requests), ended.Load())
	require.Len(t, users, slots)
	for name, n := range users {
		require.Equal(t, 1, n, name)
	}
	assert.Zero(t, p.Snapshot().QueueLen)
	assert.Zero(t, p.Snapshot().InflightCAS)
}

// conflictInjection makes three of ten claims conflict the first time. All slots are claimed all the same.
func conflictInjection(t *testing.T, slots int) {
	var injected atomic.Int64
	var tried sync.Map
	s := store(&sim.StaleStore{}, names(slots)...)
	s.Inject = func(a claim.Attempt) error {
		var n int
		fmt.Sscanf(a.Slot.Name, "s%d", &n)
		if _, again := tried.LoadOrStore(a.Slot.Name, true); !again && n%10 < 3 {
			injected.Add(1)
			return errConflict
		}
		return nil
	}
	p := started(t, &claim.Pool{Source: s, ReserveFor: 100 * ms})
	var all sync.WaitGroup
	for range slots {
		all.Go(func() {
			_, err := p.Claim(soon(t))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Equal(t, slots, s.Held())
	assert.Zero(t, s.Doubled())
	assert.Equal(t, int64(slots/10*3+min(3, slots%10)), injected.Load())
	assert.Equal(t, uint64(injected.Load()), p.Stats().Conflicts)
}

// storm sends requests and notifications as fast as possible, with slots that come and go and a source that sometimes
// fails. Shutdown returns within 5 s of the bubble's time, and every request has an answer.
func storm(t *testing.T, d time.Duration) {
	s := store(&sim.StaleStore{Lag: 20 * ms, Latency: ms}, names(50)...)
	s.Inject = func(claim.Attempt) error {
		switch rand.IntN(20) {
		case 0:
			return errConflict
		case 1:
			return orbit.ErrUnknown
		case 2:
			return errRefused
		}
		return nil
	}
	p := &claim.Pool{Source: s, NotifyDelay: 20 * ms, ReserveFor: 60 * ms}
	p.ScaleUp = func(context.Context, claim.Shortage) error { time.Sleep(ms); return errRefused }
	go func() { assert.NoError(t, p.Run(context.Background())) }()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var taken, answered, held atomic.Int64
	var all, readers sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				c := make(chan claim.Result, 1)
				req := &claim.Request{Result: c, Deadline: time.Now().Add(time.Duration(rand.IntN(50)) * ms)}
				p.NotifyIdle()
				if !p.Enqueue(req) {
					time.Sleep(100 * us)
					continue
				}
				taken.Add(1)
				readers.Go(func() {
					if res := <-c; res.Err == nil {
						held.Add(1)
						if rand.IntN(4) > 0 {
							assert.NoError(t, s.Return(context.Background(), res.Slot))
							held.Add(-1)
						}
					}
					answered.Add(1)
				})
			}
		})
	}
	<-ctx.Done()
	start := time.Now()
	p.Shutdown()
	assert.Less(t, time.Since(start), 5*time.Second)
	all.Wait()
	readers.Wait()
	assert.Equal(t, taken.Load(), answered.Load())
	assert.Zero(t, s.Doubled())
	assert.Equal(t, held.Load(), int64(s.Held()))
	assert.Zero(t, p.Snapshot().QueueLen)
	assert.Zero(t, p.Snapshot().InflightCAS)
}

// enqueueAndShutdown calls Enqueue and Shutdown at the same time. Neither hangs, and every accepted request is
// answered.
func enqueueAndShutdown(t *testing.T, callers int) {
	p := &claim.Pool{Source: store(&sim.StaleStore{}, names(10)...)}
	go func() { assert.NoError(t, p.Run(context.Background())) }()
	var taken atomic.Int64
	answers := make(chan claim.Result, 100*callers)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range 100 {
				if p.Enqueue(&claim.Request{Result: answers}) {
					taken.Add(1)
				}
			}
		})
	}
	for range 3 {
		all.Go(func() {
			time.Sleep(time.Duration(rand.IntN(500)) * us)
			p.Shutdown()
		})
	}
	all.Wait()
	assert.Len(t, answers, int(taken.Load()))
	assert.Zero(t, p.Snapshot().QueueLen)
	assert.False(t, p.Enqueue(&claim.Request{Result: answers}))
}
