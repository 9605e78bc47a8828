package promorbit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/promorbit"
)

// runBusy lets three engines race for one small cluster until nothing is pending that fits and what does not fit is parked, and
// returns the ledger.
func runBusy(t testing.TB, engines *promorbit.Engines) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	for i := range 20 {
		commit(t, l, orbit.PutNode{Node: node(orbit.NodeID(fmt.Sprint("n", i)), 40)})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	population := &orbit.Population{}
	var parked atomic.Int64
	rounds := func(r orbit.Round) {
		engines.Round(r)
		if r.Engine == "e1" {
			parked.Store(int64(r.Parked))
		}
	}
	for i := range 3 {
		population.Engines = append(population.Engines, &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: l, MaxPlan: 20, OnRound: rounds,
			Navigator: &owner{&nav.Services{}, fmt.Sprint("m", i)}})
	}
	for i := range 600 {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, At: orbit.Instant(time.Now().UnixNano()),
			Spec: &orbit.Spec{Module: fmt.Sprint("m", i%3), Class: orbit.AppClass(i / 3 % 3), Envelope: wants(1).Envelope}})
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"huge"}, Spec: &orbit.Spec{Module: "m1", Envelope: wants(1000).Envelope}})
	done := make(chan error)
	go func() { done <- population.Run(ctx) }()
	require.Eventually(t, func() bool {
		s, err := l.Snapshot(ctx)
		return err == nil && s.PendingCount() == 1 && parked.Load() == 1
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	return l
}

// owner claims all of one module.
type owner struct {
	orbit.Navigator
	module string
}

func (o *owner) Claims(module string, _ orbit.AppClass) bool { return module == o.module }

// What engines have told adds up with the ledger's history, and by itself.
func TestEnginesAddUp(t *testing.T) {
	engines := &promorbit.Engines{Notes: true}
	l := runBusy(t, engines)
	got := scrape(t, engines)
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	placed, byClass := map[string]float64{}, map[orbit.AppClass]float64{}
	for c := range s.Capsules() {
		if c.Placed() {
			placed["e"+c.Spec.Module[1:]]++
			byClass[c.Spec.Class]++
		}
	}
	require.Len(t, placed, 3)
	for engine, n := range placed {
		assert.Equal(t, n, got[fmt.Sprintf("orbit_engine_placements_total{engine=%q}", engine)])
		conflicts := got[fmt.Sprintf(`orbit_engine_proposals_total{engine=%q,outcome="conflict"}`, engine)]
		assert.Equal(t, conflicts, sum(got, "orbit_engine_conflicts_by_bet_total", engine))
		assert.Equal(t, conflicts, sum(got, "orbit_engine_conflicts_by_rival_total", engine))
		assert.Equal(t, n, got[fmt.Sprintf(`orbit_engine_proposals_total{engine=%q,outcome="committed"}`, engine)], "each of them places one")
		passes := got[fmt.Sprintf("orbit_engine_passes_total{engine=%q}", engine)]
		assert.GreaterOrEqual(t, passes, 10.0, "20 capsules at most are planned in a pass")
		for _, stage := range []string{"view", "plan", "propose"} {
			assert.LessOrEqual(t, got[fmt.Sprintf("orbit_engine_stage_seconds_count{engine=%q,stage=%q}", engine, stage)], passes)
			assert.Positive(t, got[fmt.Sprintf("orbit_engine_stage_seconds_sum{engine=%q,stage=%q}", engine, stage)])
		}
	}
	for class, n := range byClass {
		assert.Equal(t, n, got[fmt.Sprintf("orbit_engine_wait_seconds_count{class=%q}", class)])
	}
	assert.Equal(t, 1.0, got[`orbit_engine_parked_classes{engine="e1"}`])
	assert.Positive(t, got[`orbit_engine_note_count{engine="e1",note="asked"}`])
	agree(t, (&books{}).expect(t, l), scrape(t, &promorbit.Ledger{Ledger: l}), 5)
}

// An engine without work has its series from the start, and the time of its last pass tells it from one that does not run.
func TestEnginesIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		metrics, l := &promorbit.Engines{}, &orbit.MemoryLedger{}
		idle := &orbit.Engine{Name: "idle", Ledger: l, Navigator: &nav.Services{}, OnRound: metrics.Round}
		metrics.Engines = []*orbit.Engine{idle, nil, {Name: "dead", Ledger: l, Navigator: &nav.Services{}}}
		for _, name := range []string{"idle", "dead"} {
			got := scrape(t, metrics)
			for _, series := range []string{"passes_total{engine=%q}", "placements_total{engine=%q}", "errors_total{engine=%q}", "pending_capsules{engine=%q}",
				"parked_classes{engine=%q}", `proposals_total{engine=%q,outcome="committed"}`, `unplaced_capsules{class="Batch",engine=%q,reason="no_fit"}`,
				"last_pass_timestamp_seconds{engine=%q}", "running{engine=%q}"} {
				series = fmt.Sprintf("orbit_engine_"+series, name)
				assert.Contains(t, got, series)
				assert.Zero(t, got[series], series)
			}
		}
		done := make(chan error)
		go func() { done <- idle.Run(ctx) }()
		for range 3 {
			time.Sleep(10 * time.Minute)
			got := scrape(t, metrics)
			assert.InDelta(t, float64(time.Now().Unix()), got[`orbit_engine_last_pass_timestamp_seconds{engine="idle"}`], 2)
			assert.Zero(t, got[`orbit_engine_last_pass_timestamp_seconds{engine="dead"}`])
			assert.Equal(t, []float64{1, 0}, []float64{got[`orbit_engine_running{engine="idle"}`], got[`orbit_engine_running{engine="dead"}`]})
			assert.Zero(t, got[`orbit_engine_passes_total{engine="idle"}`], "idle passes are not counted")
		}
		stop()
		require.NoError(t, <-done)
		last := idle.LastPass()
		metrics.Round(orbit.Round{Engine: "idle", By: idle, Pending: 3})
		time.Sleep(time.Hour)
		got := scrape(t, metrics)
		assert.InDelta(t, float64(last.Unix()), got[`orbit_engine_last_pass_timestamp_seconds{engine="idle"}`], 2, "it has been stopped")
		assert.Zero(t, got[`orbit_engine_running{engine="idle"}`])
		assert.Equal(t, 3.0, got[`orbit_engine_pending_capsules{engine="idle"}`], "a scrape takes nothing back")
	})
}

