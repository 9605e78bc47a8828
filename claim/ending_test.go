package claim_test

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
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// A request whose deadline passes while it waits is answered at that nanosecond, and no longer counts.
func TestDeadlineInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Name: "web", Source: &sim.StaleStore{}}).run()
		_, c := r.request(context.Background(), 70*ms)
		other := r.ask()
		r.until(70*ms - ns)
		none(t, c)
		assert.Equal(t, 2, r.Snapshot().QueueLen)
		r.until(70 * ms)
		err := got(t, c).Err
		require.ErrorIs(t, err, claim.ErrEnded)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, `claim: pool "web": request ended after 70ms and 0 conflicts: context deadline exceeded`, err.Error())
		assert.Equal(t, 1, r.Snapshot().QueueLen)
		none(t, other)
	})
}

// The same holds for a context that is cancelled, whose cause the error wraps.
func TestCancelInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: &sim.StaleStore{}}).run()
		ctx, cancel := context.WithCancelCause(t.Context())
		_, c := r.request(ctx, time.Hour)
		r.until(ms)
		cause := errors.New("the user went home")
		cancel(cause)
		synctest.Wait()
		require.ErrorIs(t, got(t, c).Err, cause)
		assert.Equal(t, claim.Snapshot{}, r.Snapshot())
		assert.Equal(t, uint64(1), r.Stats().Expired)
	})
}

// A request that has ended before Enqueue is accepted, answered, and takes no slot.
func TestDeadOnArrival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: store(&sim.StaleStore{}, "s0")}).run()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, a := r.request(ctx, 0)
		_, b := r.request(context.Background(), -ns)
		exact := make(chan claim.Result, 1)
		require.True(t, r.Enqueue(&claim.Request{Deadline: time.Now(), Result: exact}))
		_, now := r.request(context.Background(), 1)
		synctest.Wait()
		assert.ErrorIs(t, got(t, exact).Err, context.DeadlineExceeded, "at this very instant already")
		assert.ErrorIs(t, got(t, a).Err, context.Canceled)
		assert.ErrorIs(t, got(t, b).Err, context.DeadlineExceeded)
		assert.NoError(t, got(t, now).Err, "one nanosecond is enough for a claim that takes no time")
		assert.Len(t, r.tried(), 1)
	})
}

// Requests that have ended do not block the queue: the next one gets the slot.
func TestTheDeadLeaveTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &sim.StaleStore{}
		r := newRig(t, &claim.Pool{Source: s}).run()
		ctx, cancel := context.WithCancel(t.Context())
		var dead []<-chan claim.Result
		for range 10 {
			_, c := r.request(ctx, 0)
			dead = append(dead, c)
		}
		alive := r.ask()
		synctest.Wait() // a listing under way could show the slot too early
		s.Add("s0")
		cancel() // the pool has no time to notice
		r.NotifyIdle()
		synctest.Wait()
		for _, c := range dead {
			assert.ErrorIs(t, got(t, c).Err, claim.ErrEnded)
			none(t, c)
		}
		assert.NoError(t, got(t, alive).Err)
		assert.Equal(t, 1, s.Tally().Claims)
	})
}

// If a claim is committed while its request ends, the request is answered at once, and the slot is given back and
// claimed by the next request.
func TestRequestEndsInFlight(t *testing.T) {
	for _, how := range []string{"deadline", "context"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := store(&sim.StaleStore{Latency: 100 * ms}, "s0")
				r := newRig(t, &claim.Pool{Source: s}).run()
				ctx, deadline := t.Context(), 30*ms
				if how == "context" {
					limited, cancel := context.WithTimeout(ctx, 30*ms)
					defer cancel()
					ctx, deadline = limited, 0
				}
				_, c := r.request(ctx, deadline)
				next := r.ask()
				r.until(30 * ms)
				require.ErrorIs(t, got(t, c).Err, claim.ErrEnded)
				assert.Equal(t, 1, r.Snapshot().InflightCAS, "the claim is not cut off")
				r.until(100*ms - ns)
				assert.Equal(t, 1, s.Held())
				r.until(150 * ms)
				assert.Zero(t, s.Held(), "given back")
				assert.Equal(t, uint64(1), r.Stats().Undone)
				r.until(250*ms - ns)
				none(t, next)
				r.until(250 * ms)
				assert.Equal(t, "s0", got(t, next).Slot.Name, "its reservation has ended with it")
				none(t, c)
				assert.Zero(t, s.Doubled())
			})
		})
	}
}

