package claim_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// filled returns the buckets that are not empty.
func filled(l claim.Latency) map[time.Duration]uint64 {
	out := map[time.Duration]uint64{}
	for _, b := range l.Buckets {
		if b.Count > 0 {
			out[b.AtMost] = b.Count
		}
	}
	return out
}

// The latency of a dispatch is counted to the nanosecond, from EnqueuedAt to the answer, for slots that were handed
// out.
func TestDispatchLatency(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{Latency: 10 * ms}, "a", "b", "conflict")
		s.Inject = func(a claim.Attempt) error {
			if a.Slot.Name == "conflict" {
				return orbit.ErrConflict
			}
			return nil
		}
		labels := claim.Labels{Namespace: "sandboxes", Pool: "overwritten", Team: "web", User: "ann", Env: "staging"}
		r := newRig(t, &claim.Pool{Name: "small", Labels: labels, Source: s}).run()
		labels.Pool = "small"
		assert.Equal(t, labels, r.Status().Labels)
		now := time.Now()
		c := make(chan claim.Result, 9)
		require.True(t, r.Enqueue(&claim.Request{Result: c}))
		require.True(t, r.Enqueue(&claim.Request{Result: c, EnqueuedAt: now.Add(-ns)}))
		require.True(t, r.Enqueue(&claim.Request{Result: c, Deadline: now.Add(12 * ms)})) // its claim is a conflict, and its deadline passes
		assert.Equal(t, 3, r.Status().PendingRequests)
		r.until(10*ms - ns)
		assert.Equal(t, 3, r.Status().PendingRequests)
		none := r.Status().Dispatch
		assert.Zero(t, none.Count())
		r.until(10 * ms)
		assert.Equal(t, 1, r.Status().PendingRequests)
		r.until(20 * ms)
		assert.Zero(t, r.Status().PendingRequests)
		two := r.Status().Dispatch
		assert.Equal(t, map[time.Duration]uint64{10 * ms: 1, 25 * ms: 1}, filled(two), "10 ms is at most 10 ms")
		assert.Equal(t, 20*ms+ns, two.Sum)
		assert.Equal(t, 10*ms+ns, two.Max)

		far, never := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		s.Add("d", "e")
		r.NotifyIdle()
		require.True(t, r.Enqueue(&claim.Request{Result: c, EnqueuedAt: far}))
		require.True(t, r.Enqueue(&claim.Request{Result: c, EnqueuedAt: never}))
		r.until(50 * ms)
		four := r.Status().Dispatch
		assert.Equal(t, map[time.Duration]uint64{100 * time.Microsecond: 1, 10 * ms: 1, 25 * ms: 1, math.MaxInt64: 1}, filled(four))
		assert.Equal(t, time.Hour+10*ms, four.Max)
		assert.Equal(t, time.Hour+30*ms+ns, four.Sum, "one that was asked for in the future took no time")
		assert.Equal(t, uint64(4), four.Count())
		assert.Equal(t, r.Stats().Claimed, four.Count())
	})
}

// Every pool has the same buckets in the same order, however many pools and requests there are.
func TestLatencyIsBounded(t *testing.T) {
	l := (&claim.Pool{}).Status().Dispatch
	for i, b := range l.Buckets[1:] {
		assert.Greater(t, b.AtMost, l.Buckets[i].AtMost)
	}
	assert.Equal(t, time.Duration(math.MaxInt64), l.Buckets[len(l.Buckets)-1].AtMost)
}

// notes records the calls of OnStatus.
type notes struct {
	mu    sync.Mutex
	start time.Time
	all   []note
	// then, if set, is called before a call returns.
	then func(ctx context.Context, call int) error
}

type note struct {
	at      time.Duration
	pending int
}

func (n *notes) hook(ctx context.Context, s claim.Status) error {
	n.mu.Lock()
	n.all = append(n.all, note{time.Since(n.start), s.PendingRequests})
	call := len(n.all)
	n.mu.Unlock()
	if n.then != nil {
		return n.then(ctx, call)
	}
	return nil
}