// A pass that hangs in Plan is no pass.
func TestEnginesStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		metrics, l := &promorbit.Engines{}, &orbit.MemoryLedger{}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: wants(1)})
		hangs := make(chan struct{})
		stuck := &orbit.Engine{Name: "stuck", Ledger: l, OnRound: metrics.Round, OnError: func(error) {}, Navigator: plan(
			func(*orbit.View, []*orbit.Capsule) []orbit.Proposal { <-hangs; return nil })}
		done := make(chan error)
		go func() { done <- stuck.Run(ctx) }()
		time.Sleep(time.Hour)
		age := time.Since(time.Unix(int64(scrape(t, metrics)[`orbit_engine_last_pass_timestamp_seconds{engine="stuck"}`]), 0))
		assert.InDelta(t, time.Hour, age, float64(time.Minute))
		close(hangs)
		time.Sleep(time.Minute)
		assert.Less(t, time.Since(stuck.LastPass()), 2*time.Second)
		stop()
		require.NoError(t, <-done)
	})
}

// sum adds up the series of a metric that have the engine.
func sum(got map[string]float64, metric, engine string) (total float64) {
	for series, v := range got {
		if strings.HasPrefix(series, metric+"{") && strings.Contains(series, fmt.Sprintf("engine=%q", engine)) {
			total += v
		}
	}
	return total
}