// The context of Claim may end at any nanosecond: the slot is either returned or idle again: never both, never
// neither.
func TestClaimNeverLosesASlot(t *testing.T) {
	for d := 1 * ms; d <= 12*ms; d += ms / 4 {
		for _, off := range []time.Duration{-ns, 0, ns} {
			bubble(t, func(t *testing.T) {
				s := store(&sim.StaleStore{Latency: 10 * ms}, "s0")
				r := newRig(t, &claim.Pool{Source: s}).run()
				ctx, cancel := context.WithTimeout(t.Context(), d+off)
				defer cancel()
				slot, err := r.Claim(ctx)
				took := time.Since(r.start)
				time.Sleep(time.Minute)
				if err != nil {
					require.ErrorIs(t, err, claim.ErrEnded)
					require.Equal(t, d+off, took, "promptly")
					require.Zero(t, s.Held())
					require.Equal(t, 1, r.Snapshot().IdleReady)
				} else {
					require.Equal(t, "s0", slot.Name)
					require.Equal(t, 10*ms, took)
					require.Equal(t, 1, s.Held())
				}
			})
		}
	}
}

// A slot that cannot be given back at first is given back later. If it never can be, it is reported.
func TestUndoIsTriedAgain(t *testing.T) {
	for _, fails := range []int{3, 100} {
		bubble(t, func(t *testing.T) {
			s := store(&sim.StaleStore{Latency: 10 * ms}, "s0")
			tries := 0
			r := newRig(t, &claim.Pool{Source: unreturning{s, func() error {
				if tries++; tries <= fails {
					if tries == 2 {
						panic("ouch")
					}
					return errors.New("not now")
				}
				return nil
			}}}).run()
			_, c := r.request(context.Background(), 5*ms)
			r.until(time.Minute)
			require.ErrorIs(t, got(t, c).Err, claim.ErrEnded)
			if fails == 3 {
				assert.Zero(t, s.Held())
				assert.Equal(t, 4, tries)
				assert.Empty(t, r.reported())
				return
			}
			assert.Equal(t, 10, tries)
			require.Len(t, r.reported(), 1)
			require.ErrorIs(t, r.reported()[0], claim.ErrLeak)
			assert.Equal(t, `claim: slot not given back: slot "s0" (uid 1): not now`, r.reported()[0].Error())
			assert.Zero(t, r.Snapshot().ReservedCount)
			assert.Zero(t, r.Snapshot().InflightCAS)
		})
	}
}

type unreturning struct {
	*sim.StaleStore
	fail func() error
}

func (u unreturning) Return(ctx context.Context, slot claim.Slot) error {
	if err := u.fail(); err != nil {
		return err
	}
	return u.StaleStore.Return(ctx, slot)
}

// A claim with an unknown outcome is repeated as the same attempt until the outcome is known: after 10 ms, 20 ms, 40 ms
// and so on. The caller gets the slot, and there is no conflict.
func TestUnknownIsAskedAgain(t *testing.T) {
	for _, committed := range []bool{true, false} {
		for _, first := range []error{orbit.ErrUnknown, context.DeadlineExceeded, fmt.Errorf("%w and %w", orbit.ErrConflict, orbit.ErrUnknown)} {
			bubble(t, func(t *testing.T) {
				s := store(&sim.StaleStore{}, "s0", "s1")
				tries := 0
				lose := func(claim.Attempt) error {
					switch tries++; tries {
					case 1:
						return first
					case 2:
						return orbit.ErrUnknown
					case 3:
						return orbit.ErrUnavailable // this time nothing was sent, which does not tell the outcome of the first time
					}
					return nil
				}
				if committed {
					s.Lose = lose
				} else {
					s.Inject = lose
				}
				r := newRig(t, &claim.Pool{Source: s}).run()
				c := r.ask()
				r.until(70*ms - ns)
				none(t, c)
				r.until(70 * ms)
				res := got(t, c)
				require.NoError(t, res.Err)
				assert.Equal(t, "s0", res.Slot.Name)
				tried := r.tried()
				require.Len(t, tried, 4)
				for i, at := range []time.Duration{0, 10 * ms, 30 * ms, 70 * ms} {
					assert.Equal(t, at, tried[i].at)
					assert.Equal(t, tried[0].id, tried[i].id, "the same attempt")
				}
				assert.Equal(t, claim.Stats{Claimed: 1, Unknown: 3, Listings: 1}, r.Stats())
				assert.Equal(t, 1, s.Held())
			})
		}
	}
}

