package shard

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// counted counts the calls of a ledger; it can lag behind or fail.
type counted struct {
	*orbit.MemoryLedger
	snapshots atomic.Int64
	changes   atomic.Int64
	stale     *orbit.State
	fail      atomic.Bool
	blind     bool
}

func (c *counted) Snapshot(ctx context.Context) (*orbit.State, error) {
	c.snapshots.Add(1)
	if c.fail.Load() {
		return nil, orbit.ErrUnavailable
	}
	if c.stale != nil {
		return c.stale, nil
	}
	return c.MemoryLedger.Snapshot(ctx)
}

func (c *counted) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	c.changes.Add(1)
	if c.blind {
		return nil, orbit.ErrUnavailable
	}
	return c.MemoryLedger.Changes(ctx, after)
}

func TestRunSleepsThroughWhatDoesNotConcernIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.leases.TTL = 1000 * time.Hour
		s.live("a", "b")
		s.do(node("n", 1000))
		c := &counted{MemoryLedger: s.ledger}
		d := &Dispatcher{Ledger: c, Leases: s.leases}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		reads := func(what func()) int64 {
			time.Sleep(time.Second)
			before := c.snapshots.Load()
			what()
			time.Sleep(time.Hour)
			return c.snapshots.Load() - before
		}
		require.Zero(t, reads(func() {}))
		require.Equal(t, int64(1), reads(func() { s.do(orbit.Submit{IDs: ids("x", 9), Spec: cpu(1)}) }))
		require.Zero(t, reads(func() { s.do(orbit.Place{Capsule: "x000", Node: "n"}) }))
		require.LessOrEqual(t, reads(func() { s.do(orbit.Release{Capsule: "x000", Stopped: true}) }), int64(1), "it has not looked at its own assignments yet")
		s.do(orbit.Place{Capsule: "x000", Node: "n"})
		require.Zero(t, reads(func() { s.do(orbit.Release{Capsule: "x000", Stopped: true}) }))
		require.Zero(t, reads(func() { s.do(orbit.Release{Capsule: "x000", Final: true}) }))
		require.Zero(t, reads(func() { s.do(node("n", 900)) }))
		require.Zero(t, reads(func() { s.do(orbit.Mark{Key: "lease/n", Value: "x"}) }))
		require.Zero(t, reads(func() { s.do(orbit.Submit{IDs: ids("y", 1), Spec: cpu(1), Owner: "a"}) }))
		require.Equal(t, int64(1), reads(func() { s.do(orbit.Assign{Capsule: "y000", From: "a"}) }))
		require.Equal(t, int64(1), reads(func() { s.die("a") }))
		for c := range s.state().Capsules() {
			require.True(t, c.Released() || c.Owner() == "b")
		}
		for i := range 3*maxBehind + 10 {
			s.do(orbit.Mark{Key: "other", Value: string(rune('a' + i%20))})
		}
		require.LessOrEqual(t, reads(func() {}), int64(1))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestRunWakesForEverythingThatMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: orbit.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}}
		var rounds []Round
		d.Hook = func(r Round) { rounds = append(rounds, r) }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.Run(ctx)
		wait := func() {
			t.Helper()
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		s.do(node("n", 1), orbit.Submit{IDs: ids("x", 1), Spec: cpu(2)})
		wait()
		require.Len(t, rounds, 1, "said once")
		require.ErrorIs(t, rounds[0].Errors[0], ErrAlone)
		s.live("a")
		wait()
		require.Equal(t, "a", s.owner("x000"))
		s.giveBack("a", "x000")
		wait()
		require.Len(t, rounds[len(rounds)-1].Failed, 1)
		s.do(node("n", 2))
		wait()
		require.Equal(t, "a", s.owner("x000"))
		s.giveBack("a", "x000")
		wait()
		require.Empty(t, s.owner("x000"))
		time.Sleep(time.Hour)
		wait()
		require.Equal(t, "a", s.owner("x000"), "tried again")
		require.NotEmpty(t, s.mark("plan/capsule/failed/x000"))
		s.do(orbit.Place{Capsule: "x000", Node: "n"})
		wait()
		require.Empty(t, s.mark("plan/capsule/failed/x000"))
		_, err := Import(ctx, s.ledger, Submission{Submit: orbit.Submit{IDs: ids("p", 1), Spec: cpu(1)}, Schedulers: []string{"a"}})
		require.NoError(t, err)
		s.do(orbit.Release{Capsule: "p000", Final: true})
		wait()
		require.Empty(t, s.mark("pinned/p000"))
		s.do(orbit.Mark{Key: "plan/capsule/failed/unknown", Value: "1 a=1,"})
		wait()
		require.Empty(t, s.mark("plan/capsule/failed/unknown"))
	})
}

func TestPinnedIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, move := range []bool{false, true} {
			s := newStage(t)
			s.live("a", "b")
			d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, MovePinned: move, Retry: orbit.Backoff{Initial: time.Second, Jitter: -1}}
			_, err := Import(t.Context(), s.ledger,
				Submission{Submit: orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)}, Schedulers: []string{"a"}},
				Submission{Submit: orbit.Submit{Gang: gangOf("g", 2)}, Schedulers: []string{"a"}},
				Submission{Submit: orbit.Submit{IDs: ids("never", 1), Spec: cpu(1)}, Schedulers: []string{"unknown"}},
			)
			require.NoError(t, err)
			r := d.Step(t.Context())
			require.Len(t, r.Stranded, map[bool]int{false: 1}[move])
			s.giveBack("a", "x000")
			r = d.Step(t.Context())
			if move {
				require.Equal(t, "b", s.owner("x000"))
				s.do(node("n", 1), orbit.Place{Capsule: "x000", Node: "n"})
				s.settle(d)
				require.Equal(t, "a", s.mark("pinned/x000"), "the pin is for life")
				s.do(orbit.Release{Capsule: "x000", Stopped: true})
				s.die("a")
				s.settle(d)
				for _, id := range []orbit.CapsuleID{"x000", "g/r000", "g/r001", "g/q000", "never000"} {
					require.Equal(t, "b", s.owner(id), id)
				}
				continue
			}
			require.Len(t, r.Failed, 1)
			require.Len(t, r.Failed[0].Failures, 1, "only the one it is pinned to")
			time.Sleep(time.Second)
			s.settle(d)
			require.Equal(t, "a", s.owner("x000"), "tried again there, and nowhere else")
			s.die("a")
			r = d.Step(t.Context())
			require.Len(t, r.Stranded, 2)
			require.ErrorIs(t, r.Stranded[0], ErrStranded)
			require.Empty(t, r.Dispatched)
			require.Empty(t, d.Step(t.Context()).Stranded, "it is said once")
			require.Equal(t, "a", s.owner("g/q000"))
			s.do(orbit.Assign{Capsule: "x000", From: "a"})
			s.settle(d)
			require.Empty(t, s.owner("x000"))
			s.live("a")
			s.settle(d)
			require.Equal(t, "a", s.owner("x000"))
			s.die("a")
			require.Len(t, d.Step(t.Context()).Stranded, 2, "the situation has changed")
			s.do(orbit.Mark{Key: "pinned/x000"})
			s.settle(d)
			require.Equal(t, "b", s.owner("x000"), "unpinned")
		}
	})
}

func TestGangsStayTogether(t *testing.T) {
	s := newStage(t)
	s.live("a", "b", "c")
	s.do(node("n", 100))
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	s.do(orbit.Submit{Gang: gangOf("g", 3)}, orbit.Submit{Gang: gangOf("h", 3)})
	r := d.Step(t.Context())
	require.Equal(t, map[string]int{"a": 4, "b": 4}, r.Dispatched)
	s.do(orbit.Place{Capsule: "g/r000", Node: "n"}, orbit.Place{Capsule: "g/q000", Node: "n"})
	s.do(orbit.Assign{Capsule: "g/r001", From: "a"})
	s.settle(d)
	require.Equal(t, "a", s.owner("g/r001"), "where the others are")
	s.do(orbit.Assign{Capsule: "g/r001", From: "a", Owner: "b"})
	s.do(orbit.Assign{Capsule: "g/r002", From: "a"})
	s.settle(d)
	require.Equal(t, "b", s.owner("g/r002"), "rather those that wait than those that are placed")
	s.die("b")
	s.settle(d)
	require.Equal(t, "a", s.owner("g/r002"))
	require.Equal(t, "a", s.owner("g/r001"))
	h := s.owner("h/r000")
	require.NotEqual(t, "b", h)
	s.giveBack(h, "h/q000")
	rounds := s.settle(d)
	require.Equal(t, orbit.GangID("h"), rounds[0].Redispatched[0].Gang)
	require.NotEqual(t, h, s.owner("h/r002"))
	require.Equal(t, s.owner("h/q000"), s.owner("h/r002"))
	require.NotEmpty(t, s.mark("plan/gang/failed/h"))
	var all []orbit.Commitment
	for _, id := range []orbit.CapsuleID{"h/r000", "h/r001", "h/r002", "h/q000"} {
		all = append(all, orbit.Place{Capsule: id, Node: "n"})
	}
	s.do(all...)
	s.settle(d)
	require.Empty(t, s.mark("plan/gang/failed/h"))
}

