package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// TestRace runs dispatchers, schedulers that die and return, and users at the same time on real goroutines, and then
// replays the history. At every revision the pending members of a gang are with at most one living scheduler, and no
// dispatcher assigns anything to a scheduler whose lease is over. At the end everything is placed and no mark is left.
func TestRace(t *testing.T) {
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 20}}
	s := newStage(t)
	s.ledger, s.leases.Ledger, s.leases.TTL = ledger, ledger, time.Hour
	for i := range 8 {
		s.do(node(orbit.NodeID(fmt.Sprint("n", i)), 12))
	}
	start := s.state()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.leases.Run(ctx) })
	for i := range 3 {
		policy := []Policy{&RoundRobin{}, LeastLoaded{}, Hash{}}[i]
		wg.Go(func() {
			for ctx.Err() == nil { // the dispatcher is stopped and started all the time
				run, worked := lifeOf(ctx, 1+i)
				d := &Dispatcher{Ledger: ledger, Leases: s.leases, Policy: policy, Retry: orbit.Backoff{Initial: time.Millisecond, Max: 20 * time.Millisecond}}
				d.Hook = func(Round) { worked() }
				_ = d.Run(run)
			}
		})
	}
	for i := range 4 {
		sch := &Scheduler{Name: fmt.Sprint("s", i), Navigator: &moody{rng: rand.New(rand.NewPCG(uint64(i), 0))}, Leases: s.leases, Patience: 3}
		var worked func()
		engine := &orbit.Engine{Name: sch.Name, Ledger: ledger, Navigator: sch, Backoff: orbit.Backoff{Max: 5 * time.Millisecond}}
		engine.OnRound = func(orbit.Round) { worked() }
		wg.Go(func() {
			for ctx.Err() == nil { // the scheduler dies and comes back
				var run context.Context
				run, worked = lifeOf(ctx, 1+i)
				if term, err := s.leases.Acquire(run, sch.Name, sch.Name); err == nil {
					sch.Serve(term)
					_ = engine.Run(run)
					_ = s.leases.Resign(ctx, term)
				}
			}
		})
	}
	user(t, ledger)
	require.Eventually(t, func() bool {
		state, _ := ledger.Snapshot(context.Background())
		return state.PendingCount() == 0
	}, 5*time.Minute, 5*time.Millisecond, "forgotten")
	cancel()
	wg.Wait()
	require.NoError(t, s.state().Verify())
	s.live("s0")
	s.settle(&Dispatcher{Ledger: ledger, Leases: s.leases})
	for key := range s.state().Marks("plan/") {
		t.Errorf("mark %q is left", key)
	}
	replay(t, s, start)
}

// lifeOf returns a context that ends soon after worked has been called that often. The length of a life is counted in
// work, so that it is never too short to do any on a slow machine.
func lifeOf(ctx context.Context, rounds int) (life context.Context, worked func()) {
	life, end := context.WithCancel(ctx)
	return life, func() {
		if rounds--; rounds == 0 {
			time.AfterFunc(time.Duration(1+rand.IntN(5))*time.Millisecond, end)
		}
	}
}

// moody is a navigator that often leaves capsules unplaced.
type moody struct {
	nav.Services
	gang nav.Gang
	rng  *rand.Rand
}

func (m *moody) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	var gangs, singles []*orbit.Capsule
	var plan orbit.Plan
	for _, c := range pending {
		switch {
		case c.Gang() != "":
			gangs = append(gangs, c)
		case m.rng.IntN(3) == 0:
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: &orbit.NoFit{}})
		default:
			singles = append(singles, c)
		}
	}
	for _, part := range []struct {
		nav orbit.Navigator
		its []*orbit.Capsule
	}{{&m.Services, singles}, {&m.gang, gangs}} {
		if len(plan.Proposals) > 0 { // of this view the two know nothing of each other's choices
			for _, c := range part.its {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: errors.New("the next plan places gangs")})
			}
			continue
		}
		if len(part.its) > 0 {
			one, err := part.nav.Plan(ctx, view, part.its)
			if err != nil {
				return plan, err
			}
			plan.Proposals, plan.Unplaced = append(plan.Proposals, one.Proposals...), append(plan.Unplaced, one.Unplaced...)
		}
	}
	return plan, nil
}

// user submits capsules, and releases placed ones.
func user(t *testing.T, ledger *orbit.MemoryLedger) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 150 {
		submit := orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("x", i))}, Spec: cpu(int64(1 + i%3))}
		if i%5 == 0 {
			submit = orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(fmt.Sprint("g", i)), Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: ids(fmt.Sprint("g", i, "/"), 3)}}}}
		}
		_, err := Import(context.Background(), ledger, Submission{Submit: submit})
		require.NoError(t, err)
		state, _ := ledger.Snapshot(context.Background())
		for c := range state.Capsules() {
			if c.Placed() && rng.IntN(10) == 0 {
				final := c.Gang() == "" && rng.IntN(4) > 0
				_, _ = ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: final, Stopped: !final}}})
			}
		}
		time.Sleep(time.Millisecond)
	}
	for { // free some capacity
		state, _ := ledger.Snapshot(context.Background())
		if state.PendingCount() == 0 {
			return
		}
		for c := range state.Capsules() {
			if c.Placed() && c.Gang() == "" && rng.IntN(10) == 0 {
				_, _ = ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: true}}})
			}
		}
		for i := range 8 {
			_, _ = ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{node(orbit.NodeID(fmt.Sprint("n", i)), 100)}})
		}
		time.Sleep(2 * time.Millisecond)
		if t.Context().Err() != nil {
			return
		}
	}
}

// replay applies the history change by change.
func replay(t *testing.T, s *stage, state *orbit.State) {
	changes, err := s.ledger.Changes(t.Context(), state.Revision())
	require.NoError(t, err)
	assigned, divisions := 0, 0
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		next, err := state.Apply(changes[:n])
		require.NoError(t, err)
		for _, c := range changes[:n] {
			if a, ok := c.Do.(orbit.Assign); ok && a.Owner != "" {
				assigned++
				_, lives := s.leases.In(next, a.Owner)
				require.True(t, lives, "%+v at revision %d", a, c.Revision)
				_, lived := s.leases.In(state, a.From)
				require.False(t, lived && a.From != "", "%+v at revision %d", a, c.Revision)
				is := next.Capsule(a.Capsule)
				if divided(s, next, is) && !divided(s, state, is) {
					divisions++
				}
			}
		}
		state, changes = next, changes[n:]
	}
	require.Greater(t, assigned, 250)
	// After a member is released, it stays with its scheduler while a dispatcher that has read an older state assigns
	// the other members to another one.
	require.LessOrEqual(t, divisions, assigned/50)
	t.Logf("%d assignments in %d revisions, %d divided a gang", assigned, state.Revision(), divisions)
}

// divided reports whether two living schedulers own pending members of a capsule's gang.
func divided(s *stage, state *orbit.State, of *orbit.Capsule) bool {
	owner := ""
	for m := range unitOf(of).members(state) {
		if _, lives := s.leases.In(state, m.Owner()); lives && m.Pending() {
			if owner != "" && m.Owner() != owner {
				return true
			}
			owner = m.Owner()
		}
	}
	return false
}
