package orbit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The slice of pending capsules is the navigator's own: it may cut it up.
func TestPlanMayKeepAndChangePending(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: wants(11)})
	e := Engine{Ledger: l, Navigator: planFunc(func(_ context.Context, _ *View, p []*Capsule) (Plan, error) {
		first := p[0]
		_ = slices.DeleteFunc(p, func(c *Capsule) bool { return c.ID == "b" })
		return Plan{Unplaced: []Unplaced{{first, &NoFit{}}}}, nil
	})}
	require.NotPanics(t, func() { e.Pass(t.Context()) })
}

// An engine says when it places, by its clock, where a plan does not. What a Draft places is placed when its view was made.
func TestEngineSaysWhenItPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"bare", "said", "draft"}, Spec: wants(1), At: 7})
		var draft Draft
		e := Engine{Ledger: l, Navigator: planFunc(func(_ context.Context, v *View, p []*Capsule) (Plan, error) {
			draft.Sync(v)
			if err := draft.Place(v.State().Capsule("draft"), Choice{Node: v.State().Node("n")}); err != nil {
				return Plan{}, err
			}
			time.Sleep(time.Second)
			return Plan{Proposals: []Proposal{
				{Do: []Commitment{Place{Capsule: "bare", Node: "n"}}},
				{Do: []Commitment{Place{Capsule: "said", Node: "n", At: 9}}},
				draft.Propose(),
			}}, nil
		})}
		start := time.Now()
		require.Equal(t, 3, e.Pass(t.Context()).Committed)
		s := snapshotOf(t, l)
		assert.Equal(t, start.Add(time.Second).UTC(), s.Capsule("bare").PlaceTime.Time())
		assert.Equal(t, Instant(9), s.Capsule("said").PlaceTime)
		assert.Equal(t, start.UTC(), s.Capsule("draft").PlaceTime.Time())
		assert.Equal(t, Instant(7), s.Capsule("bare").SubmitTime())
	})
	require.Zero(t, Instant(0).Time())
	require.Zero(t, instantOf(time.Time{}))
	require.Zero(t, instantOf(time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)))
}

// A hold that is made while the engine rests, and ends before the rest would, ends in time (SCENARIOS 25).
func TestHoldMadeDuringARestEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		e := &Engine{Ledger: l, Navigator: &greedy{}, Backoff: Backoff{Max: 24 * time.Hour}}
		go func() { _ = e.Run(ctx) }()
		time.Sleep(2 * time.Hour)
		commit(t, l, Hold{ID: "h", Node: "n", Room: Resources{CPU: 10}, Ends: time.Now().Add(time.Second)})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, lives := snapshotOf(t, l).Hold("h")
		assert.False(t, lives)
		stop()
		synctest.Wait()
	})
}

// That a second try could not be sent says nothing of the first: nothing is planned until its outcome is known.
func TestUnknownThenUnavailableIsStillUnknown(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(10)})
	errs := []error{ErrUnknown, ErrUnavailable}
	nav := &greedy{}
	e := Engine{Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		if len(errs) > 0 {
			err := errs[0]
			errs = errs[1:]
			return 0, err
		}
		return l.Propose(ctx, p)
	}}, Navigator: nav}
	e.Pass(t.Context())
	require.Len(t, nav.asked, 1)
	e.Pass(t.Context())
	assert.Len(t, nav.asked, 1)
}

// A proposal whose outcome was unknown and that is committed when it is sent again changes what the pass plans on: it
// must not give away the same room once more, and lose to itself.
func TestPassPlansOnWhatItHasSettled(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: wants(10)})
	lost := 1
	nav := &greedy{}
	e := Engine{MaxPlan: 1, Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		if lost--; lost >= 0 {
			return 0, ErrUnknown // it has not got there
		}
		return l.Propose(ctx, p)
	}}, Navigator: nav}
	e.Pass(t.Context())
	round := e.Pass(t.Context())
	assert.Zero(t, round.Conflicts)
	assert.Equal(t, 1, round.Committed, "the one that was lost")
	assert.Equal(t, 1, round.Parked, "the next does not fit beside it")
	assert.Equal(t, [][]CapsuleID{{"a"}, {"b"}}, nav.asked)
	assert.Equal(t, nav.views[len(nav.views)-1], round.View)
}

// The engine writes its ids into a copy: a navigator may return the same proposals in every plan.
func TestProposalsMayBeUsedAgain(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(11)})
	beat := []Proposal{{Do: []Commitment{Mark{Key: "plan/lease", Value: "mine"}}}}
	e := Engine{Ledger: l, Navigator: planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
		return Plan{Proposals: beat}, nil
	})}
	e.Pass(t.Context())
	commit(t, l, Mark{Key: "plan/lease"})
	e.Pass(t.Context())
	m, _ := snapshotOf(t, l).Mark("plan/lease")
	assert.Equal(t, "mine", m)
}

// What was denied while a call of Claims overran is asked for again when it has returned.
func TestClaimsThatWasLateIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		x, y := wants(1), wants(1)
		x.Module, y.Module = "x", "y"
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: x}, Submit{IDs: []CapsuleID{"b"}, Spec: y})
		slow := true
		nav := &greedy{claims: func(m string, _ AppClass) bool {
			if slow {
				slow = false
				time.Sleep(2 * time.Second)
			}
			return true
		}}
		e := &Engine{Ledger: l, Navigator: nav}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_ = e.Run(ctx)
		_, err := l.Propose(t.Context(), Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"c"}, Spec: y}}})
		require.NoError(t, err)
		ctx, cancel2 := context.WithTimeout(t.Context(), time.Hour)
		defer cancel2()
		_ = e.Run(ctx)
		assert.Equal(t, NodeID("n"), where(t, l, "b"))
		assert.Equal(t, NodeID("n"), where(t, l, "c"))
	})
}

