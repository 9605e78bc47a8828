package orbit

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

	"github.com/orbitsched/orbit/internal/scale"
)

// only claims one module.
func only(module string) func(string, AppClass) bool {
	return func(m string, _ AppClass) bool { return m == module }
}

func named(name string, l Ledger, nav Navigator) *Engine {
	return &Engine{Name: name, Ledger: l, Navigator: nav}
}

// A population refuses to start, and names what is wrong: names used twice; faults of engines; engines on different ledgers; no engines.
func TestPopulationRefuses(t *testing.T) {
	l, other := &MemoryLedger{}, &MemoryLedger{}
	spec := ofModule("web", 1)
	spec.Class = BestEffort
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: spec})
	shared := &greedy{}
	for name, c := range map[string]struct {
		engines []*Engine
		words   []string
	}{
		"same name":   {[]*Engine{named("x", l, &greedy{}), named("x", l, &greedy{})}, []string{`two engines are named "x"`}},
		"no name":     {[]*Engine{named("", l, &greedy{}), named("", l, &greedy{})}, []string{`two engines are named ""`}},
		"two ledgers": {[]*Engine{named("x", l, &greedy{}), named("y", other, &greedy{})}, []string{`engine "y"`, "another ledger"}},
		"faults":      {[]*Engine{named("x", nil, nil), named("y", l, nil)}, []string{`engine "x"`, "Ledger is nil", `engine "y"`, "Navigator is nil"}},
		"no engines":  {nil, []string{"without engines"}},
		"shared":      {[]*Engine{named("x", l, shared), named("y", l, &wrapping{&wrapping{shared}})}, []string{`engines "x" and "y" share one navigator, a *orbit.greedy`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Population{Engines: c.engines}).Run(t.Context())
			require.ErrorIs(t, err, ErrInvalid)
			for _, word := range c.words {
				require.ErrorContains(t, err, word)
			}
			require.Empty(t, where(t, l, "c"), "nothing has started")
		})
	}
}

// TestPopulationSharesWhatHasNoState: a pointer to an empty struct may be the same in all engines, also if each has one of its own.
func TestPopulationSharesWhatHasNoState(t *testing.T) {
	l := &MemoryLedger{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, (&Population{Engines: []*Engine{named("x", l, &stateless{}), named("y", l, &stateless{})}}).Run(ctx))
}

// stateless is a navigator that claims nothing.
type stateless struct{}

func (*stateless) Claims(string, AppClass) bool { return false }

func (*stateless) Plan(context.Context, *View, []*Capsule) (Plan, error) { return Plan{}, nil }

// wrapping is a navigator around another one.
type wrapping struct{ Navigator }

// start runs a population in a bubble until the test ends. What it returns lets everything happen that
// happens now, and hands over what has been reported since it was last called.
func start(t *testing.T, engines ...*Engine) (reports func() []error) {
	var mu sync.Mutex
	var reported []error
	p := Population{Engines: engines, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err)
	}}
	go func() { assert.NoError(t, p.Run(t.Context())) }()
	synctest.Wait()
	return func() []error {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		out := reported
		reported = nil
		return out
	}
}

// A capsule without an owner is reported at once, and once for each time that it becomes pending. A capsule that is
// assigned, claimed, placed or released is not reported.
func TestUnclaimedCapsulesAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"early"}, Spec: ofModule("unclaimed", 1)})
		reports := start(t, named("a", l, &greedy{claims: only("a")}))
		expect := func(ids ...CapsuleID) {
			t.Helper()
			got := reports()
			require.Len(t, got, len(ids))
			for i, id := range ids {
				var unplaced Unplaced
				require.ErrorAs(t, got[i], &unplaced)
				require.Equal(t, id, unplaced.Capsule.ID)
				require.ErrorContains(t, got[i], fmt.Sprintf(`population: capsule %q is not placed: no engine claims module "unclaimed", class LatencySensitive`, id))
			}
		}
		expect("early")
		time.Sleep(time.Hour)
		expect()
		commit(t, l, Submit{IDs: []CapsuleID{"x", "y"}, Spec: ofModule("unclaimed", 1)}, Submit{IDs: []CapsuleID{"z"}, Spec: ofModule("unclaimed", 1), Owner: "a"})
		expect("x", "y")
		commit(t, l, Submit{IDs: []CapsuleID{"mine"}, Spec: ofModule("a", 1)}, Mark{Key: "k", Value: "v"})
		commit(t, l, Place{Capsule: "x", Node: "n"})
		expect()
		commit(t, l, Release{Capsule: "x", Stopped: true})
		expect("x")
		commit(t, l, Assign{Capsule: "x", Owner: "a"})
		commit(t, l, Release{Capsule: "y", Final: true})
		expect()
		assert.Equal(t, NodeID("n"), where(t, l, "x"))
		commit(t, l, Release{Capsule: "mine", Stopped: true})
		expect()
	})
}