func (n *notes) read() []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]note(nil), n.all...)
}

// OnStatus is called when Run begins, when the number of pending requests has changed, at most once a second, and when
// all requests have been answered.
func TestStatusIsMirrored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &notes{start: time.Now()}
		s := &sim.StaleStore{Latency: 10 * ms}
		r := newRig(t, &claim.Pool{Source: s, OnStatus: n.hook}).run()
		want := []note{{0, 0}}
		assert.Equal(t, want, n.read(), "what an earlier run has left there is overwritten")
		r.until(5 * sec)
		assert.Equal(t, want, n.read(), "no change")
		c := r.ask()
		synctest.Wait()
		want = append(want, note{5 * sec, 1})
		assert.Equal(t, want, n.read(), "at once")
		r.until(5*sec + ms)
		r.ask()
		r.ask()
		r.until(6*sec - ns)
		assert.Equal(t, want, n.read())
		r.until(6 * sec)
		want = append(want, note{6 * sec, 3})
		assert.Equal(t, want, n.read(), "the two together, a second later")
		r.until(10 * sec)
		s.Add("a")
		r.NotifyIdle()
		r.until(10*sec + 10*ms)
		require.NoError(t, got(t, c).Err)
		want = append(want, note{10*sec + 10*ms, 2})
		assert.Equal(t, want, n.read())
		_, d := r.request(t.Context(), 100*ms) // enqueued and ended within the second
		r.until(20 * sec)
		require.ErrorIs(t, got(t, d).Err, claim.ErrEnded)
		assert.Equal(t, want, n.read())
		r.Shutdown()
		want = append(want, note{20 * sec, 0})
		assert.Equal(t, want, n.read(), "and the last word when everybody has been answered")
	})
}

// An OnStatus that panics, exits or fails is reported and called again. One that blocks is cancelled and delays nothing
// else.
func TestStatusHookIsContained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &notes{start: time.Now()}
		n.then = func(ctx context.Context, call int) error {
			switch call {
			case 1:
				panic("ouch")
			case 2:
				runtime.Goexit()
			case 3:
				return errors.New("read-only")
			case 5:
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		s := &sim.StaleStore{}
		r := newRig(t, &claim.Pool{Source: s, OnStatus: n.hook, StatusEvery: 2 * sec}).run()
		r.until(10 * sec)
		want := []note{{0, 0}, {2 * sec, 0}, {4 * sec, 0}, {6 * sec, 0}}
		assert.Equal(t, want, n.read())
		for i, what := range []string{"ouch", "exited", "read-only"} {
			require.ErrorIs(t, r.reported()[i], claim.ErrHook)
			assert.ErrorContains(t, r.reported()[i], what)
		}
		c := r.ask()
		r.until(11 * sec)
		s.Add("a")
		r.NotifyIdle()
		synctest.Wait()
		require.NoError(t, got(t, c).Err, "the hook blocks, the pool does not")
		r.until(30 * sec)
		want = append(want, note{10 * sec, 1}, note{22 * sec, 0})
		assert.Equal(t, want, n.read(), "cut off after Timeout")
		require.Len(t, r.reported(), 4)
		require.ErrorIs(t, r.reported()[3], context.DeadlineExceeded)
	})
}

// An OnStatus that ignores its context delays Shutdown by Grace, and its calls never overlap.
func TestStatusHookThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, release := &notes{start: time.Now()}, make(chan struct{})
		n.then = func(context.Context, int) error { <-release; return nil }
		r := newRig(t, &claim.Pool{Source: &sim.StaleStore{}, OnStatus: n.hook}).run()
		c := r.ask()
		r.until(5 * sec)
		assert.Len(t, n.read(), 1)
		r.Shutdown()
		assert.Equal(t, 7*sec, time.Since(r.start))
		require.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)
		close(release)
		synctest.Wait()
		assert.Equal(t, []note{{0, 0}}, n.read(), "0 is what it was told last")
	})
}