// A node whose label is empty is in no domain, for the engine as for a GroupIn bet.
func TestEmptyLabelIsNoDomain(t *testing.T) {
	l := &MemoryLedger{}
	g := wants(1)
	g.Group = "g"
	near := wants(1)
	near.Near = Near{Group: "g", Level: "zone"}
	commit(t, l, PutNode{machine("n", 10).inZone("")}, PutNode{machine("z", 10).inZone("a")}, Submit{IDs: []CapsuleID{"g1", "g2"}, Spec: g})
	commit(t, l, Place{Capsule: "g1", Node: "n"}, Place{Capsule: "g2", Node: "z"})
	commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: near})
	e := Engine{Ledger: l, Navigator: &greedy{}}
	for range 5 {
		r := e.Pass(t.Context())
		t.Log(r)
	}
	assert.NotEmpty(t, where(t, l, "c"))
}

// A dump that puts a member of a gang into another role is refused.
func TestRestoredMemberIsInItsOwnRole(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "a", Spec: wants(1), Members: []CapsuleID{"m1"}}, {Name: "b", Spec: wants(2), Members: []CapsuleID{"m2"}}}}})
	var b strings.Builder
	require.NoError(t, snapshotOf(t, l).Dump(&b))
	text := strings.Replace(b.String(), `"gang":"g","role":1,`, `"gang":"g",`, 1)
	require.NotEqual(t, text, b.String())
	_, err := restoreFrom(strings.NewReader(text))
	assert.ErrorIs(t, err, ErrInvalid)
}

// A Plan of a Pass that was given up keeps its view, though Run rests beside it.
func TestViewStandsStillForAPlanThatWasGivenUp(t *testing.T) {
	synctest.Test(t, viewStandsStillForAPlanThatWasGivenUp)
}

func viewStandsStillForAPlanThatWasGivenUp(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"big"}, Spec: wants(11)}, Submit{IDs: []CapsuleID{"w"}, Spec: wants(1)})
	entered, left := make(chan struct{}), make(chan struct{})
	n := 0
	nav := planFunc(func(_ context.Context, v *View, p []*Capsule) (Plan, error) {
		if n++; n == 1 {
			return Plan{Unplaced: []Unplaced{{p[0], &NoFit{}}, {p[1], errors.New("not today")}}}, nil
		}
		close(entered)
		defer close(left)
		for range 200 {
			_ = v.Revision() // the view is good until Plan returns
			time.Sleep(time.Millisecond)
		}
		return Plan{}, nil
	})
	e := &Engine{Ledger: l, ParkFor: time.Hour, Backoff: Backoff{Initial: time.Hour, Max: time.Hour}, Navigator: nav}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait() // Run rests
	pctx, giveUp := context.WithCancel(t.Context())
	go func() { <-entered; giveUp() }()
	e.Pass(pctx) // given up; its Plan still runs
	for i := range 5 {
		commit(t, l, PutNode{machine(NodeID(fmt.Sprint("m", i)), 1)})
		time.Sleep(5 * time.Millisecond)
	}
	<-left
	stop()
	<-ended
}

// A navigator that assigns a capsule to its own engine in every plan does not keep it from resting.
func TestAssigningToOneselfDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, Submit{IDs: []CapsuleID{"a"}, Spec: wants(1), Owner: "e"})
		nav := planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
			return Plan{Proposals: []Proposal{{Do: []Commitment{Assign{Capsule: "a", From: "e", Owner: "e"}}}}}, nil
		})
		e := &Engine{Name: "e", Ledger: l, Navigator: nav, Backoff: Backoff{Initial: time.Second}}
		assert.Less(t, plansWithin(t, e), 100)
	})
}

// However many capsules are not placed for reasons of the navigator's own, those behind them have their turn.
func TestManyUnplacedHeadsDoNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: names("w", 80), Spec: wants(1)}, Submit{IDs: []CapsuleID{"good"}, Spec: wants(2)})
		picky := &greedy{}
		nav := planFunc(func(ctx context.Context, v *View, p []*Capsule) (Plan, error) {
			if strings.HasPrefix(string(p[0].ID), "w") {
				return Plan{Unplaced: []Unplaced{{p[0], errors.New("not today")}}}, nil
			}
			return picky.Plan(ctx, v, p)
		})
		plansWithin(t, &Engine{Ledger: l, Navigator: nav, MaxPlan: 1, Backoff: Backoff{Max: 50 * time.Millisecond}})
		assert.Equal(t, NodeID("n"), where(t, l, "good"))
	})
}

// A navigator that makes a hold for what it cannot place, and ends it again, does not keep what is behind that from
// having its turn: a hold that ends moves no capsule.
func TestHoldsThatComeAndGoAreNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: names("w", 3), Spec: wants(1)}, Submit{IDs: []CapsuleID{"good"}, Spec: wants(2)})
		picky := &greedy{}
		nav := planFunc(func(ctx context.Context, v *View, p []*Capsule) (Plan, error) {
			if p[0].ID == "good" {
				return picky.Plan(ctx, v, p)
			}
			do := []Commitment{Hold{ID: "h", Node: "n", Room: Resources{1}, Ends: v.Now().Add(time.Hour)}}
			if _, there := v.State().Hold("h"); there {
				do = append([]Commitment{Release{Hold: "h"}}, do...)
			}
			return Plan{Proposals: []Proposal{{Do: do}}, Unplaced: []Unplaced{{p[0], errors.New("not today")}}}, nil
		})
		plansWithin(t, &Engine{Ledger: l, Navigator: nav, MaxPlan: 1, Backoff: Backoff{Max: 50 * time.Millisecond}})
		assert.Equal(t, NodeID("n"), where(t, l, "good"))
	})
}