// TestOneThatIsTakenIsLostAlone: if a capsule changes between the read and the commit, the other assignments are
// committed.
func TestOneThatIsTakenIsLostAlone(t *testing.T) {
	s := newStage(t)
	s.live("a", "b")
	s.do(node("n", 10), orbit.Submit{IDs: ids("x", 5), Spec: cpu(1)})
	c := &counted{MemoryLedger: s.ledger, stale: s.state()}
	s.do(orbit.Assign{Capsule: "x000", Owner: "b"}, orbit.Release{Capsule: "x001", Final: true}, orbit.Place{Capsule: "x002", Node: "n"})
	d := &Dispatcher{Ledger: c, Leases: s.leases}
	r := d.Step(t.Context())
	require.Equal(t, 2, r.Conflicts)
	require.Equal(t, map[string]int{"a": 2, "b": 1}, r.Dispatched, "what is placed may be assigned")
	require.Empty(t, r.Errors)
	r = d.Step(t.Context())
	require.Zero(t, r.Conflicts+len(r.Dispatched), "it waits for a newer state")
	c.stale = nil
	require.Empty(t, s.settle(d))
	require.Equal(t, "b", s.owner("x000"))

	s.do(orbit.Submit{IDs: ids("y", 4), Spec: cpu(1)})
	c.stale = s.state()
	s.die("a")
	r = d.Step(t.Context())
	require.Equal(t, map[string]int{"b": 2}, r.Dispatched, "nothing is given to one whose lease is over")
	require.Equal(t, 2, r.Conflicts)
	c.stale = nil
	s.settle(d)
	require.Equal(t, "b", s.owner("y003"))
}

func TestATroubledLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a")
		s.do(orbit.Submit{IDs: ids("x", 4), Spec: cpu(1)}, orbit.Mark{Key: "plan/capsule/failed/unknown", Value: "1 a=1,"})
		f := &flaky{Ledger: s.ledger, errs: []error{orbit.ErrUnavailable, orbit.ErrUnknown, errors.New("odd"), nil, orbit.ErrUnavailable}}
		d := &Dispatcher{Ledger: f, Leases: s.leases}
		r := d.Step(t.Context())
		require.Equal(t, map[string]int{"a": 1}, r.Dispatched)
		require.Len(t, r.Errors, 4)
		r = d.Step(t.Context())
		require.Equal(t, map[string]int{"a": 2}, r.Dispatched, "one had been committed")
		require.Equal(t, 1, r.Dropped)
		for _, id := range ids("x", 4) {
			require.Equal(t, "a", s.owner(id))
		}
		c := &counted{MemoryLedger: s.ledger}
		c.fail.Store(true)
		d = &Dispatcher{Ledger: c, Leases: s.leases}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.Run(ctx)
		time.Sleep(time.Hour)
		require.Less(t, c.snapshots.Load(), int64(3700), "it backs off")
		c.fail.Store(false)
		s.do(orbit.Submit{IDs: ids("y", 1), Spec: cpu(1)})
		time.Sleep(2 * time.Second)
		require.Equal(t, "a", s.owner("y000"))
	})
}

// TestAMarkThatIsNewAgain: the dispatcher does not drop the mark of a placed capsule if the capsule has been released
// and has failed again meanwhile.
func TestAMarkThatIsNewAgain(t *testing.T) {
	s := newStage(t)
	s.live("a")
	s.do(node("n", 9), orbit.Submit{IDs: ids("x", 1), Spec: cpu(1), Owner: "a"})
	s.giveBack("a", "x000")
	s.do(orbit.Place{Capsule: "x000", Node: "n"})
	c := &counted{MemoryLedger: s.ledger, stale: s.state()}
	s.do(orbit.Release{Capsule: "x000", Stopped: true})
	s.giveBack("a", "x000")
	r := (&Dispatcher{Ledger: c, Leases: s.leases}).Step(t.Context())
	require.Equal(t, 1, r.Conflicts)
	require.Zero(t, r.Dropped)
	require.NotEmpty(t, s.mark("plan/capsule/failed/x000"))
}

