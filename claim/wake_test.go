package claim_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

const sec = time.Second

// While a request waits and nothing is idle the source is polled after 10 s, 20 s and so on up to 5 min, and then every
// 5 min. It is not polled while no request waits.
func TestPollBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: &sim.StaleStore{}}).run()
		r.until(100 * sec)
		assert.Equal(t, []time.Duration{0}, r.seen(), "no request waits")
		ctx, cancel := context.WithCancel(t.Context())
		r.request(ctx, 0)
		r.until(1310*sec + 50*sec)
		want := []time.Duration{0, 100 * sec}
		for _, d := range []time.Duration{10, 30, 70, 150, 310, 610, 910, 1210} {
			want = append(want, 100*sec+d*sec)
		}
		assert.Equal(t, want, r.seen())
		cancel()
		r.until(5000 * sec)
		assert.Equal(t, want, r.seen(), "no request waits any more")
	})
}

// Each of the three events lists the source at once and starts the back-off over.
func TestPollStartsOver(t *testing.T) {
	at := 100 * sec // between the poll at 70 s and that at 150 s
	for name, event := range map[string]func(*rig, *sim.StaleStore){
		"a new request": func(r *rig, _ *sim.StaleStore) { r.ask() },
		"an idle slot":  func(r *rig, s *sim.StaleStore) { r.NotifyIdle() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &sim.StaleStore{}
				r := newRig(t, &claim.Pool{Source: s}).run()
				r.ask()
				r.until(at)
				event(r, s)
				r.until(at + 70*sec)
				assert.Equal(t, []time.Duration{0, 0, 10 * sec, 30 * sec, 70 * sec, at, at + 10*sec, at + 30*sec, at + 70*sec}, r.seen())
			})
		})
	}
	t.Run("a conflict", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := &sim.StaleStore{}
			r := newRig(t, &claim.Pool{Source: s, PollMin: sec, PollMax: 4 * sec}).run()
			r.ask()
			r.until(14 * sec) // polls at 1, 3, 7, 11, 15: waits of 4 s
			s.Inject = func(claim.Attempt) error { time.Sleep(500 * ms); return errConflict }
			s.Add("s0")
			r.until(19 * sec) // found at 15 s, and lost to another client at 15.5 s
			assert.Equal(t, []time.Duration{15 * sec, 15500 * ms, 16500 * ms, 17500 * ms}, r.seen()[6:10],
				"a poll, the conflict, 1 s later, and the end of the reservation")
		})
	})
}

// NotifyIdle lists the source NotifyDelay later, to the nanosecond. The default is 200 ms for a source whose listings
// lag behind, and 0 for a Follower.
func TestNotifyDelay(t *testing.T) {
	for _, x := range []struct {
		set, want time.Duration
		follower  bool
	}{{0, 200 * ms, false}, {0, 0, true}, {300 * ms, 300 * ms, false}, {300 * ms, 300 * ms, true}, {-1, 0, false}} {
		bubble(t, func(t *testing.T) {
			var src claim.Source = &listings{}
			if x.follower {
				src = &followed{}
			}
			p := &claim.Pool{Source: src, NotifyDelay: x.set}
			r := newRig(t, p)
			p.NotifyDelay = x.set
			r.run()
			r.until(sec)
			r.NotifyIdle()
			synctest.Wait()
			r.until(sec + x.want - ns)
			if x.want > 0 {
				assert.Equal(t, []time.Duration{0}, r.seen())
			}
			r.until(sec + x.want)
			assert.Equal(t, []time.Duration{0, sec + x.want}, r.seen())
		})
	}
}

// Of many calls of NotifyIdle each is followed by a listing after its delay and less than an eighth of the delay later.
// There are at most eight listings in one delay.
func TestNotifyStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, &claim.Pool{Source: &sim.StaleStore{}, NotifyDelay: 200 * ms}).run()
		var calls []time.Duration
		for i := range 1000 {
			r.NotifyIdle()
			calls = append(calls, time.Since(r.start))
			time.Sleep(time.Duration(1+i%7) * ms / 4)
		}
		r.until(10 * sec)
		looks := r.seen()[1:]
		for _, call := range calls {
			found := false
			for _, look := range looks {
				found = found || look >= call+200*ms && look < call+225*ms
			}
			assert.True(t, found, "called at %v", call)
		}
		assert.LessOrEqual(t, len(looks), int(calls[999]/(25*ms))+2)
	})
}

// A NotifyIdle before Run is not lost, however often it is called.
func TestNotifyBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &sim.StaleStore{Lag: 200 * ms}
		r := newRig(t, &claim.Pool{Source: s, NotifyDelay: 200 * ms})
		for range 100 {
			r.NotifyIdle()
			time.Sleep(30 * ms)
		}
		s.Add("s0")
		r.NotifyIdle()
		r.run()
		c := r.ask()
		r.until(sec)
		require.NoError(t, got(t, c).Err)
	})
}

// A listing that is under way at an event is followed by another one, because it may have missed the event.
func TestLooksAreNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.set(func() (claim.Listing, error) { time.Sleep(100 * ms); return claim.Listing{}, nil })
		r := newRig(t, &claim.Pool{Source: l}).run()
		c := r.ask()
		r.until(50 * ms)
		l.set(func() (claim.Listing, error) { return claim.Listing{Slots: []claim.Slot{{Name: "a"}}}, nil })
		r.NotifyIdle() // the first listing is under way, and will find nothing
		r.until(100 * ms)
		require.NoError(t, got(t, c).Err)
	})
}

