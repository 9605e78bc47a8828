package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/nav"
)

// witness is a partition ledger that reports the refused proposals of its engine.
type witness struct {
	*PartitionLedger
	refused func(scheduler string, err error)
}

// ProposeBatch is how engines propose.
func (w *witness) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := w.PartitionLedger.ProposeBatch(ctx, batch)
	for i := range out {
		if out[i].Err != nil {
			w.refused(w.Scheduler, out[i].Err)
		}
	}
	return out
}

// storm is a constellation under several dispatchers and Groups, with schedulers that die and return.
type storm struct {
	*stage
	t    *testing.T
	mode Mode
	// calm says that users do nothing that conflicts with schedulers.
	calm bool

	mu sync.Mutex
	// refused counts the refusals by kind.
	refused map[string]int
	lost    []string
}

// see counts a refusal by its kind.
func (s *storm) see(scheduler string, err error) {
	kind, r := "other", (*orbit.Rejection)(nil)
	if errors.As(err, &r) {
		switch bet, fenced := r.Bet.(orbit.MarkAt); {
		case fenced && strings.HasPrefix(bet.Key, LeasePrefix):
			kind = "lease"
		case fenced && strings.HasPrefix(bet.Key, "group/"), strings.Contains(r.Reason, "the group of scheduler"):
			kind = "group"
		case fenced:
			kind = "mark"
		case errors.Is(err, orbit.ErrConflict):
			kind = "conflict"
		default:
			kind = "infeasible"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[kind]++
	if (kind == "group" || kind == "conflict" || kind == "infeasible") && len(s.lost) < 8 {
		s.lost = append(s.lost, fmt.Sprintf("%s: %s: %v", kind, scheduler, err))
	}
}

// scheduler runs one life of a scheduler after another.
func (s *storm) scheduler(ctx context.Context, i int) {
	name := fmt.Sprint("s/", i)
	rng := rand.New(rand.NewPCG(uint64(i), 9))
	for ctx.Err() == nil {
		partition := &PartitionLedger{Ledger: s.ledger, Scheduler: name, Mode: s.mode, Hook: func(err error) { s.t.Error(err) }}
		sch := &Scheduler{Name: name, Navigator: partition.Navigator(func() orbit.Navigator { return &moody{rng: rand.New(rand.NewPCG(rng.Uint64(), 1))} }), Leases: s.leases, Patience: 3}
		engine := &orbit.Engine{Name: name, Ledger: &witness{partition, s.see}, Navigator: sch, Backoff: orbit.Backoff{Max: 5 * time.Millisecond}}
		term, err := s.leases.Acquire(ctx, name, name)
		if err != nil {
			send.Pause(ctx, time.Millisecond)
			continue
		}
		sch.Serve(term)
		life, end := context.WithCancel(ctx)
		worked := make(chan struct{})
		once := sync.OnceFunc(func() { close(worked) })
		engine.OnRound = func(orbit.Round) { once() }
		var running sync.WaitGroup
		running.Go(func() { _ = engine.Run(life) })
		send.Pause(ctx, time.Duration(100+rng.IntN(200))*time.Millisecond)
		select { // on a slow machine, too, no life is too short to do anything
		case <-worked:
		case <-ctx.Done():
		}
		if rng.IntN(2) == 0 { // its engine does not know that its lease is over
			_ = s.leases.Resign(context.Background(), term)
			send.Pause(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
			end()
		} else {
			end()
			running.Wait()
			_ = s.leases.Resign(context.Background(), term)
			send.Pause(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
		}
		running.Wait()
		end()
	}
}

// users submit and release capsules, and make nodes leave and come back under their old marks.
func (s *storm) users(rounds int) {
	rng := rand.New(rand.NewPCG(3, 4))
	ctx := context.Background()
	for i := range rounds {
		submit := orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("x/", i))}, Spec: cpu(int64(1 + i%3))}
		if i%7 == 0 {
			submit = orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(fmt.Sprint("g/", i)), Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: ids(fmt.Sprint("g", i, "/"), 3)}}}}
		}
		_, err := Import(ctx, s.ledger, Submission{Submit: submit})
		require.NoError(s.t, err)
		state := s.state()
		for c := range state.Capsules() {
			if c.Placed() && (c.Gang() == "" || !s.calm) && rng.IntN(8) == 0 {
				final := c.Gang() == "" && rng.IntN(4) > 0
				_, _ = s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: final, Stopped: !final}}})
			}
		}
		id := orbit.NodeID(fmt.Sprint("n/", rng.IntN(16)))
		switch n := state.Node(id); {
		case rng.IntN(4) > 0:
		case s.calm:
			_, _ = s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{node(id, n.Node.Capacity[0]+1)}})
		case n != nil && n.Capsules == 0:
			_, _ = s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveNode{Node: id}}})
		case n == nil || rng.IntN(2) == 0:
			put := node(id, int64(8+rng.IntN(8)))
			put.Node.Cordon(rng.IntN(4) == 0)
			_, _ = s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{put}})
		}
		time.Sleep(2 * time.Millisecond)
	}
	for i := range 16 {
		s.do(node(orbit.NodeID(fmt.Sprint("n/", i)), 10_000))
	}
}