// A capsule has one owner: the engine that it is assigned to, be its module another's; else the first in the list that
// claims it, also if it waits already when the population begins.
func TestOwnersAreHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 100)}, Submit{IDs: []CapsuleID{"assigned"}, Spec: ofModule("a", 1), Owner: "b"},
			Submit{IDs: []CapsuleID{"stranger's"}, Spec: ofModule("a", 1), Owner: "stranger"}, Submit{IDs: []CapsuleID{"early"}, Spec: ofModule("late", 1)})
		a := &greedy{claims: func(m string, _ AppClass) bool { return m == "a" || m == "late" }}
		b := &greedy{claims: func(m string, _ AppClass) bool { return m == "b" || m == "late" }}
		reports := start(t, named("b", l, b), named("a", l, a))
		assert.ErrorContains(t, errors.Join(reports()...), `assigned to "stranger"`, "an engine that this population does not have")
		commit(t, l, Submit{IDs: []CapsuleID{"a's"}, Spec: ofModule("a", 1)})
		commit(t, l, Submit{IDs: []CapsuleID{"b's"}, Spec: ofModule("b", 1)})
		commit(t, l, Submit{IDs: []CapsuleID{"both"}, Spec: ofModule("late", 1000)}) // fits nowhere, and stays pending
		synctest.Wait()
		assert.NotContains(t, flat(a.asked), CapsuleID("both"), "b stands first")
		commit(t, l, Assign{Capsule: "both", Owner: "a"})
		time.Sleep(time.Minute)
		assert.Empty(t, reports(), "once")
		assert.Subset(t, flat(b.asked), []CapsuleID{"early", "assigned", "b's", "both"})
		assert.Subset(t, flat(a.asked), []CapsuleID{"a's", "both"})
		assert.Subset(t, []CapsuleID{"a's", "both"}, flat(a.asked))
		assert.NotContains(t, flat(b.asked), CapsuleID("a's"))
		assert.Empty(t, where(t, l, "stranger's"))
	})
}

func flat(lists [][]CapsuleID) (out []CapsuleID) {
	for _, list := range lists {
		out = append(out, list...)
	}
	return out
}

// rogues are navigators that claim "rogue" and do their worst; gate closes when the test ends.
var rogues = map[string]func(gate chan struct{}) Navigator{
	"panics": func(chan struct{}) Navigator {
		return &greedy{claims: only("rogue"), before: func(*View, []*Capsule) { panic("x") }}
	},
	"exits": func(chan struct{}) Navigator {
		return &greedy{claims: only("rogue"), before: func(*View, []*Capsule) { runtime.Goexit() }}
	},
	"blocks": func(gate chan struct{}) Navigator {
		return &greedy{claims: only("rogue"), before: func(*View, []*Capsule) { <-gate }}
	},
	"nonsense": func(chan struct{}) Navigator {
		return &greedy{claims: only("rogue"), after: func(p *Plan) {
			*p = Plan{Proposals: []Proposal{{}, {Do: []Commitment{nil}}, {Do: []Commitment{Place{Capsule: "ghost", Node: "n"}}}},
				Unplaced: []Unplaced{{nil, &NoFit{}}, {&Capsule{}, &NoFit{}}}}
		}}
	},
	"claims panic": func(chan struct{}) Navigator {
		return &greedy{claims: func(m string, _ AppClass) bool { panic("y") }}
	},
	"claims exit": func(chan struct{}) Navigator {
		return &greedy{claims: func(m string, _ AppClass) bool { runtime.Goexit(); return true }}
	},
}

// Whatever one navigator does, its neighbour in the same population never notices: its capsules are placed
// without any time going by. The rogue's own engine says what happened.
func TestNeighbourNeverNotices(t *testing.T) {
	for name, rogue := range rogues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				defer close(gate)
				l := &MemoryLedger{}
				commit(t, l, PutNode{machine("n", 1000)})
				nav := rogue(gate)
				bad := named("bad", l, nav)
				var told atomic.Int64
				bad.PlanTimeout = time.Second
				bad.OnRound = func(r Round) { told.Add(int64(len(r.Errors))) }
				start(t, bad, named("good", l, &greedy{claims: only("good")}))
				for i, id := range names("c", 10) {
					commit(t, l, Submit{IDs: []CapsuleID{"r" + id}, Spec: ofModule("rogue", int64(i))})
					commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: ofModule("good", int64(i))})
					synctest.Wait()
					require.Equal(t, NodeID("n"), where(t, l, id))
					time.Sleep(700 * ms)
				}
				assert.Positive(t, told.Load())
				assert.NoError(t, snapshotOf(t, l).Verify())
			})
		})
	}
}

