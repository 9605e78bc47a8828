package shard

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
)

// stage is a ledger with leases, and the actions of the tests on it.
type stage struct {
	t      tester
	ledger *orbit.MemoryLedger
	leases *lease.Keeper
	terms  map[string]lease.Term
}

func newStage(t tester) *stage {
	s := &stage{t: t, ledger: &orbit.MemoryLedger{}, terms: map[string]lease.Term{}}
	s.leases = &lease.Keeper{Ledger: s.ledger, Prefix: LeasePrefix, TTL: 10 * time.Second, Terms: -1}
	return s
}

func (s *stage) do(do ...orbit.Commitment) {
	s.t.Helper()
	_, err := s.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(s.t, err)
}

// live begins a term for each scheduler.
func (s *stage) live(names ...string) {
	s.t.Helper()
	for _, name := range names {
		term, err := s.leases.Acquire(context.Background(), name, name)
		require.NoError(s.t, err)
		s.terms[name] = term
	}
}

// die ends the terms of schedulers in the ledger.
func (s *stage) die(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if err := s.leases.Resign(context.Background(), s.terms[name]); err != nil { // the term has run out already
			require.ErrorIs(s.t, err, lease.ErrExpired)
			_, _ = s.leases.Step(context.Background()) // it reports malformed marks, which some tests make
		}
		delete(s.terms, name)
	}
}

func (s *stage) state() *orbit.State {
	state, err := s.ledger.Snapshot(context.Background())
	require.NoError(s.t, err)
	return state
}

func (s *stage) owner(id orbit.CapsuleID) string {
	s.t.Helper()
	c := s.state().Capsule(id)
	require.NotNil(s.t, c, "capsule %q", id)
	return c.Owner()
}

// mark returns the value of a mark.
func (s *stage) mark(key string) string {
	value, _ := s.state().Mark(key)
	return value
}

// giveBack gives capsules back as a scheduler does that has read the newest state.
func (s *stage) giveBack(name string, ids ...orbit.CapsuleID) {
	s.t.Helper()
	var view orbit.View
	require.NoError(s.t, view.Refresh(context.Background(), s.ledger, nil, time.Now()))
	inner := nav.Func(func(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
		for _, c := range pending {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: &orbit.NoFit{}})
		}
		return plan, nil
	})
	sch := Scheduler{Name: name, Navigator: inner}
	var pending []*orbit.Capsule
	for _, id := range ids {
		pending = append(pending, s.state().Capsule(id))
	}
	plan, err := sch.Plan(context.Background(), &view, pending)
	require.NoError(s.t, err)
	for _, p := range plan.Proposals {
		_, err := s.ledger.Propose(context.Background(), p)
		require.NoError(s.t, err)
	}
}

// settle calls Step until there is nothing to do now.
func (s *stage) settle(d *Dispatcher) (rounds []Round) {
	s.t.Helper()
	for range 100 {
		r := d.Step(context.Background())
		if !r.active() && r.Left == 0 {
			return rounds
		}
		rounds = append(rounds, r)
		if r.Schedulers == 0 {
			return rounds
		}
	}
	s.t.Fatalf("still busy after 100 steps: %v", rounds[99])
	return nil
}

func cpu(n int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n}}}
}

func node(id orbit.NodeID, n int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: n}}}
}

func ids(prefix string, n int) (out []orbit.CapsuleID) {
	for i := range n {
		out = append(out, orbit.CapsuleID(fmt.Sprintf("%s%03d", prefix, i)))
	}
	return out
}

func TestDispatchesEachCapsuleOnce(t *testing.T) {
	s := newStage(t)
	s.live("a", "b", "c")
	s.do(orbit.Submit{IDs: ids("x", 30), Spec: cpu(1)})
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	r := d.Step(t.Context())
	require.Equal(t, map[string]int{"a": 10, "b": 10, "c": 10}, r.Dispatched)
	require.Empty(t, r.Redispatched)
	require.False(t, (&r).active() && d.Step(t.Context()).Dispatched != nil)
	again := &Dispatcher{Ledger: s.ledger, Leases: s.leases} // a new process
	require.Empty(t, again.Step(t.Context()).Dispatched)
}

