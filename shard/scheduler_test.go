package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
)

// plan calls the scheduler's Plan on the newest state.
func (s *stage) plan(sch *Scheduler, ids ...orbit.CapsuleID) (orbit.Plan, error) {
	s.t.Helper()
	var view orbit.View
	require.NoError(s.t, view.Refresh(context.Background(), s.ledger, nil, time.Now()))
	var pending []*orbit.Capsule
	for _, id := range ids {
		pending = append(pending, s.state().Capsule(id))
	}
	return sch.Plan(context.Background(), &view, pending)
}

// says is a navigator that leaves everything unplaced, with one reason.
func says(why error) orbit.Navigator {
	return nav.Func(func(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
		for _, c := range pending {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
		}
		return plan, nil
	})
}

// TestTheDeadCannotPlaceWhatOthersHave: a proposal is planned, the lease of its scheduler ends, the capsule goes to
// another scheduler, and then the proposal arrives and is refused. It covers I13.
func TestTheDeadCannotPlaceWhatOthersHave(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprint("fenced=", fenced), func(t *testing.T) {
			s := newStage(t)
			s.live("a", "b")
			s.do(node("n", 10), orbit.Submit{IDs: ids("x", 1), Spec: cpu(1), Owner: "a"})
			sch := &Scheduler{Name: "a", Navigator: &nav.Services{}}
			if fenced {
				sch.Leases = s.leases
				sch.Serve(s.terms["a"])
			}
			late, err := s.plan(sch, "x000")
			require.NoError(t, err)
			require.Len(t, late.Proposals, 1)
			require.NoError(t, s.state().Check(late.Proposals[0]))
			s.die("a")
			require.Equal(t, fenced, s.state().Check(late.Proposals[0]) != nil, "from the moment on that the end is committed")
			s.settle(&Dispatcher{Ledger: s.ledger, Leases: s.leases})
			require.Equal(t, "b", s.owner("x000"))
			s.live("a") // the scheduler is back with a new term
			_, err = s.ledger.Propose(t.Context(), late.Proposals[0])
			if !fenced {
				require.NoError(t, err, "the ledger does not ask whose capsule it is")
				return
			}
			require.ErrorIs(t, err, orbit.ErrConflict)
			_, err = s.plan(sch, "x000")
			require.ErrorIs(t, err, ErrNoTerm, "the old process does not profit from the new term")
			sch.Serve(s.terms["a"])
			_, err = s.plan(sch, "x000")
			require.NoError(t, err)
		})
	}
}

// TestTheReturnedPlansOnWhatItIsGiven: capsules are taken from a dead scheduler only while it is dead, and a scheduler
// that is back does not plan on a view from before its new term.
func TestTheReturnedPlansOnWhatItIsGiven(t *testing.T) {
	s := newStage(t)
	s.live("a", "b")
	long := strings.Repeat("/", 250)
	s.do(node("n", 10), orbit.Submit{IDs: ids("x", 2), Spec: cpu(1), Owner: "a"}, orbit.Submit{IDs: ids("y", 1), Spec: cpu(1), Owner: long})
	s.die("a")
	c := &counted{MemoryLedger: s.ledger, stale: s.state()}
	var before orbit.View
	require.NoError(t, before.Refresh(t.Context(), s.ledger, nil, time.Now()))
	s.live("a")
	d := &Dispatcher{Ledger: c, Leases: s.leases}
	r := d.Step(t.Context())
	require.Equal(t, map[string]int{"b": 1}, r.Dispatched, "%v", r.Errors)
	require.Equal(t, "b", s.owner("y000"))
	require.Equal(t, 2, r.Conflicts)
	sch := &Scheduler{Name: "a", Navigator: &nav.Services{}, Leases: s.leases}
	sch.Serve(s.terms["a"])
	plan, err := sch.Plan(t.Context(), &before, []*orbit.Capsule{before.State().Capsule("x000")})
	require.NoError(t, err)
	require.Empty(t, plan.Proposals)
	plan, err = s.plan(sch, "x000")
	require.NoError(t, err)
	require.Len(t, plan.Proposals, 1)
}

func TestNothingWithoutATerm(t *testing.T) {
	s := newStage(t)
	s.do(node("n", 1), orbit.Submit{IDs: ids("x", 1), Spec: cpu(1), Owner: "a"})
	_, err := s.plan(&Scheduler{Name: "a", Navigator: &nav.Services{}, Leases: s.leases}, "x000")
	require.ErrorIs(t, err, ErrNoTerm)
	_, err = s.plan(&Scheduler{Name: "a"}, "x000")
	require.ErrorIs(t, err, orbit.ErrInvalid)
	require.False(t, (&Scheduler{}).Claims("", orbit.Batch))
}