// check replays the history: at every revision each placement is by the capsule's owner, which lives, and in strict
// mode on a node that this scheduler owns.
func (s *storm) check(state *orbit.State) {
	changes, err := s.ledger.Changes(s.t.Context(), state.Revision())
	require.NoError(s.t, err)
	places := 0
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		next, err := state.Apply(changes[:n])
		require.NoError(s.t, err)
		for _, c := range changes[:n] {
			place, ok := c.Do.(orbit.Place)
			if !ok {
				continue
			}
			places++
			owner := state.Capsule(place.Capsule).Owner()
			_, lives := s.leases.In(state, owner)
			require.True(s.t, lives, "placed for %q, who is dead, at %d", owner, c.Revision)
			if group, _ := state.Mark("group/" + string(place.Node)); s.mode == Strict {
				require.Equal(s.t, owner, group, "whose node it is at %d", c.Revision)
			}
		}
		state, changes = next, changes[n:]
	}
	s.t.Logf("%v: %d placements, %d revisions, refused %v", s.mode, places, state.Revision(), s.refused)
}

// TestStorm runs dispatchers, Groups, and schedulers that die and return at the same time, on nodes that leave and come
// back. At the end everything is placed, every node has one living owner if there are groups, and nothing is committed
// any more.
func TestStorm(t *testing.T) {
	scale.Long(t)
	for _, mode := range []Mode{Strict, Soft, Shared} {
		t.Run(mode.String(), func(t *testing.T) { runStorm(t, &storm{mode: mode}) })
	}
	t.Run("calm", func(t *testing.T) { runStorm(t, &storm{mode: Strict, calm: true}) })
}