// ScaleUp is called once for each shortage, with the deficit, after the source has confirmed that nothing is idle.
func TestScaleUpOncePerShortage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, names(3)...)
		told := &told{}
		p := &claim.Pool{Source: slow{s, 10 * ms}, ScaleUp: told.hook}
		r := newRig(t, p).run()
		r.until(sec)
		for range 3 {
			r.ask()
		}
		r.until(2 * sec)
		assert.Empty(t, told.deficits(), "there was enough")
		for range 40 {
			r.ask()
		}
		synctest.Wait()
		assert.Empty(t, told.deficits(), "the source has not been heard")
		r.until(2*sec + 10*ms)
		assert.Equal(t, []int{40}, told.deficits())
		for range 100 { // the same shortage
			r.ask()
			time.Sleep(ms)
		}
		synctest.Wait()
		assert.Equal(t, []int{40}, told.deficits())
		r.until(12 * sec)
		assert.Equal(t, []int{40}, told.deficits())
		r.until(12*sec + 10*ms)
		assert.Equal(t, []int{40, 140}, told.deficits(), "it has grown")
		assert.Equal(t, told.at(0), told.at(1))
		r.until(100 * sec)
		assert.Len(t, told.deficits(), 2, "it has not grown since")
		for i := range 140 {
			s.Add(fmt.Sprint("new", i))
		}
		r.NotifyIdle()
		r.until(101 * sec)
		assert.Zero(t, r.Snapshot().QueueLen)
		r.ask()
		r.until(102 * sec)
		assert.Equal(t, []int{40, 140, 1}, told.deficits(), "another shortage")
		assert.NotEqual(t, told.at(0), told.at(2))
		assert.Equal(t, uint64(3), r.Stats().ScaleUps)
	})
}

// told is a ScaleUp that records its calls.
type told struct {
	mu   sync.Mutex
	what []claim.Shortage
	// block, if set, is what a call waits for.
	block chan struct{}
}

func (h *told) hook(_ context.Context, s claim.Shortage) error {
	h.mu.Lock()
	h.what = append(h.what, s)
	h.mu.Unlock()
	if h.block != nil {
		<-h.block
	}
	return nil
}

func (h *told) deficits() (out []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.what {
		out = append(out, s.Deficit)
	}
	return out
}

func (h *told) at(i int) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.what[i].Since
}

// slow is a source whose listings take some time.
type slow struct {
	claim.Source
	d time.Duration
}

func (s slow) Idle(ctx context.Context) (claim.Listing, error) {
	l, err := s.Source.Idle(ctx)
	time.Sleep(s.d)
	return l, err
}

// A ScaleUp that fails, panics or exits is reported, and called again while the shortage lasts. The pool goes on.
func TestScaleUpIsContained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &sim.StaleStore{}
		var calls atomic.Int32
		p := &claim.Pool{Source: s, ScaleUp: func(context.Context, claim.Shortage) error {
			switch calls.Add(1) {
			case 1:
				panic("ouch")
			case 2:
				runtime.Goexit()
			case 3:
				return errors.New("no budget")
			}
			return nil
		}}
		r := newRig(t, p).run()
		c := r.ask()
		synctest.Wait()
		r.until(200 * sec)
		assert.Equal(t, int32(4), calls.Load())
		require.Len(t, r.reported(), 3)
		for i, what := range []string{"ouch", "exited", "no budget"} {
			require.ErrorIs(t, r.reported()[i], claim.ErrHook)
			assert.ErrorContains(t, r.reported()[i], what)
		}
		s.Add("s0")
		r.NotifyIdle()
		synctest.Wait()
		assert.NoError(t, got(t, c).Err)
	})
}

// While ScaleUp blocks the pool goes on and does not call it a second time. A shortage that began meanwhile is reported
// when the call returns.
func TestScaleUpThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &sim.StaleStore{}
		told := &told{block: make(chan struct{})}
		p := &claim.Pool{Source: s, ScaleUp: told.hook}
		r := newRig(t, p).run()
		for k := range 5 { // five shortages
			for range k + 1 {
				r.ask()
			}
			synctest.Wait()
			for i := range k + 1 {
				s.Add(fmt.Sprint("s", k, "-", i))
			}
			r.NotifyIdle()
			synctest.Wait()
			require.Zero(t, r.Snapshot().QueueLen)
			require.Equal(t, []int{1}, told.deficits())
		}
		for range 7 {
			r.ask()
		}
		r.until(100 * sec)
		require.Equal(t, []int{1}, told.deficits())
		close(told.block)
		synctest.Wait()
		require.Equal(t, []int{1, 7}, told.deficits())
	})
}

// A panic in OnError has no other effect.
func TestReportIsContained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{}
		l.set(func() (claim.Listing, error) { return claim.Listing{}, errors.New("unreachable") })
		r := newRig(t, &claim.Pool{Source: l, OnError: func(error) { panic("ouch") }}).run()
		l.show(0, claim.Slot{Name: "a"})
		c := r.ask()
		synctest.Wait()
		assert.NoError(t, got(t, c).Err)
	})
}

// A shortage that begins while ScaleUp runs for an earlier one is reported as soon as that call returns.
func TestScaleUpIsToldLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &sim.StaleStore{}
		told := &told{block: make(chan struct{})}
		r := newRig(t, &claim.Pool{Source: s, ScaleUp: told.hook}).run()
		r.ask()
		synctest.Wait()
		s.Add("s0")
		r.look()
		r.ask()
		r.ask()
		r.until(100 * ms)
		require.Equal(t, []int{1}, told.deficits())
		close(told.block)
		synctest.Wait()
		require.Len(t, told.deficits(), 2)
		assert.LessOrEqual(t, told.deficits()[1], 2)
		assert.Zero(t, told.at(1).Sub(r.start), "since it began")
	})
}