// TestOnlyTheBetOnItsTermIsAdded: proposals whose bets share an array each get one more bet.
func TestTheBetIsAddedToACopy(t *testing.T) {
	s := newStage(t)
	s.live("a")
	shared := make([]orbit.Precondition, 1, 8)
	shared[0] = orbit.MarkAt{Key: "mine"}
	inner := nav.Func(func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error) {
		return orbit.Plan{Proposals: []orbit.Proposal{{If: shared}, {If: shared}}}, nil
	})
	sch := &Scheduler{Name: "a", Navigator: inner, Leases: s.leases}
	sch.Serve(s.terms["a"])
	plan, err := s.plan(sch)
	require.NoError(t, err)
	bet := orbit.MarkAt{Key: "scheduler/a", Revision: s.terms["a"].Epoch}
	for _, p := range plan.Proposals {
		require.Equal(t, []orbit.Precondition{bet, orbit.MarkAt{Key: "mine"}}, p.If)
	}
	require.Nil(t, shared[:2][1])
}

func TestGivingBack(t *testing.T) {
	s := newStage(t)
	s.do(orbit.Submit{IDs: ids("x", 2), Spec: cpu(1), Owner: "a/b"})
	nofit := fmt.Errorf("wrapped: %w", &orbit.NoFit{})
	sch := &Scheduler{Name: "a/b", Navigator: says(nofit)}
	plan, err := s.plan(sch, "x000")
	require.NoError(t, err)
	require.Len(t, plan.Proposals, 1)
	require.Len(t, plan.Unplaced, 1)
	var back *Error
	require.ErrorAs(t, plan.Unplaced[0].Why, &back)
	require.ErrorIs(t, back, ErrGivenBack)
	var parks *orbit.NoFit
	require.NotErrorAs(t, plan.Unplaced[0].Why, &parks, "the engine must not put the class aside")
	_, err = s.ledger.Propose(t.Context(), plan.Proposals[0])
	require.NoError(t, err)
	require.Empty(t, s.owner("x000"))
	require.Equal(t, "a/b", s.owner("x001"))
	list, err := parseFailures(s.mark("plan/capsule/failed/x000"))
	require.NoError(t, err)
	require.Len(t, list.list, 1)
	require.Equal(t, orbit.Revision(1), list.list[0].View)
	require.Contains(t, list.list[0].Why, "wrapped")
	_, err = s.ledger.Propose(t.Context(), plan.Proposals[0])
	require.ErrorIs(t, err, orbit.ErrConflict, "once")
}

func TestPatience(t *testing.T) {
	for _, c := range []struct{ patience, passes int }{{0, 16}, {1, 1}, {3, 3}, {-1, 0}} {
		s := newStage(t)
		s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(1), Owner: "a"})
		why := errors.New("not now")
		if c.patience == 3 {
			why = nil
		}
		sch := &Scheduler{Name: "a", Navigator: says(why), Patience: c.patience}
		for pass := 1; pass <= 40; pass++ {
			plan, err := s.plan(sch, "x000")
			require.NoError(t, err)
			if pass == c.passes {
				require.Len(t, plan.Proposals, 1)
				break
			}
			require.Empty(t, plan.Proposals, "pass %d", pass)
		}
	}
}

func TestPatienceStartsAgainWithAPlace(t *testing.T) {
	s := newStage(t)
	s.do(node("n", 9), orbit.Submit{IDs: ids("x", 1), Spec: cpu(1), Owner: "a"})
	place := true
	inner := nav.Func(func(ctx context.Context, v *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		if place {
			return orbit.Plan{Proposals: []orbit.Proposal{{Do: []orbit.Commitment{orbit.Place{Capsule: "x000", Node: "n"}}}}}, nil
		}
		return says(errors.New("no")).Plan(ctx, v, pending)
	})
	sch := &Scheduler{Name: "a", Navigator: inner, Patience: 3}
	for i := range 12 { // two of three have no place
		place = i%3 == 2
		plan, err := s.plan(sch, "x000")
		require.NoError(t, err)
		require.Len(t, plan.Proposals, map[bool]int{true: 1}[place])
	}
	for i := range 2000 { // the counts do not pile up
		id := orbit.CapsuleID(fmt.Sprint("y", i))
		s.do(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: cpu(1), Owner: "a"})
		_, err := s.plan(sch, id)
		place = false
		require.NoError(t, err)
		s.do(orbit.Assign{Capsule: id, From: "a", Owner: "b"})
	}
	require.Less(t, len(sch.unplaced), 200)
}