func runStorm(t *testing.T, s *storm) {
	mode := s.mode
	s.stage, s.t, s.refused = newStage(t), t, map[string]int{}
	s.ledger = &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 20}}
	s.leases.Ledger, s.leases.TTL = s.ledger, time.Minute
	for i := range 16 {
		s.do(node(orbit.NodeID(fmt.Sprint("n/", i)), 12))
	}
	start := s.state()
	ctx, cancel := context.WithCancel(t.Context())
	lives, end := context.WithCancel(ctx)
	var wg, schedulers sync.WaitGroup
	wg.Go(func() { _ = s.leases.Run(ctx) })
	for range 2 {
		wg.Go(func() {
			_ = (&Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: mode == Strict, Retry: orbit.Backoff{Initial: time.Millisecond, Max: 50 * time.Millisecond}}).Run(ctx)
		})
		if mode == Shared { // shared mode has no groups
			continue
		}
		wg.Go(func() {
			_ = (&Groups{Ledger: s.ledger, Leases: s.leases, Patience: -1, Every: 5 * time.Millisecond, Hook: func(r Regrouping) {
				for _, err := range r.Errors {
					assert.ErrorIs(t, err, context.Canceled)
				}
			}}).Run(ctx)
		})
	}
	for i := range 4 {
		schedulers.Go(func() { s.scheduler(lives, i) })
	}
	s.users(scale.Of(100, 500))
	if !assert.Eventually(t, func() bool { return s.state().PendingCount() == 0 }, 5*time.Minute, 5*time.Millisecond, "forgotten") {
		for _, c := range s.state().Pending() {
			t.Logf("%q of gang %q owner %q failed %q %q", c.ID, c.Gang(), c.Owner(), s.mark("plan/capsule/failed/"+string(c.ID)), s.mark("plan/gang/failed/"+string(c.Gang())))
		}
		t.FailNow()
	}
	end()
	schedulers.Wait()
	s.live("s/0", "s/1")
	names := []string{"s/0", "s/1"}
	for _, name := range names {
		partition := &PartitionLedger{Ledger: s.ledger, Scheduler: name, Mode: mode}
		sch := &Scheduler{Name: name, Navigator: partition.Navigator(func() orbit.Navigator { return &nav.Services{} }), Leases: s.leases}
		sch.Serve(s.terms[name])
		wg.Go(func() { _ = (&orbit.Engine{Name: name, Ledger: partition, Navigator: sch}).Run(ctx) })
	}
	require.Eventually(t, func() bool { return s.atRest(names) }, 5*time.Minute, 5*time.Millisecond, "never at rest")
	cancel()
	wg.Wait()
	require.NoError(t, s.state().Verify())
	s.check(start)
	if mode == Strict { // handoffs refuse no commits; the rest are refusals that users cause with gangs and nodes
		assert.Zero(t, s.refused["group"]+s.refused["infeasible"], "%v", s.lost)
	}
	if s.calm {
		assert.Zero(t, s.refused["conflict"], "%v", s.lost)
	}
	requireQuiet(t, s.state(), mode, names)
}

// atRest reports whether each node belongs to one of these schedulers and is in no handoff, and no capsule has a failed
// mark.
func (s *storm) atRest(names []string) bool {
	state := s.state()
	for n := range state.Nodes() {
		group, _ := state.Mark("group/" + string(n.Node.ID))
		leaving, _ := state.Mark("leaving/" + string(n.Node.ID))
		if s.mode != Shared && (!slices.Contains(names, group) || leaving != "") {
			return false
		}
	}
	for range state.Marks("plan/") {
		return false
	}
	return true
}

// requireQuiet starts all parts anew on a state at rest: after five minutes nothing is committed for half an hour.
func requireQuiet(t *testing.T, rest *orbit.State, mode Mode, names []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.ledger = &orbit.MemoryLedger{Start: rest}
		s.leases.Ledger, s.leases.TTL = s.ledger, 24*time.Hour
		s.live(names...)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		start := func(run func(context.Context) error) { running.Go(func() { _ = run(ctx) }) }
		start(s.leases.Run)
		for range 2 {
			start((&Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: mode == Strict}).Run)
			if mode != Shared {
				start((&Groups{Ledger: s.ledger, Leases: s.leases, Patience: -1}).Run)
			}
		}
		for _, name := range names {
			partition := &PartitionLedger{Ledger: s.ledger, Scheduler: name, Mode: mode}
			sch := &Scheduler{Name: name, Navigator: partition.Navigator(func() orbit.Navigator { return &nav.Services{} }), Leases: s.leases}
			sch.Serve(s.terms[name])
			start((&orbit.Engine{Name: name, Ledger: partition, Navigator: sch}).Run)
		}
		time.Sleep(5 * time.Minute) // the groups may still have been out of balance
		before := s.state().Revision()
		time.Sleep(30 * time.Minute) // after an hour the marks of dead schedulers are deleted
		changes, err := s.ledger.Changes(t.Context(), before)
		require.NoError(t, err)
		require.Empty(t, changes, "never quiet")
		cancel()
		running.Wait()
	})
}