// plan is a navigator that claims all and plans as a function says.
func plan(f func(view *orbit.View, pending []*orbit.Capsule) []orbit.Proposal) orbit.Navigator {
	return nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		return orbit.Plan{Proposals: f(view, pending)}, nil
	})
}

// A conflict is counted by the bet that was lost, or the rule, and by the engine that won.
func TestEnginesConflicts(t *testing.T) {
	engines := &promorbit.Engines{}
	onto := func(node orbit.NodeID, bets ...orbit.Precondition) func(*orbit.View, []*orbit.Capsule) []orbit.Proposal {
		return func(_ *orbit.View, pending []*orbit.Capsule) []orbit.Proposal {
			return []orbit.Proposal{{Do: []orbit.Commitment{orbit.Place{Capsule: pending[0].ID, Node: node}}, If: bets}}
		}
	}
	l := &orbit.MemoryLedger{}
	for _, id := range []orbit.NodeID{"a", "b", "c", "d"} {
		commit(t, l, orbit.PutNode{Node: node(id, 1)})
	}
	for i, at := range []orbit.NodeID{"a", "b", "c"} {
		fast := &orbit.Engine{Name: fmt.Sprint("fast", i), Ledger: l, OnRound: engines.Round, Navigator: &owner{plan(onto(at)), fmt.Sprint("fast", i)}}
		for j := range 2 {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("s", i, j))}, Spec: &orbit.Spec{Module: "slow", Envelope: wants(1).Envelope}})
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("f", i))}, Spec: &orbit.Spec{Module: fmt.Sprint("fast", i), Envelope: wants(1).Envelope}})
		var bets []orbit.Precondition
		if i > 0 {
			bets = []orbit.Precondition{orbit.NodeFreeOf{Node: at, AtLeast: orbit.Resources{orbit.CPU: 1}}}
		}
		slow := &orbit.Engine{Name: "slow", Ledger: l, OnRound: engines.Round, Navigator: &owner{plan(func(v *orbit.View, pending []*orbit.Capsule) []orbit.Proposal {
			engines.Round(fast.Pass(ctx)) // it is faster
			return onto(at, bets...)(v, pending)
		}), "slow"}}
		engines.Round(slow.Pass(ctx))
	}
	last := &orbit.Engine{Name: "slow", Ledger: l, OnRound: engines.Round, Navigator: &owner{plan(func(v *orbit.View, pending []*orbit.Capsule) []orbit.Proposal {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: wants(1)}, orbit.Place{Capsule: "other", Node: "d"}) // by no engine
		return onto("d")(v, pending)
	}), "slow"}}
	engines.Round(last.Pass(ctx))
	got := scrape(t, engines)
	for series, want := range map[string]float64{
		`orbit_engine_proposals_total{engine="slow",outcome="conflict"}`:         4,
		`orbit_engine_conflicts_by_bet_total{bet="capacity",engine="slow"}`:      2,
		`orbit_engine_conflicts_by_bet_total{bet="NodeFreeOf",engine="slow"}`:    2,
		`orbit_engine_conflicts_by_rival_total{engine="slow",rival="fast0"}`:     1,
		`orbit_engine_conflicts_by_rival_total{engine="slow",rival="fast1"}`:     1,
		`orbit_engine_conflicts_by_rival_total{engine="slow",rival="fast2"}`:     1,
		`orbit_engine_conflicts_by_rival_total{engine="slow",rival="elsewhere"}`: 1,
		`orbit_engine_placements_total{engine="fast2"}`:                          1,
		`orbit_engine_proposals_total{engine="fast0",outcome="committed"}`:       1,
		`orbit_engine_proposals_total{engine="slow",outcome="committed"}`:        0,
	} {
		assert.Equal(t, want, got[series], series)
	}
}

