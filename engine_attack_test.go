package orbit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plansWithin counts the plans of an engine within a minute of virtual time, at most 1,000.
func plansWithin(t *testing.T, e *Engine) int {
	var plans atomic.Int64 // a Plan that was given up may still be running when Run returns
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inner := e.Navigator
	e.Navigator = planFunc(func(ctx context.Context, v *View, p []*Capsule) (Plan, error) {
		if plans.Add(1) == 1000 {
			cancel()
		}
		return inner.Plan(ctx, v, p)
	})
	assert.NoError(t, e.Run(ctx))
	time.Sleep(time.Second) // for a Plan that was given up
	return int(plans.Load())
}

// An engine backs off when its passes get nowhere, however that comes about (I11).
func TestNothingSpins(t *testing.T) {
	refused := func(err error) func(*MemoryLedger) Ledger {
		return func(l *MemoryLedger) Ledger {
			return &bent{Ledger: l, propose: func(context.Context, Proposal) (Revision, error) { return 0, err }}
		}
	}
	same := func(l *MemoryLedger) Ledger { return l }
	for name, c := range map[string]struct {
		ledger func(*MemoryLedger) Ledger
		nav    Navigator
	}{
		"writes are down":       {refused(ErrUnavailable), &greedy{}},
		"outcomes stay unknown": {refused(ErrUnknown), &greedy{}},
		"bets never hold": {same, &greedy{after: func(p *Plan) {
			for i := range p.Proposals {
				p.Proposals[i].If = append(p.Proposals[i].If, MarkAt{Key: "lease", Revision: 7})
			}
		}}},
		"classes of its own": {same, planFunc(func(_ context.Context, _ *View, p []*Capsule) (Plan, error) {
			c, spec := *p[0], *p[0].Spec
			c.Spec = &spec
			return Plan{Unplaced: []Unplaced{{&c, &NoFit{}}}}, nil
		})},
		"an id of its own": {same, planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
			return Plan{Proposals: []Proposal{{ID: ProposalID{1}, Do: []Commitment{Mark{Key: "plan/m", Value: "v"}}}}}, nil
		})},
		"a heartbeat": {same, planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
			return Plan{Proposals: []Proposal{{Do: []Commitment{Mark{Key: "plan/m", Value: "v"}}}}}, nil
		})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &MemoryLedger{}
				commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(10)},
					Submit{IDs: []CapsuleID{"b", "b2"}, Spec: wants(9)})
				e := &Engine{Name: "e", Ledger: c.ledger(l), Navigator: c.nav, MaxPlan: 2, Backoff: Backoff{Initial: time.Second}}
				assert.Less(t, plansWithin(t, e), 100)
			})
		})
	}
}

// A sweep that takes longer than ParkFor gets to its end all the same: classes come back once the others have
// had their turn.
func TestLongSweepGetsThrough(t *testing.T) {
	for _, parkFor := range []time.Duration{1, 30 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			l := &MemoryLedger{}
			commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(100)},
				Submit{IDs: []CapsuleID{"b"}, Spec: wants(101)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(10)})
			slow := &greedy{before: func(*View, []*Capsule) { time.Sleep(20 * time.Millisecond) }}
			plansWithin(t, &Engine{Ledger: l, Navigator: slow, MaxPlan: 1, ParkFor: parkFor})
			assert.Equal(t, NodeID("n"), where(t, l, "c"))
		})
	}
}

// A capsule that is not placed for a reason of the navigator's own does not keep those behind it from their
// turn.
func TestUnplacedHeadDoesNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"w1", "w2", "w3"}, Spec: wants(1)}, Submit{IDs: []CapsuleID{"good"}, Spec: wants(2)})
		picky := &greedy{}
		nav := planFunc(func(ctx context.Context, v *View, p []*Capsule) (Plan, error) {
			if strings.HasPrefix(string(p[0].ID), "w") {
				return Plan{Unplaced: []Unplaced{{p[0], errors.New("not today")}}}, nil
			}
			return picky.Plan(ctx, v, p)
		})
		plansWithin(t, &Engine{Ledger: l, Navigator: nav, MaxPlan: 1})
		assert.Equal(t, NodeID("n"), where(t, l, "good"))
	})
}