func gangOf(id orbit.GangID, n int) *orbit.Gang {
	return &orbit.Gang{ID: id, Roles: []orbit.Role{
		{Name: "r", Spec: cpu(2), Members: ids(string(id)+"/r", n), Min: 1}, {Name: "q", Spec: cpu(1), Members: ids(string(id)+"/q", 1)},
	}}
}

func TestGangsGoBackAsAWhole(t *testing.T) {
	s := newStage(t)
	s.do(node("n", 100), orbit.Submit{Gang: gangOf("g", 3), Owner: "a"})
	sch := &Scheduler{Name: "a", Navigator: says(&orbit.NoFit{})}
	plan, err := s.plan(sch, "g/r001", "g/r002")
	require.NoError(t, err)
	require.Len(t, plan.Proposals, 1)
	require.Len(t, plan.Proposals[0].Do, 5, "four members and a mark")
	require.Len(t, plan.Proposals[0].If, 1)
	late := plan.Proposals[0]

	place := []orbit.Commitment{orbit.Place{Capsule: "g/r000", Node: "n"}, orbit.Place{Capsule: "g/q000", Node: "n"}}
	partly := nav.Func(func(ctx context.Context, v *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		plan, _ := says(&orbit.NoFit{}).Plan(ctx, v, pending)
		plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: place})
		return plan, nil
	})
	plan, err = s.plan(&Scheduler{Name: "a", Navigator: partly}, "g/r001")
	require.NoError(t, err)
	require.Len(t, plan.Proposals, 1, "what is being placed is not given back")
	s.do(place...)
	plan, err = s.plan(sch, "g/r001")
	require.NoError(t, err)
	require.Empty(t, plan.Proposals, "those that are missing belong where the others are")
	_, err = s.ledger.Propose(t.Context(), late)
	require.NoError(t, err, "not the ledger's business: assignments are free")
}

func TestWhatCannotBeMarkedStays(t *testing.T) {
	s := newStage(t)
	long := orbit.CapsuleID(strings.Repeat("x", 253-len(failedMark)+1))
	s.do(orbit.Submit{IDs: []orbit.CapsuleID{long, long[1:]}, Spec: cpu(1), Owner: "a"})
	plan, err := s.plan(&Scheduler{Name: "a", Navigator: says(&orbit.NoFit{})}, long, long[1:])
	require.NoError(t, err)
	require.Len(t, plan.Proposals, 1)
	require.ErrorIs(t, plan.Unplaced[0].Why, ErrKey)
	var parks *orbit.NoFit
	require.ErrorAs(t, plan.Unplaced[0].Why, &parks)
}

func TestACorruptMarkIsWrittenAnew(t *testing.T) {
	s := newStage(t)
	s.live("a", "b")
	s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(1), Owner: "a"}, orbit.Mark{Key: "plan/capsule/failed/x000", Value: "garbage"})
	d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
	r := d.Step(t.Context())
	require.Len(t, r.Errors, 1)
	var what *Error
	require.ErrorAs(t, r.Errors[0], &what)
	require.Equal(t, "plan/capsule/failed/x000", what.Key)
	require.Empty(t, d.Step(t.Context()).Errors, "once")
	s.giveBack("a", "x000")
	_, err := parseFailures(s.mark("plan/capsule/failed/x000"))
	require.NoError(t, err)
	s.settle(d)
	require.Equal(t, "b", s.owner("x000"))
}

func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		ctx, cancel := context.WithCancel(t.Context())
		sch := &Scheduler{Name: "a", Navigator: &nav.Services{}, Leases: s.leases}
		var said []error
		done := make(chan error, 1)
		go func() { done <- sch.Keep(ctx, func(err error) { said = append(said, err) }) }()
		go s.leases.Run(ctx)
		time.Sleep(time.Minute)
		first := sch.term.Load()
		require.NotNil(t, first)
		require.Equal(t, 1, int(s.state().Revision()), "refreshes cost no commit")
		require.NoError(t, s.leases.Resign(ctx, *first)) // another process ends its lease
		time.Sleep(time.Minute)
		require.Greater(t, sch.term.Load().Epoch, first.Epoch, "it begins another term")
		cancel()
		require.NoError(t, <-done)
		_, lives := s.leases.In(s.state(), "a")
		require.False(t, lives, "it resigns")
		require.Empty(t, said)

		held, err := s.leases.Acquire(t.Context(), "a", "another process")
		require.NoError(t, err)
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- sch.Keep(ctx, func(err error) { said = append(said, err) }) }()
		time.Sleep(time.Second)
		require.NoError(t, s.leases.Resign(t.Context(), held))
		time.Sleep(5 * time.Second)
		cancel()
		require.NoError(t, <-done)
		require.NotEmpty(t, said)
		require.ErrorIs(t, said[0], lease.ErrHeld)
		require.Greater(t, sch.term.Load().Epoch, held.Epoch)
	})
	require.ErrorIs(t, (&Scheduler{Name: "a"}).Keep(t.Context(), nil), orbit.ErrInvalid)
}