// rejects is a ledger that refuses all proposals with one error.
type rejects struct {
	orbit.Ledger
	err error
}

func (r *rejects) Propose(context.Context, orbit.Proposal) (orbit.Revision, error) { return 0, r.err }

// Every kind of bet and rule has a name, and an error that is no rejection does no harm.
func TestEnginesBets(t *testing.T) {
	for want, err := range map[string]error{
		"NodeFreeOf":   &orbit.Rejection{Kind: orbit.ErrConflict, Bet: orbit.NodeFreeOf{}},
		"GangUnplaced": &orbit.Rejection{Kind: orbit.ErrConflict, Bet: orbit.GangUnplaced{}},
		"MarkAt":       &orbit.Rejection{Kind: orbit.ErrConflict, Bet: orbit.MarkAt{}, Node: "n"},
		"budget":       &orbit.Rejection{Kind: orbit.ErrConflict, Budget: "b", Capsule: "c"},
		"protection":   &orbit.Rejection{Kind: orbit.ErrConflict, Protected: time.Second, Capsule: "c"},
		"quota":        &orbit.Rejection{Kind: orbit.ErrConflict, Queue: "q", Dimension: "cpu", Capsule: "c"},
		"capacity":     &orbit.Rejection{Kind: orbit.ErrConflict, Dimension: "cpu", Node: "n", Capsule: "c"},
		"capsule":      &orbit.Rejection{Kind: orbit.ErrConflict, Capsule: "c", Node: "n"},
		"node":         &orbit.Rejection{Kind: orbit.ErrConflict, Node: "n"},
		"other":        orbit.ErrConflict,
	} {
		engines, l := &promorbit.Engines{}, &orbit.MemoryLedger{}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: wants(1)})
		e := &orbit.Engine{Ledger: &rejects{l, err}, OnRound: engines.Round, Navigator: plan(func(*orbit.View, []*orbit.Capsule) []orbit.Proposal {
			return []orbit.Proposal{{Do: []orbit.Commitment{orbit.Place{Capsule: "c", Node: "n"}}}}
		})}
		engines.Round(e.Pass(ctx))
		got := scrape(t, engines)
		assert.Equal(t, 1.0, got[fmt.Sprintf(`orbit_engine_conflicts_by_bet_total{bet=%q,engine=""}`, want)], want)
		assert.Equal(t, 1.0, got[`orbit_engine_conflicts_by_rival_total{engine="",rival="unknown"}`], want)
	}
}

// A placement is counted once: not again when the answer was lost and it is sent again, nor when a navigator proposes again what
// was committed before. Its wait counts only the first time, because after that it has not waited since its submission.
func TestEnginesCountOnce(t *testing.T) {
	engines, l := &promorbit.Engines{}, &orbit.MemoryLedger{}
	submitted := orbit.Instant(time.Now().Add(-time.Hour).UnixNano())
	commit(t, l, orbit.PutNode{Node: node("n", 9)}, orbit.PutNode{Node: node("m", 9)}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: wants(1), At: submitted},
		orbit.Submit{IDs: []orbit.CapsuleID{"late"}, Spec: wants(1), At: orbit.Instant(time.Now().Add(time.Hour).UnixNano())}, orbit.Submit{IDs: []orbit.CapsuleID{"timeless"}, Spec: wants(1)})
	lossy := &loses{MemoryLedger: l, lose: 1}
	e := &orbit.Engine{Name: "e", Ledger: lossy, OnRound: engines.Round, Navigator: plan(func(_ *orbit.View, pending []*orbit.Capsule) (out []orbit.Proposal) {
		for _, c := range pending {
			on := orbit.NodeID("m")
			if c.ID == "c" && c.PlacedAt == 0 {
				on = "n" // the answer to this one is lost, and the engine sends it again
			}
			out = append(out, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: on}}})
		}
		return out
	})}
	for range 3 {
		engines.Round(e.Pass(ctx))
	}
	got := scrape(t, engines)
	assert.Equal(t, 3.0, got[`orbit_engine_placements_total{engine="e"}`])
	assert.Equal(t, 2.0, got[`orbit_engine_wait_seconds_count{class="LatencySensitive"}`], "the third has no time of submission")
	assert.InDelta(t, 3600, got[`orbit_engine_wait_seconds_sum{class="LatencySensitive"}`], 60, "a time in the future counts as none")
	assert.Equal(t, 1.0, got[`orbit_engine_proposals_total{engine="e",outcome="unknown"}`])

	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 9}, State: orbit.Lost}}, orbit.Release{Capsule: "c"})
	engines.Round(e.Pass(ctx))
	got = scrape(t, engines)
	assert.Equal(t, 4.0, got[`orbit_engine_placements_total{engine="e"}`], "what was sent again was counted once, and what is placed anew counts again")
	assert.Equal(t, 2.0, got[`orbit_engine_wait_seconds_count{class="LatencySensitive"}`])
}