// typedNil is the ordinary mistake: its methods panic on a nil receiver.
type typedNil struct{ inner error }

func (e *typedNil) Error() string { return "x" }
func (e *typedNil) Unwrap() error { return e.inner }

// An error of the navigator's own that panics when it is looked at is contained.
func TestErrorThatPanicsIsContained(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, Submit{IDs: []CapsuleID{"a"}, Spec: wants(1)})
	e := Engine{Ledger: l, Navigator: planFunc(func(_ context.Context, _ *View, p []*Capsule) (Plan, error) {
		var why *typedNil
		return Plan{Unplaced: []Unplaced{{p[0], why}}}, nil
	})}
	round := e.Pass(t.Context())
	require.ErrorIs(t, errors.Join(round.Errors...), ErrNavigator)
}

// A navigator that keeps the slices of its proposals and changes them once Plan has returned changes nothing of what
// is proposed, nor of what is sent again while the outcome is unknown.
func TestNavigatorCannotChangeWhatItHasProposed(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: wants(1)})
	var kept []Proposal
	sent := 0
	ledger := &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		if len(kept) == 0 {
			return l.Propose(ctx, p)
		}
		kept[0].Do[0], kept[0].If[0] = Release{Capsule: "b", Final: true}, MarkAt{Key: "no", Revision: 1}
		if sent++; sent == 1 {
			return 0, ErrUnknown
		}
		return l.Propose(ctx, p)
	}}
	e := Engine{Ledger: ledger, MaxPlan: 1, Navigator: &greedy{after: func(p *Plan) { kept = p.Proposals }}}
	e.Pass(t.Context())
	e.Pass(t.Context())
	assert.Equal(t, NodeID("n"), where(t, l, "a"))
	assert.False(t, snapshotOf(t, l).Capsule("b").Released())
}

// textFunc is an error or a value whose text a test decides.
type textFunc func() string

func (f textFunc) Error() string { return f() }

// An error, or a value panicked with, whose text exits the goroutine, never comes, or panics without end is reported
// as the navigator's failure; the engine and its neighbours go on, and end with their context.
func TestTextsOfANavigatorsErrorsAreContained(t *testing.T) {
	var endless textFunc
	endless = func() string { panic(endless) }
	for name, text := range map[string]textFunc{
		"exits":  func() string { runtime.Goexit(); return "" },
		"blocks": func() string { time.Sleep(time.Hour); return "" },
		"panics": endless,
	} {
		for how, fail := range map[string]func() error{
			" returned":      func() error { return text },
			" panicked with": func() error { panic(text) },
		} {
			t.Run(name+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, plans := &MemoryLedger{}, 0
					commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(1), Owner: "bad"}, Submit{IDs: []CapsuleID{"b"}, Spec: wants(1), Owner: "good"})
					sane := &greedy{}
					var errs []error
					bad := &Engine{Name: "bad", Ledger: l, PlanTimeout: time.Second, OnRound: func(r Round) { errs = append(errs, r.Errors...) },
						Navigator: planFunc(func(ctx context.Context, v *View, p []*Capsule) (Plan, error) {
							if plans++; plans == 1 {
								return Plan{}, fail()
							}
							return sane.Plan(ctx, v, p)
						})}
					good := &Engine{Name: "good", Ledger: l, Navigator: &greedy{claims: func(string, AppClass) bool { return false }}}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- (&Population{Engines: []*Engine{bad, good}}).Run(ctx) }()
					time.Sleep(2 * time.Minute)
					assert.Equal(t, []NodeID{"n", "n"}, []NodeID{where(t, l, "a"), where(t, l, "b")})
					cancel()
					synctest.Wait()
					select {
					case err := <-ended:
						require.NoError(t, err)
					default:
						t.Fatal("the population outlives its context")
					}
					require.NotEmpty(t, errs)
					require.ErrorIs(t, errs[0], ErrNavigator)
					time.Sleep(2 * time.Hour) // until goroutines that make texts are gone
				})
			})
		}
	}
}