// A population asks each navigator once for each pair of module and class, however many engines need the answer, and none
// about a pair that one before it claims.
func TestClaimsAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asked := &MemoryLedger{}, map[string]int{}
		counting := func(name string) *Engine {
			return named(name, l, &greedy{claims: func(m string, _ AppClass) bool { asked[name+" for "+m]++; return m == name }})
		}
		// No node: an engine that sees a capsule only after the other one has placed it does not ask who claims it.
		commit(t, l, Submit{IDs: []CapsuleID{"early"}, Spec: ofModule("b", 1)})
		reports := start(t, counting("a"), counting("b"))
		for i, module := range []string{"a", "b", "c", "a", "b", "c"} {
			commit(t, l, Submit{IDs: names(fmt.Sprint(i), 2), Spec: ofModule(module, 1)})
			reports()
			time.Sleep(time.Minute)
		}
		assert.Equal(t, map[string]int{"a for a": 1, "a for b": 1, "a for c": 1, "b for b": 1, "b for c": 1}, asked)
	})
}

// A Claims that never returns costs its population one deadline, once; then the answer counts as no. (In real time: a
// bubble's clock stands still while a goroutine waits for a mutex.)
func TestClaimsThatBlockCostOneDeadline(t *testing.T) {
	scale.Long(t)
	gate := make(chan struct{})
	defer close(gate)
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 1000)})
	bad := named("bad", l, &greedy{claims: func(string, AppClass) bool { <-gate; return true }})
	bad.PlanTimeout = 20 * ms
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := Population{Engines: []*Engine{bad, named("good", l, &greedy{claims: only("good")})}}
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	for _, id := range names("c", 3) {
		commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: ofModule("good", 1)})
		require.Eventually(t, func() bool { return where(t, l, id) == "n" }, time.Minute, ms)
	}
	cancel()
	require.NoError(t, <-done)
}

// A watch whose view cannot be built says so, backs off, and ends with its context.
func TestPopulationReportsAFailingView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, boom := &MemoryLedger{}, errors.New("boom")
		var failing atomic.Bool
		ledger := &bent{Ledger: l, snapshot: func(ctx context.Context) (*State, error) {
			if failing.Load() {
				return nil, boom
			}
			return l.Snapshot(ctx)
		}}
		reports := start(t, named("a", ledger, &greedy{claims: only("a")}))
		failing.Store(true)
		commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: ofModule("b", 1)})
		time.Sleep(10 * time.Second)
		got := reports()
		require.NotEmpty(t, got)
		require.Less(t, len(got), 40)
		require.ErrorIs(t, got[0], boom)
		failing.Store(false)
		time.Sleep(2 * time.Second)
		require.NotErrorAs(t, got[0], new(Unplaced), "a ledger that fails is not a capsule without a place")
		got = reports()
		require.ErrorAs(t, got[len(got)-1], new(Unplaced))
	})
}

// Up to 8 engines race under real goroutines: each on work of its own (a population), or all on the same work
// (SCENARIOS 3), on a few full nodes or on many. All is placed, each capsule once, and everything recounts.
func TestEnginesRaceToCompletion(t *testing.T) {
	for _, engines := range []int{1, 2, 4, 8} {
		for _, shared := range []bool{false, true} {
			for _, nodes := range []int{3, 40} {
				t.Run(fmt.Sprintf("engines=%d/shared=%v/nodes=%d", engines, shared, nodes), func(t *testing.T) {
					t.Parallel()
					race(t, engines, nodes, shared)
				})
			}
		}
	}
}