// loses commits proposals and loses some of the answers.
type loses struct {
	*orbit.MemoryLedger
	lose int
}

func (l *loses) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := l.MemoryLedger.ProposeBatch(ctx, batch)
	if l.lose--; l.lose >= 0 {
		out[0] = orbit.Outcome{Err: orbit.ErrUnknown}
	}
	return out
}

// What a plan leaves out is counted by class and reason, errors that are no outcomes by themselves.
func TestEnginesUnplaced(t *testing.T) {
	engines := &promorbit.Engines{}
	capsule := func(class orbit.AppClass) *orbit.Capsule { return &orbit.Capsule{Spec: &orbit.Spec{Class: class}} }
	round := orbit.Round{Engine: "e", Unplaced: []orbit.Unplaced{
		{Capsule: capsule(orbit.Batch), Why: &orbit.NoFit{}}, {Capsule: capsule(orbit.Batch), Why: fmt.Errorf("no: %w", &orbit.NoFit{})},
		{Capsule: capsule(orbit.GangClass), Why: errors.New("waits for others")}, {Capsule: capsule(orbit.GangClass), Why: &orbit.Rejection{Kind: orbit.ErrConflict}},
		{Why: errors.New("no capsule")}, {Capsule: capsule(orbit.BestEffort)},
	}, Infeasible: 20, Invalid: 1, Errors: make([]error, 16+1+3)}
	engines.Round(round)
	got := scrape(t, engines)
	assert.Equal(t, []float64{2, 1, 1, 1, 0, 3}, []float64{
		got[`orbit_engine_unplaced_capsules{class="Batch",engine="e",reason="no_fit"}`], got[`orbit_engine_unplaced_capsules{class="Gang",engine="e",reason="other"}`],
		got[`orbit_engine_unplaced_capsules{class="Gang",engine="e",reason="refused"}`], got[`orbit_engine_unplaced_capsules{class="BestEffort",engine="e",reason="other"}`],
		got[`orbit_engine_unplaced_capsules{class="BestEffort",engine="e",reason="no_fit"}`], got[`orbit_engine_errors_total{engine="e"}`]})
	engines.Round(orbit.Round{Engine: "e"})
	assert.Zero(t, scrape(t, engines)[`orbit_engine_unplaced_capsules{class="Batch",engine="e",reason="no_fit"}`], "the last pass counts")
}