// A Claims that never answers costs its engine, and its neighbours, one deadline, however many modules there
// are; and it does not hold up the end.
func TestClaimsThatBlocksCostsOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stuck := &MemoryLedger{}, make(chan struct{})
		commit(t, l, PutNode{machine("n", 100)})
		bad := &greedy{claims: func(string, AppClass) bool { <-stuck; return false }}
		good := &greedy{claims: func(string, AppClass) bool { return true }}
		ctx, cancel := context.WithCancel(t.Context())
		p := &Population{Engines: []*Engine{{Name: "bad", Ledger: l, Navigator: bad}, {Name: "good", Ledger: l, Navigator: good}}}
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		synctest.Wait()
		for i := range 10 {
			spec := wants(1)
			spec.Module = fmt.Sprint("module-", i)
			commit(t, l, Submit{IDs: names(spec.Module, 1), Spec: spec})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Zero(t, snapshotOf(t, l).PendingCount())
		start := time.Now()
		cancel()
		require.NoError(t, <-ended)
		assert.Less(t, time.Since(start), 2*time.Second)
		close(stuck)
	})
}

// While outcomes are unknown nothing is planned twice, and what is kept stays within what was sent.
func TestUnsettledIsBounded(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(10)})
	e := Engine{Ledger: &bent{Ledger: l, propose: func(context.Context, Proposal) (Revision, error) { return 0, ErrUnknown }}, Navigator: &greedy{}}
	for range 200 {
		e.Pass(t.Context())
		require.LessOrEqual(t, len(e.unsettled), 1)
	}
}

// A proposal is sent again in ten passes before it is given up, even if another one was before.
func TestUnknownOutcomesAreTriedAgainEachByItself(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: wants(1)})
	var sent []ProposalID
	e := Engine{MaxPlan: 1, Navigator: &greedy{}, Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		if sent = append(sent, p.ID); len(sent) == 10 {
			return l.Propose(ctx, p)
		}
		return 0, ErrUnknown
	}}}
	for range 40 {
		e.Pass(t.Context())
	}
	times := map[ProposalID]int{}
	for _, id := range sent {
		times[id]++
	}
	require.Equal(t, 10, times[sent[0]])
	require.Equal(t, 11, times[sent[10]], "once, and ten times again")
}

// What an engine knows of the losers of a pass is gone with the next plan, even if all work has one priority.
func TestLosersAreForgotten(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(10)})
	e := Engine{Ledger: &bent{Ledger: l, propose: func(context.Context, Proposal) (Revision, error) { return 0, ErrConflict }}, Navigator: &greedy{}}
	for range 200 {
		e.Pass(t.Context())
		require.LessOrEqual(t, len(e.losers), 1)
	}
}

// What an engine remembers stays within a constant of what lives: released holds, work that was withdrawn
// while it waited, modules that came and went.
func TestEngineForgets(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{Terminal: 16, History: 64}}
	hi, lo := wants(100), wants(1)
	hi.Priority = 9
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"hi1", "hi2"}, Spec: hi})
	e := Engine{Ledger: l, MaxPlan: 1, Navigator: planFunc(func(_ context.Context, _ *View, p []*Capsule) (Plan, error) {
		return Plan{Unplaced: []Unplaced{{p[0], errors.New("not today")}}}, nil
	})}
	for i := range 5000 {
		id, hold := CapsuleID(fmt.Sprint("lo", i)), HoldID(fmt.Sprint("h", i))
		commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: lo}, Hold{ID: hold, Node: "n", Room: Resources{CPU: 1}, Ends: time.Now().Add(time.Hour)})
		e.Pass(t.Context())
		commit(t, l, Release{Capsule: id, Final: true}, Release{Hold: hold})
	}
	assert.Less(t, len(e.view.ends), 200)
	for _, k := range e.view.queue.classes {
		assert.Less(t, k.size(), 2*compactFrom)
	}
	assert.Less(t, len(e.view.queue.held), 2*compactFrom)
}