// While the outcome is unknown the request is answered after Timeout. When it becomes known that the slot is claimed,
// the slot is given back.
func TestUnknownForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		s.Lose = func(claim.Attempt) error {
			if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) < 25*time.Second {
				return orbit.ErrUnknown
			}
			return nil
		}
		r := newRig(t, &claim.Pool{Source: s}).run()
		c := r.ask()
		r.until(10*time.Second - ns)
		none(t, c)
		r.until(10 * time.Second)
		require.ErrorIs(t, got(t, c).Err, claim.ErrTimeout)
		assert.Equal(t, 1, r.Snapshot().ReservedCount, "it is still in flight")
		assert.Equal(t, 1, s.Held())
		r.until(27 * time.Second)
		assert.Zero(t, s.Held())
		assert.Equal(t, claim.Snapshot{IdleReady: 1}, r.Snapshot())
		assert.Empty(t, r.reported())
	})
}

// A source that never tells the outcome is reported after the pool has ended and repeated the attempt in vain. All
// other requests have been answered.
func TestUnknownToTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		s.Lose = func(claim.Attempt) error { return orbit.ErrUnknown }
		r := newRig(t, &claim.Pool{Source: s}).run()
		c := r.ask()
		synctest.Wait()
		r.Shutdown()
		require.ErrorIs(t, got(t, c).Err, claim.ErrShutdown)
		time.Sleep(time.Minute)
		require.Len(t, r.reported(), 1)
		assert.ErrorIs(t, r.reported()[0], claim.ErrLeak)
		none(t, c)
	})
}

// If the source does not answer, the request is answered after Timeout, and the context of the claim has ended by then.
func TestSourceThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.show(0, claim.Slot{Name: "a"})
		type name struct{}
		l.claim = func(ctx context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
			assert.Equal(t, "request", ctx.Value(name{}), "the request's values reach the source")
			<-ctx.Done()
			assert.Equal(t, context.DeadlineExceeded, context.Cause(ctx))
			return claim.Slot{}, 0, errors.New("told to stop, and nothing was done")
		}
		r := newRig(t, &claim.Pool{Timeout: time.Second, Source: l}).run()
		_, c := r.request(context.WithValue(t.Context(), name{}, "request"), 0)
		r.until(time.Second - ns)
		none(t, c)
		r.until(time.Second)
		require.Error(t, got(t, c).Err)
		assert.Zero(t, r.Snapshot().InflightCAS)
	})
}

// Callers that have gone, whose channel has no room, or who have closed it do not delay the others, and their slots are
// given back. A caller that makes room a little later gets the answer.
func TestCallersWhoLeaveNoRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, names(5)...)
		r := newRig(t, &claim.Pool{Source: s}).run()
		gone, late, closed := make(chan claim.Result), make(chan claim.Result), make(chan claim.Result)
		close(closed)
		for _, c := range []chan claim.Result{gone, nil, closed, late} {
			require.True(t, r.Enqueue(&claim.Request{Result: c}))
		}
		assert.False(t, r.Enqueue(nil))
		good := r.ask()
		synctest.Wait()
		assert.Equal(t, "s4", got(t, good).Slot.Name)
		assert.Equal(t, claim.Snapshot{}.QueueLen, r.Snapshot().QueueLen)
		assert.Equal(t, 4, s.Held())
		r.until(time.Second - ns)
		assert.Equal(t, "s3", (<-late).Slot.Name)
		r.until(time.Second)
		assert.Equal(t, 2, s.Held(), "good's and late's")
		assert.Zero(t, s.Doubled())
	})
}

// The same with a pool that has ended.
func TestUnreadAnswerAfterShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		r := newRig(t, &claim.Pool{Source: s}).run()
		require.True(t, r.Enqueue(&claim.Request{Result: make(chan claim.Result)}))
		synctest.Wait()
		r.Shutdown()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Zero(t, s.Held())
	})
}