// Numbers among the notes are added up, whatever their kind; groups by the names of both.
func TestEnginesNotes(t *testing.T) {
	engines := &promorbit.Engines{Names: 6, Notes: true}
	for i := range 2 {
		engines.Round(orbit.Round{Engine: "e", Notes: []slog.Attr{slog.Int("int", 3), slog.Uint64("uint", 4), slog.Float64("float", -0.5), slog.Duration("time", time.Minute),
			slog.String("text", "3"), slog.Any("group", slog.GroupValue(slog.Int("inner", 5), slog.Any("deep", slog.GroupValue(slog.Int("x", 6))))), slog.Any("any", struct{}{}),
			slog.Float64("nan", math.NaN()), slog.Int(fmt.Sprint("more", i), 1), {}}})
	}
	got := scrape(t, engines)
	for note, want := range map[string]float64{"int": 6, "uint": 8, "float": -1, "time": 120, "group.inner": 10, "group.deep.x": 12, "other": 2} {
		assert.Equal(t, want, got[fmt.Sprintf("orbit_engine_note_sum{engine=\"e\",note=%q}", note)], note)
		assert.Equal(t, 2.0, got[fmt.Sprintf("orbit_engine_note_count{engine=\"e\",note=%q}", note)], note)
	}
	assert.Len(t, keysWith(got, "orbit_engine_note_count"), 7)
	quiet := &promorbit.Engines{}
	quiet.Round(orbit.Round{Engine: "e", Notes: []slog.Attr{slog.Int("int", 3)}})
	assert.Empty(t, keysWith(scrape(t, quiet), "orbit_engine_note_count"), "they are exported only if they are asked for")
}

func keysWith(got map[string]float64, prefix string) (keys []string) {
	for series := range got {
		if strings.HasPrefix(series, prefix+"{") {
			keys = append(keys, series)
		}
	}
	return keys
}

// However many engines and rivals there are, and whatever their names, series have a bound, and nothing is lost.
func TestEnginesNamesAreBounded(t *testing.T) {
	engines := &promorbit.Engines{Names: 5}
	for i := range 50 {
		id := orbit.NewProposalID()
		round := orbit.Round{Engine: fmt.Sprint("engine\xff", i), Committed: 1, Conflicts: 1, Settled: []orbit.Settled{{Proposal: orbit.Proposal{ID: id}, Outcome: orbit.Outcome{Revision: 1}}}}
		for range 2000 { // a navigator that chooses its ids
			round.Settled = append(round.Settled, orbit.Settled{Proposal: orbit.Proposal{ID: orbit.NewProposalID()}, Outcome: orbit.Outcome{Revision: 1}})
		}
		round.Settled = append(round.Settled, orbit.Settled{Outcome: orbit.Outcome{Err: &orbit.Rejection{Kind: orbit.ErrConflict, TakenBy: id}}},
			orbit.Settled{Outcome: orbit.Outcome{Err: &orbit.Rejection{Kind: orbit.ErrInfeasible, TakenBy: id}}}, orbit.Settled{Outcome: orbit.Outcome{Err: orbit.ErrUnknown}})
		engines.Round(round)
	}
	assert.LessOrEqual(t, engines.Makers(), 4096)
	got := scrape(t, engines)
	assert.Len(t, keysWith(got, "orbit_engine_passes_total"), 6)
	assert.Equal(t, 45.0, got[`orbit_engine_passes_total{engine="other"}`])
	assert.Equal(t, 45.0, got[`orbit_engine_stage_seconds_count{engine="other",stage="view"}`])
	assert.NotContains(t, got, `orbit_engine_stage_seconds_count{engine="other",stage="plan"}`, "nothing was planned")
	rivals, conflicts := map[string]bool{}, 0.0
	for _, series := range keysWith(got, "orbit_engine_conflicts_by_rival_total") {
		conflicts += got[series]
		rivals[series[strings.Index(series, "rival="):]] = true
	}
	assert.Equal(t, 50.0, conflicts)
	assert.Subset(t, []string{`rival="elsewhere"}`, `rival="other"}`, `rival="engine�0"}`, `rival="engine�1"}`, `rival="engine�2"}`,
		`rival="engine�3"}`, `rival="engine�4"}`}, slices.Collect(maps.Keys(rivals)))
}