// Of two schedulers with one name the second is refused while the first keeps its lease: it has no term, so it plans
// nothing, and both of its errors say who holds the lease. It takes over when the first one ends.
func TestKeepRefusesADuplicateName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		go s.leases.Run(t.Context())
		s.do(node("n", 9))
		view := &orbit.View{}
		var said [2][]error
		var both [2]*Scheduler
		var stops [2]context.CancelFunc
		for i := range both {
			sch := &Scheduler{Name: "a", Navigator: &nav.Services{}, Leases: s.leases}
			ctx, stop := context.WithCancel(t.Context())
			both[i], stops[i] = sch, stop
			go func() { _ = sch.Keep(ctx, func(err error) { said[i] = append(said[i], err) }) }()
			synctest.Wait()
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		first := both[0].term.Load()
		require.Equal(t, orbit.Revision(2), first.Epoch, "its lease was not taken")
		require.Empty(t, said[0])
		require.NotEmpty(t, said[1])
		require.Nil(t, both[1].term.Load())
		require.NoError(t, view.Refresh(t.Context(), s.ledger, nil, time.Now()))
		_, err := both[0].Plan(t.Context(), view, nil)
		require.NoError(t, err)
		_, err = both[1].Plan(t.Context(), view, nil)
		require.ErrorIs(t, err, ErrNoTerm)
		for _, err := range []error{err, said[1][0]} {
			require.ErrorIs(t, err, lease.ErrHeld)
			var held *lease.Error
			require.ErrorAs(t, err, &held)
			require.Equal(t, *first, held.Held)
		}
		stops[0]()
		time.Sleep(time.Minute)
		require.NotNil(t, both[1].term.Load(), "the name is free")
		stops[1]()
		synctest.Wait()
	})
}

// The lease of a scheduler depends on its engine: while a call of Plan hangs the lease is not refreshed, and when it
// has run out others get the capsules. What that call of Plan returns at last cannot be committed. Then the scheduler
// begins a new term.
func TestAStuckPlanLosesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.do(node("n", 9))
		go s.leases.Run(t.Context())
		go (&Dispatcher{Ledger: s.ledger, Leases: s.leases}).Run(t.Context())
		stuck := make(chan struct{})
		inner := nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			<-stuck // it ignores its context
			return (&nav.Services{}).Plan(context.WithoutCancel(ctx), view, pending)
		})
		var said []error
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for _, sch := range []*Scheduler{
			{Name: "a", Navigator: inner, Leases: s.leases}, {Name: "b", Navigator: &nav.Services{}, Leases: s.leases},
		} {
			go func() {
				_ = sch.Keep(ctx, func(err error) {
					if sch.Name == "a" {
						said = append(said, err)
					}
				})
			}()
			engine := &orbit.Engine{Name: sch.Name, Ledger: s.ledger, Navigator: sch, PlanTimeout: time.Second}
			go engine.Run(ctx)
			time.Sleep(time.Second)
		}
		s.do(orbit.Submit{IDs: ids("x", 2), Spec: cpu(1)})
		time.Sleep(time.Second)
		require.Equal(t, 1, s.state().PendingCount(), "a has one of the two")
		time.Sleep(40 * time.Second) // a lease that has just been refreshed runs out, and some steps follow
		synctest.Wait()
		require.Zero(t, s.state().PendingCount())
		_, lives := s.leases.In(s.state(), "a")
		require.False(t, lives)
		require.ErrorIs(t, said[0], ErrStuck)
		close(stuck)
		time.Sleep(40 * time.Second)
		_, lives = s.leases.In(s.state(), "a")
		require.True(t, lives, "it is well again")
		require.NoError(t, s.state().Verify())
		stop()
		synctest.Wait()
	})
}