func TestLeastLoadedCountsWhatItHasGiven(t *testing.T) {
	s := newStage(t)
	s.live("a", "b", "c")
	s.do(node("n", 100), orbit.Submit{IDs: ids("x", 6), Spec: cpu(1), Owner: "a"}, orbit.Submit{IDs: ids("y", 9), Spec: cpu(1)})
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Policy: LeastLoaded{}}
	require.Equal(t, map[string]int{"b": 5, "c": 4}, d.Step(t.Context()).Dispatched)
	for i := range 5 {
		s.do(orbit.Place{Capsule: ids("x", 6)[i], Node: "n"})
	}
	s.do(orbit.Submit{IDs: ids("z", 5), Spec: cpu(1)})
	require.Equal(t, map[string]int{"a": 4, "c": 1}, d.Step(t.Context()).Dispatched)
}

func TestListsOfTheDeadAreWholeAndShort(t *testing.T) {
	s := newStage(t)
	s.live("a", "b")
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	s.do(orbit.Submit{IDs: ids("x", 50), Spec: cpu(1), Owner: "a"})
	for range 500 {
		d.Step(t.Context())
		s.do(orbit.Assign{Capsule: "x007", From: "a", Owner: "b"})
		d.Step(t.Context())
		s.do(orbit.Assign{Capsule: "x007", From: "b", Owner: "a"})
	}
	require.Less(t, len(d.loads.owner("a").ids), 300)
	require.Less(t, len(d.loads.owner("b").ids), 100)
	s.die("a")
	require.Equal(t, map[string]int{"b": 50}, d.Step(t.Context()).Dispatched)
}

// TestMarksOfRecordsThatAreDropped: between two steps a capsule ends, its record is dropped, and another capsule gets
// its id.
func TestMarksOfRecordsThatAreDropped(t *testing.T) {
	s := newStage(t)
	s.ledger.Bounds.Terminal = 1
	s.live("a")
	pin := func(ids ...orbit.CapsuleID) {
		_, err := Import(t.Context(), s.ledger, Submission{Submit: orbit.Submit{IDs: ids, Spec: cpu(1)}, Schedulers: []string{"a"}})
		require.NoError(t, err)
	}
	pin("x", "y")
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	s.settle(d)
	s.giveBack("a", "x", "y")
	s.settle(d)
	s.do(orbit.Submit{IDs: ids("other", 2), Spec: cpu(1)})
	for _, id := range []orbit.CapsuleID{"x", "y", "other000", "other001"} {
		s.do(orbit.Release{Capsule: id, Final: true})
	}
	require.Nil(t, s.state().Capsule("x"))
	s.do(orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: []orbit.CapsuleID{"y"}}}}})
	s.settle(d)
	for _, key := range []string{"pinned/x", "plan/capsule/failed/x", "pinned/y", "plan/capsule/failed/y"} {
		require.Empty(t, s.mark(key), key)
	}
	require.Equal(t, "a", s.owner("y"))
}

func TestTheDeadGiveUpWhatTheyHad(t *testing.T) {
	s := newStage(t)
	s.live("a", "b")
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	s.do(node("n", 10), orbit.Submit{IDs: ids("x", 4), Spec: cpu(1)})
	s.settle(d)
	s.do(orbit.Place{Capsule: "x000", Node: "n"})
	s.die("a")
	r := d.Step(t.Context())
	require.Equal(t, []Move{{Capsule: "x002", From: "a", To: "b", Why: OwnerGone}}, r.Redispatched, "placed ones stay")
	require.Equal(t, "a", s.owner("x000"))
	s.live("a")
	s.settle(d)
	require.Equal(t, "b", s.owner("x002"), "it starts with what it is given")
	s.do(orbit.Release{Capsule: "x000", Stopped: true})
	s.settle(d)
	require.Equal(t, "a", s.owner("x000"))
}

func TestFailedByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a", "b")
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: orbit.Backoff{Initial: time.Second, Max: 4 * time.Second, Jitter: -1}}
		s.do(node("n", 1), orbit.Submit{IDs: ids("x", 1), Spec: cpu(2)})
		s.settle(d)
		s.giveBack("a", "x000")
		require.Empty(t, s.owner("x000"))
		r := d.Step(t.Context())
		require.Equal(t, []Move{{Capsule: "x000", To: "b", Why: GivenBack}}, r.Redispatched)
		s.giveBack("b", "x000")
		start := time.Now()
		r = d.Step(t.Context())
		require.Len(t, r.Failed, 1)
		require.Len(t, r.Failed[0].Failures, 2)
		require.ErrorIs(t, r.Failed[0], ErrFailed)
		require.Empty(t, r.Dispatched)
		waits := []time.Duration{}
		for range 4 {
			r = d.Step(t.Context())
			require.Empty(t, r.Failed, "it is said once")
			require.Empty(t, r.Dispatched)
			time.Sleep(time.Until(r.Next) - 1)
			require.Empty(t, d.Step(t.Context()).Dispatched, "a nanosecond too early")
			time.Sleep(1)
			waits, start = append(waits, time.Since(start)), time.Now()
			r = d.Step(t.Context())
			require.Equal(t, TriedAgain, r.Redispatched[0].Why)
			s.giveBack(s.owner("x000"), "x000")
		}
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second}, waits)
		s.live("c")
		r = d.Step(t.Context())
		require.Equal(t, "c", r.Redispatched[0].To)
		s.giveBack("c", "x000")
		require.Len(t, d.Step(t.Context()).Failed, 1, "the situation has changed")
		s.do(node("m", 1))
		require.Empty(t, s.settle(d), "too small to help")
		s.do(node("m", 2))
		rounds := s.settle(d)
		require.Equal(t, 1, rounds[0].Cleared)
		require.Len(t, rounds[1].Dispatched, 1)
		require.Empty(t, s.mark("plan/capsule/failed/x000"))
	})
}

func TestRoomClearsAsManyAsItTakes(t *testing.T) {
	s := newStage(t)
	s.live("a")
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	s.do(orbit.Submit{IDs: ids("x", 10), Spec: cpu(2)})
	s.settle(d)
	s.giveBack("a", ids("x", 10)...)
	s.settle(d)
	s.do(node("n", 7))
	require.Equal(t, 3, s.settle(d)[0].Cleared)
	s.do(node("n", 8))
	require.Equal(t, 1, s.settle(d)[0].Cleared)
	s.do(node("n", 9))
	require.Empty(t, s.settle(d))
	for _, id := range ids("x", 4) {
		require.Equal(t, "a", s.owner(id))
	}
	s.do(orbit.Place{Capsule: "x000", Node: "n"})
	require.Empty(t, s.settle(d), "less room is no help")
	s.do(orbit.Release{Capsule: "x000", Final: true})
	require.Equal(t, 1, s.settle(d)[0].Cleared)
}

func TestEndToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for i := range 20 {
			s.do(node(orbit.NodeID(fmt.Sprint("n", i)), 10))
		}
		ctx, cancel := context.WithCancel(t.Context())
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Policy: LeastLoaded{}}
		go s.leases.Run(ctx)
		go d.Run(ctx)
		for i := range 4 {
			sch := &Scheduler{Name: fmt.Sprint("s", i), Navigator: &nav.Services{}, Leases: s.leases}
			engine := &orbit.Engine{Name: sch.Name, Ledger: s.ledger, Navigator: sch}
			own, stop := context.WithCancel(ctx)
			go sch.Keep(own, nil)
			go engine.Run(own)
			if i == 0 {
				time.AfterFunc(5*time.Millisecond, stop)
			} else {
				defer stop()
			}
		}
		s.do(orbit.Submit{IDs: ids("x", 100), Spec: cpu(1)})
		s.do(orbit.Submit{IDs: ids("y", 100), Spec: cpu(1)})
		time.Sleep(time.Minute)
		require.Zero(t, s.state().PendingCount())
		cancel()
		synctest.Wait()
	})
}

// tester is a *testing.T, *testing.B or *rapid.T.
type tester interface {
	require.TestingT
	Helper()
	Fatalf(format string, args ...any)
}