// An engine that nobody listens to keeps nothing for metrics; and one whose rounds are metered allocates nothing either in a pass in
// which nothing has changed.
func TestEnginesOff(t *testing.T) {
	engines, l := &promorbit.Engines{}, &orbit.MemoryLedger{}
	commit(t, l, orbit.PutNode{Node: node("n", 10)}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: wants(1)})
	busy := &rejects{l, &orbit.Rejection{Kind: orbit.ErrConflict}}
	lost := []orbit.Proposal{{Do: []orbit.Commitment{orbit.Place{Capsule: "c", Node: "n"}}}}
	pass := func(listen func(orbit.Round)) float64 {
		e := &orbit.Engine{Ledger: busy, OnRound: listen, Navigator: plan(func(*orbit.View, []*orbit.Capsule) []orbit.Proposal { return lost })}
		return testing.AllocsPerRun(200, func() {
			if r := e.Pass(ctx); r.Conflicts != 1 || (r.Settled == nil) != (listen == nil) || (r.State == nil) != (listen == nil) {
				t.Error(r)
			}
		})
	}
	off, on := pass(nil), pass(engines.Round)
	assert.InDelta(t, 1, on-off, 0.5, "the list of what was settled is all that metrics need of an engine")
	commit(t, l, orbit.Release{Capsule: "c", Final: true})
	for _, listen := range []func(orbit.Round){nil, engines.Round} {
		e := &orbit.Engine{Ledger: l, OnRound: listen, Navigator: &nav.Services{}}
		e.Pass(ctx)
		assert.Zero(t, testing.AllocsPerRun(100, func() { e.Pass(ctx) }))
	}
}

// somePools returns three pools, one of which has served a request.
func somePools(t testing.TB) *promorbit.Pools {
	var pools []*claim.Pool
	for i := range 3 {
		slots := &claim.LedgerSource{}
		require.NoError(t, slots.Join(ctx, orbit.NodeID(fmt.Sprint("slot", i))))
		pools = append(pools, &claim.Pool{Name: fmt.Sprint("pool", i), Source: slots, Labels: claim.Labels{Namespace: "ns", Team: "t\xff", User: "u", Env: "e"}})
	}
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	go func() { _ = pools[0].Run(ctx) }()
	_, err := pools[0].Claim(ctx)
	require.NoError(t, err)
	return &promorbit.Pools{Pools: func() []*claim.Pool { return append(pools, nil) }}
}

// Pools show their requests and how long these waited, by the labels of the pool; more than a number of pools as one.
func TestPools(t *testing.T) {
	metrics := somePools(t)
	labels := func(pool string) string {
		return fmt.Sprintf(`{env="e",namespace="ns",pool=%q,team="t\uFFFD",user="u"}`, pool)
	}
	got := scrape(t, metrics)
	assert.Equal(t, 1.0, got["orbit_claim_dispatch_seconds_count"+strings.ReplaceAll(labels("pool0"), "\\uFFFD", "\uFFFD")], "%v", got)
	assert.Len(t, got, 9)
	metrics.Names = 1
	all := metrics.Pools()
	for i := range 2 { // requests to a pool that does not run wait
		require.True(t, all[1+i].Enqueue(&claim.Request{Result: make(chan claim.Result, 1)}))
	}
	metrics.Pools = func() []*claim.Pool { return []*claim.Pool{all[1], all[0], all[2], all[0], all[2], nil} }
	got = scrape(t, metrics)
	assert.Len(t, got, 6)
	rest := `{env="",namespace="",pool="other",team="",user=""}`
	assert.Equal(t, 2.0, got["orbit_claim_pending_requests"+rest])
	assert.Equal(t, 2.0, got["orbit_claim_dispatch_seconds_count"+rest])
	assert.Equal(t, 2*all[0].Status().Dispatch.Sum.Seconds(), got["orbit_claim_dispatch_seconds_sum"+rest])
	assert.Empty(t, scrape(t, &promorbit.Pools{}))
}
