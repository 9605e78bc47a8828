package claim_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

const (
	ms = time.Millisecond
	ns = time.Nanosecond
)

// rig runs a pool in a synctest bubble and records when the source is called.
type rig struct {
	*claim.Pool
	t     testing.TB
	start time.Time
	inner claim.Source
	ended chan struct{}

	// The fields below are guarded by mu.
	mu sync.Mutex
	// looks are the times of listings, counted from run.
	looks    []time.Duration
	attempts []attempt
	reports  []error
}

type attempt struct {
	slot string
	req  *claim.Request
	id   any
	at   time.Duration
}

// newRig wraps the pool's source. If the pool sets no NotifyDelay, NotifyIdle lists the source at once.
func newRig(t testing.TB, p *claim.Pool) *rig {
	r := &rig{Pool: p, t: t, inner: p.Source, ended: make(chan struct{})}
	if p.NotifyDelay == 0 {
		p.NotifyDelay = -1
	}
	if p.OnError == nil {
		p.OnError = func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reports = append(r.reports, err)
		}
	}
	if f, ok := p.Source.(claim.Follower); ok {
		p.Source = following{spy{r}, f}
	} else {
		p.Source = spy{r}
	}
	return r
}

// run starts the pool, which ends when the test ends.
func (r *rig) run() *rig {
	r.start = time.Now()
	go func() {
		defer close(r.ended)
		assert.NoError(r.t, r.Run(context.Background()))
	}()
	r.t.Cleanup(func() { r.Shutdown(); <-r.ended })
	synctest.Wait()
	return r
}

// until lets the clock run to a time after run, and lets everything due at that time happen.
func (r *rig) until(d time.Duration) {
	time.Sleep(d - time.Since(r.start))
	synctest.Wait()
}

// seen returns the times at which the source was listed.
func (r *rig) seen() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Duration(nil), r.looks...)
}

func (r *rig) tried() []attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]attempt(nil), r.attempts...)
}

func (r *rig) reported() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.reports...)
}

// ask enqueues a request without an end.
func (r *rig) ask() <-chan claim.Result {
	_, c := r.request(context.Background(), 0)
	return c
}

// request enqueues a request with a deadline; 0: none.
func (r *rig) request(ctx context.Context, deadline time.Duration) (*claim.Request, <-chan claim.Result) {
	c := make(chan claim.Result, 2) // room for one answer too many, so that a second one is noticed
	req := &claim.Request{Ctx: ctx, Result: c}
	if deadline != 0 {
		req.Deadline = time.Now().Add(deadline)
	}
	require.True(r.t, r.Enqueue(req))
	return req, c
}

// got returns the answer, which must be there now.
func got(t testing.TB, c <-chan claim.Result) claim.Result {
	t.Helper()
	select {
	case res := <-c:
		return res
	default:
		require.FailNow(t, "no answer yet")
		return claim.Result{}
	}
}

// none requires that there is no answer yet.
func none(t testing.TB, c <-chan claim.Result) {
	t.Helper()
	select {
	case res := <-c:
		require.FailNow(t, "an answer", "%+v", res)
	default:
	}
}

// spy is the source as the pool sees it: it records calls and passes them on.
type spy struct{ r *rig }

func (s spy) Idle(ctx context.Context) (claim.Listing, error) {
	s.r.mu.Lock()
	s.r.looks = append(s.r.looks, time.Since(s.r.start))
	s.r.mu.Unlock()
	return s.r.inner.Idle(ctx)
}

func (s spy) Claim(ctx context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
	s.r.mu.Lock()
	s.r.attempts = append(s.r.attempts, attempt{a.Slot.Name, a.Request, a.ID, time.Since(s.r.start)})
	s.r.mu.Unlock()
	return s.r.inner.Claim(ctx, a)
}

func (s spy) Return(ctx context.Context, slot claim.Slot) error { return s.r.inner.Return(ctx, slot) }

type following struct {
	spy
	f claim.Follower
}

func (s following) Follow(ctx context.Context, after uint64) (claim.Listing, error) {
	return s.f.Follow(ctx, after)
}

// store returns a store with slots of these names, which listings show already.
func store(s *sim.StaleStore, names ...string) *sim.StaleStore {
	lag := s.Lag
	s.Lag = 0
	s.Add(names...)
	s.Lag = lag
	return s
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// soon is a context that ends after a minute. In a bubble a request that nobody serves would otherwise wait for ever,
// because the polls make the time pass.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