func race(t *testing.T, engines, nodes int, shared bool) {
	const capsules = 240 // exactly what the nodes take
	ctx, cancel := context.WithCancel(t.Context())
	l := &MemoryLedger{}
	for i := range nodes {
		commit(t, l, PutNode{machine(NodeID(fmt.Sprint("n", i)), capsules/int64(nodes))})
	}
	var team []*Engine
	for i := range engines {
		module := fmt.Sprint("m", i)
		nav := &greedy{placement: scan{Seed: uint64(i)}, claims: only(module)}
		if shared {
			nav.claims = nil
		}
		e := named(module, l, nav)
		e.MaxPlan, e.Backoff = 1+i*7, Backoff{Initial: 100 * time.Microsecond, Max: 2 * ms}
		e.OnRound = func(r Round) { assert.True(t, len(r.Errors) == 0 || ctx.Err() != nil, "%v", r.Errors) }
		team = append(team, e)
	}
	var wg sync.WaitGroup
	if shared {
		for _, e := range team {
			wg.Go(func() { assert.NoError(t, e.Run(ctx)) })
		}
	} else {
		wg.Go(func() {
			assert.NoError(t, (&Population{Engines: team, OnError: func(err error) { t.Error(err) }}).Run(ctx))
		})
	}
	for i, id := range names("c", capsules) {
		commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: ofModule(fmt.Sprint("m", i%engines), 1)})
	}
	assert.Eventually(t, func() bool { return snapshotOf(t, l).PendingCount() == 0 }, time.Minute, ms)
	cancel()
	wg.Wait()
	placedOnce(t, l, capsules)
}

// placedOnce checks the history: so many placements, no capsule twice.
func placedOnce(t *testing.T, l *MemoryLedger, capsules int) {
	require.NoError(t, snapshotOf(t, l).Verify())
	changes, err := l.Changes(t.Context(), 0)
	require.NoError(t, err)
	placed := map[CapsuleID]int{}
	for _, c := range changes {
		if p, ok := c.Do.(Place); ok {
			placed[p.Capsule]++
		}
	}
	require.Len(t, placed, capsules)
	for id, n := range placed {
		require.Equal(t, 1, n, "capsule %q", id)
	}
}

// A context that ends while the population starts ends it as it would later: without an error.
func TestPopulationEndsWhileItStarts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := &MemoryLedger{}
	slow := &bent{Ledger: l, snapshot: func(ctx context.Context) (*State, error) {
		cancel()
		return l.Snapshot(ctx)
	}}
	p := &Population{Engines: []*Engine{{Name: "a", Ledger: slow, Navigator: &greedy{}}}}
	require.NoError(t, p.Run(ctx))
	require.NoError(t, p.Run(ctx))
	p.Engines = nil
	require.ErrorIs(t, p.Run(ctx), ErrInvalid, "faults are reported all the same")
}

// claimCounter claims one module, and counts how often it is asked.
type claimCounter struct {
	greedy
	asked *atomic.Int64
}

func (c *claimCounter) Claims(module string, class AppClass) bool {
	c.asked.Add(1)
	return c.greedy.Claims(module, class)
}

// crowd is a population of so many engines, each with a module of its own, on a ledger with room. It runs until the test ends.
func crowd(t testing.TB, l *MemoryLedger, engines int) (asked *atomic.Int64) {
	p, asked := &Population{OnError: func(err error) { t.Error(err) }}, &atomic.Int64{}
	commit(t, l, PutNode{machine("n", 1<<40)})
	for i := range engines {
		module := fmt.Sprint("m", i)
		nav := &claimCounter{greedy{claims: only(module)}, asked}
		p.Engines = append(p.Engines, named(module, l, nav))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return asked
}

// placeBulk submits a thousand capsules of the last engine's module and returns once they are placed.
func placeBulk(t testing.TB, l *MemoryLedger, engines, serial int) {
	commit(t, l, Submit{IDs: names(fmt.Sprintf("x%d-", serial), 1000), Spec: ofModule(fmt.Sprint("m", engines-1), 1)})
	for at := Revision(0); snapshotOf(t, l).PendingCount() > 0; {
		var err error
		at, err = l.Wait(context.Background(), at)
		require.NoError(t, err)
	}
}

// However many capsules are submitted, each navigator is asked once about their module.
func TestSubmitAsksOnce(t *testing.T) {
	l, engines := &MemoryLedger{}, 16
	asked := crowd(t, l, engines)
	for i := range 3 {
		placeBulk(t, l, engines, i)
	}
	require.LessOrEqual(t, asked.Load(), int64(engines))
}

// BenchmarkPopulation is what it takes until a thousand capsules of one Submit are placed, beside so many engines that have
// nothing to do with them.
func BenchmarkPopulation(b *testing.B) {
	for _, engines := range []int{1, 8, 32, 128} {
		b.Run(fmt.Sprintf("engines=%d", engines), func(b *testing.B) {
			l, i := &MemoryLedger{}, 0
			crowd(b, l, engines)
			placeBulk(b, l, engines, -1)
			for b.Loop() {
				placeBulk(b, l, engines, i)
				i++
			}
		})
	}
}