// TestWhatIsToBeLookedAtAgainIsKept: a step that fails to read the ledger does not forget the units to review.
func TestWhatIsToBeLookedAtAgainIsKept(t *testing.T) {
	s := newStage(t)
	s.live("a")
	s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)})
	c := &counted{MemoryLedger: s.ledger}
	d := &Dispatcher{Ledger: &lossy{counted: c}, Leases: s.leases}
	require.Len(t, d.Step(t.Context()).Errors, 1, "it could not be assigned")
	s.do(orbit.Mark{Key: "other", Value: "x"})
	c.blind = true
	require.ErrorIs(t, d.Step(t.Context()).Errors[0], orbit.ErrUnavailable)
	c.blind = false
	s.settle(d)
	require.Equal(t, "a", s.owner("x000"))
}

// lossy loses the first batch.
type lossy struct {
	*counted
	batches int
}

func (l *lossy) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	if l.batches++; l.batches == 1 {
		return nil
	}
	return l.counted.ProposeBatch(ctx, batch)
}

func TestFaultyFields(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for _, d := range []*Dispatcher{
		{}, {Ledger: l, MaxStep: -1}, {Ledger: l, Schedulers: []string{""}}, {Ledger: l, Schedulers: []string{strings.Repeat("x", 254)}},
		{Ledger: l, Retry: orbit.Backoff{Initial: -1}}, {Ledger: l, Retry: orbit.Backoff{Factor: 0.5}}, {Ledger: l, Retry: orbit.Backoff{Jitter: 2}},
	} {
		require.ErrorIs(t, d.Run(t.Context()), orbit.ErrInvalid)
		require.ErrorIs(t, d.Step(t.Context()).Errors[0], orbit.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := &Dispatcher{Ledger: l, Schedulers: []string{"a"}}
	require.NoError(t, d.Run(ctx))
	require.Len(t, d.Step(ctx).Errors, 1)
}

func TestAFixedList(t *testing.T) {
	s := newStage(t)
	s.do(orbit.Submit{IDs: ids("x", 4), Spec: cpu(1)}, orbit.Submit{IDs: ids("y", 1), Spec: cpu(1), Owner: "gone"})
	d := &Dispatcher{Ledger: s.ledger, Schedulers: []string{"b", "a", "b"}}
	r := d.Step(t.Context())
	require.Equal(t, map[string]int{"a": 3, "b": 2}, r.Dispatched)
	require.Contains(t, r.String(), "5 capsules to 2 of 2 schedulers, 1 redispatched")
	require.Equal(t, OwnerGone, r.Redispatched[0].Why)
}

func TestNoSchedulerLives(t *testing.T) {
	s := newStage(t)
	s.do(orbit.Submit{IDs: ids("x", 2), Spec: cpu(1)})
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	said := func() (n int) {
		for _, err := range d.Step(t.Context()).Errors {
			require.ErrorIs(t, err, ErrAlone)
			n++
		}
		return n
	}
	require.Equal(t, 1, said())
	s.do(orbit.Submit{IDs: ids("y", 2), Spec: cpu(1)})
	require.Zero(t, said(), "it is said once")
	s.live("a")
	require.Equal(t, map[string]int{"a": 4}, d.Step(t.Context()).Dispatched)
	s.die("a")
	require.Equal(t, 1, said(), "and again when it comes to that again")
}

func TestMaxStepAndOrder(t *testing.T) {
	s := newStage(t)
	s.live("a")
	s.do(orbit.Submit{IDs: ids("x", 5), Spec: cpu(1)})
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, MaxStep: 2}
	for _, left := range []int{3, 1, 0} {
		require.Equal(t, left, d.Step(t.Context()).Left)
	}
	require.Equal(t, "a", s.owner("x004"))
}

// TestTheListIsFull: a mark that has no room for all failures of a capsule drops the oldest.
func TestTheListIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.ledger.Bounds.ValueBytes = 30
		names := []string{"scheduler-a", "scheduler-b", "scheduler-c", "scheduler-d"}
		s.live(names...)
		s.do(node("n", 1), orbit.Submit{IDs: ids("x", 1), Spec: cpu(2)})
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: true}
		s.settle(d)
		for range 3 {
			s.giveBack(s.owner("x000"), "x000")
			s.settle(d)
			if s.owner("x000") == "" {
				break
			}
		}
		require.Empty(t, s.owner("x000"), "counts as failed by all")
		require.True(t, strings.HasPrefix(s.mark("plan/capsule/failed/x000"), "1+ "))
		s.do(node("n", 2))
		require.Equal(t, 1, s.settle(d)[0].Cleared)
		require.NotEmpty(t, s.owner("x000"))
	})
}
