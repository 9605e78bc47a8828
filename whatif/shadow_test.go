package whatif_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim/race"
	"github.com/orbitsched/orbit/whatif"
)

// packer places everything, gangs member by member, on the fullest node.
type packer struct {
	engine place.Exhaustive
	draft  orbit.Draft
}

func (*packer) Claims(string, orbit.AppClass) bool { return true }

func (p *packer) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
	p.engine.Score = score.MostAllocated{}
	p.draft.Sync(view)
	for _, c := range pending {
		if err := p.draft.PlaceBest(&p.engine, c); err != nil {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
		} else {
			plan.Proposals = append(plan.Proposals, p.draft.Propose())
		}
	}
	return plan, nil
}

// watched is a navigator whose plans are shown to a shadow, and that has a World step at each.
type watched struct {
	orbit.Navigator
	name   string
	shadow *whatif.Shadow
	world  *whatif.World
	passes *atomic.Int64
}

func (n *watched) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := n.Navigator.Plan(ctx, view, pending)
	round := orbit.Round{Engine: n.name, View: view.Revision(), State: view.State()}
	for _, p := range plan.Proposals {
		p = p.Clone()
		p.View = view.Revision()
		round.Settled = append(round.Settled, orbit.Settled{Proposal: p})
	}
	r, failed := n.shadow.Pass(context.WithoutCancel(ctx), round)
	if failed == nil {
		_, failed = n.world.Step(context.WithoutCancel(ctx))
	}
	if failed != nil {
		panic(failed)
	}
	n.passes.Add(int64(r.Passes))
	return plan, err
}

// observers are the shadows and Worlds beside the engines of a race.
type observers struct {
	ledger  orbit.Ledger
	passes  atomic.Int64
	shadows []*whatif.Shadow
	worlds  []*whatif.World
}

// wrap puts a shadow and a World beside an engine.
func (o *observers) wrap(name string, n orbit.Navigator) orbit.Navigator {
	engine := func(l orbit.Ledger) *orbit.Engine {
		return &orbit.Engine{Name: name, Ledger: l, Navigator: &nav.Preempting{Navigator: &packer{}}}
	}
	scores := map[string]orbit.Score{"packed": score.MostAllocated{}}
	shadow := &whatif.Shadow{Ledger: o.ledger, Engine: engine, Scores: scores}
	world := &whatif.World{Ledger: o.ledger, Scores: scores, Engines: func(l orbit.Ledger) []*orbit.Engine { return []*orbit.Engine{engine(l)} }}
	o.shadows, o.worlds = append(o.shadows, shadow), append(o.worlds, world)
	return &watched{n, name, shadow, world, &o.passes}
}

// TestShadowChangesNothing: the history of a world is the same, byte for byte, with a shadow and a World beside each of its engines and
// without, whatever happens in it.
func TestShadowChangesNothing(t *testing.T) {
	scale.Long(t)
	for name, scenario := range map[string]func(seed uint64, o *observers) *race.Config{
		"liveness": func(seed uint64, o *observers) *race.Config {
			l := &race.Liveness{}
			if o != nil {
				l.Wrap = o.wrap
			}
			return l.Race(seed)
		},
		"preemption": func(seed uint64, o *observers) *race.Config {
			r := race.Preemption(seed)
			for i := range r.Schedulers {
				s := &r.Schedulers[i]
				if inner := s.Navigator; o != nil {
					s.Navigator = func() orbit.Navigator { return o.wrap(s.Name, inner()) }
				}
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			sum := &whatif.Tally{}
			for seed := uint64(1); seed <= uint64(seeds()); seed++ {
				changesNothing(t, sum, seed, scenario)
			}
			t.Log(sum)
			require.Positive(t, sum.Same)
			require.Positive(t, sum.Elsewhere)
		})
	}
}

// seeds is how many worlds are played twice.
func seeds() int {
	if testing.Short() {
		return 8
	}
	return scale.Of(30, 500)
}

func changesNothing(t *testing.T, sum *whatif.Tally, seed uint64, scenario func(uint64, *observers) *race.Config) {
	o, ledger := &observers{}, &orbit.MemoryLedger{}
	play := func(o *observers) (r *race.Result) {
		c := scenario(seed, o)
		c.Ledger = func() orbit.Ledger {
			ledger = &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
			if o != nil {
				o.ledger = ledger
			}
			return ledger
		}
		synctest.Test(t, func(*testing.T) { r = c.Run(seed) })
		return r
	}
	alone := play(nil)
	require.NoError(t, alone.Err, "seed %d", seed)
	before := dump(t, snapshot(t, ledger))
	beside := play(o)
	require.Equal(t, alone.History, beside.History, "seed %d", seed)
	require.Equal(t, before, dump(t, snapshot(t, ledger)), "seed %d", seed)
	for i := range o.shadows {
		r := o.shadows[i].Report()
		sum.Same += r.Same
		sum.Elsewhere += r.Elsewhere
		sum.OnlyReal += r.OnlyReal
		sum.OnlyShadow += r.OnlyShadow
		sum.Evicted += r.Evicted
		sum.ShadowEvicted += r.ShadowEvicted
		if o.worlds[i].Report().Revision > 0 {
			require.NoError(t, o.worlds[i].State().Verify(), "seed %d", seed)
		}
	}
}

// rounds runs an engine that shows its rounds, until it rests.
func rounds(t *testing.T, ledger orbit.Ledger, n orbit.Navigator, each func(orbit.Round)) {
	e := &orbit.Engine{Name: "real", Ledger: ledger, Navigator: n, OnRound: func(orbit.Round) {}}
	for {
		round := e.Pass(t.Context())
		if each(round); round.Committed == 0 {
			return
		}
	}
}

func submit(from, to int, spec *orbit.Spec) orbit.Submit {
	var ids []orbit.CapsuleID
	for i := from; i < to; i++ {
		ids = append(ids, orbit.CapsuleID(fmt.Sprintf("c%03d", i)))
	}
	return orbit.Submit{IDs: ids, Spec: spec, At: orbit.Instant(time.Now().UnixNano())}
}

func shadowOf(l orbit.Ledger, n orbit.Navigator) *whatif.Shadow {
	return &whatif.Shadow{Ledger: l,
		Engine: func(l orbit.Ledger) *orbit.Engine { return &orbit.Engine{Name: "real", Ledger: l, Navigator: n} },
		Scores: map[string]orbit.Score{"packed": score.MostAllocated{}, "spread": score.LeastAllocated{}}}
}

// A shadow with the same navigator as the real engine agrees with it in all.
func TestShadowAgreesWithItself(t *testing.T) {
	l := racks(t, 3, 4)
	shadow := shadowOf(l, &nav.Services{})
	for i := range 10 {
		commit(t, l, submit(3*i, 3*i+3, wants(1, int32(i%3))))
		rounds(t, l, &nav.Services{}, func(r orbit.Round) {
			_, err := shadow.Pass(t.Context(), r)
			require.NoError(t, err)
		})
	}
	r := shadow.Report()
	require.Equal(t, 30, r.Same, r)
	require.Zero(t, r.Elsewhere+r.OnlyReal+r.OnlyShadow+r.Refused+len(r.Errors)+len(r.Differences), r)
	require.Equal(t, r.Scores["packed"].Real, r.Scores["packed"].Shadow)
}

// A shadow that packs beside an engine that spreads is better by the one score and worse by the other.
func TestShadowBetterAndWorse(t *testing.T) {
	l := racks(t, 3, 4)
	shadow := shadowOf(l, &packer{})
	commit(t, l, submit(0, 12, wants(1, 0)))
	rounds(t, l, &nav.Services{Placement: &place.Exhaustive{Score: score.LeastAllocated{}}}, func(r orbit.Round) {
		_, err := shadow.Pass(t.Context(), r)
		require.NoError(t, err)
	})
	r := shadow.Report()
	require.Equal(t, 12, r.Same+r.Elsewhere, r)
	require.Positive(t, r.Scores["packed"].Better, r)
	require.Zero(t, r.Scores["packed"].Worse, r)
	require.Positive(t, r.Scores["spread"].Worse, r)
	require.Zero(t, r.Scores["spread"].Better, r)
	require.Less(t, r.Scores["packed"].Shadow, r.Scores["packed"].Real)
	require.Contains(t, r.String(), "by packed: ")
}

// failing is a navigator that fails in the given way.
type failing struct {
	packer
	plan func() (orbit.Plan, error)
}

func (n *failing) Plan(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error) {
	return n.plan()
}

// What a shadow does wrong is counted, and neither ends it nor comes to the real ledger.
func TestShadowContainsFailures(t *testing.T) {
	l := racks(t, 1, 1)
	commit(t, l, submit(0, 2, wants(1, 0)))
	before := dump(t, snapshot(t, l))
	round := orbit.Round{State: snapshot(t, l), View: snapshot(t, l).Revision()}
	for name, plan := range map[string]func() (orbit.Plan, error){
		"panics":      func() (orbit.Plan, error) { panic("spoilt") },
		"overcommits": func() (orbit.Plan, error) { return plansOf("c000", "r0-n0", 5), nil },
		"no node":     func() (orbit.Plan, error) { return plansOf("c000", "elsewhere", 1), nil },
	} {
		shadow := shadowOf(l, &failing{plan: plan})
		for range 2 {
			r, err := shadow.Pass(t.Context(), round)
			require.NoError(t, err, name)
			require.Positive(t, len(r.Errors)+r.Refused, name)
		}
		require.Equal(t, name != "panics", shadow.Report().Refused > 0, name)
	}
	require.Equal(t, before, dump(t, snapshot(t, l)))
}

// plansOf places a capsule as often.
func plansOf(id orbit.CapsuleID, node orbit.NodeID, times int) (plan orbit.Plan) {
	for range times {
		plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}}})
	}
	return plan
}

// A score that panics rates nothing; other scores do, and the rest goes on.
func TestShadowContainsScores(t *testing.T) {
	l := racks(t, 1, 2)
	commit(t, l, submit(0, 8, wants(1, 0)))
	shadow := shadowOf(l, &packer{})
	shadow.Scores = map[string]orbit.Score{
		"spoilt": score.Func(func(*orbit.NodeState, *orbit.Report, *orbit.Spec) (float64, float64) { panic("spoilt") }),
		"sound":  score.Func(func(*orbit.NodeState, *orbit.Report, *orbit.Spec) (float64, float64) { return 1, 1 }),
	}
	rounds(t, l, &nav.Services{}, func(r orbit.Round) {
		_, err := shadow.Pass(t.Context(), r)
		require.NoError(t, err)
	})
	require.Equal(t, 8, shadow.Report().Same+shadow.Report().Elsewhere)
	require.Equal(t, []string{"sound"}, slices.Collect(maps.Keys(shadow.Report().Scores)))
	require.EqualValues(t, 8, shadow.Report().Scores["sound"].Real)
}

// An engine that is not on the ledger that it was given might write to the real one, so it is refused, and so is a Shadow without
// its fields, and a round without a state.
func TestShadowRefuses(t *testing.T) {
	l := racks(t, 1, 1)
	round := orbit.Round{State: snapshot(t, l), View: snapshot(t, l).Revision()}
	shadow := shadowOf(l, &packer{})
	shadow.Engine = func(orbit.Ledger) *orbit.Engine { return &orbit.Engine{Ledger: l, Navigator: &packer{}} }
	_, err := shadow.Pass(t.Context(), round)
	require.ErrorContains(t, err, "might be written to")
	_, err = shadowOf(l, &packer{}).Pass(t.Context(), orbit.Round{})
	require.ErrorContains(t, err, "has no State")
	require.ErrorContains(t, (&whatif.Shadow{}).Run(t.Context()), "needs the Ledger")
	world := &whatif.World{Ledger: l, Engines: func(orbit.Ledger) []*orbit.Engine { return []*orbit.Engine{{Ledger: l, Navigator: &packer{}}} }}
	_, err = world.Step(t.Context())
	require.ErrorContains(t, err, "might be written to")
	require.ErrorContains(t, (&whatif.World{}).Run(t.Context()), "needs the Ledger")
}

// The real engine hands its rounds over without waiting. What the shadow is too slow for is left out and counted.
func TestShadowRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := racks(t, 2, 4)
		shadow := shadowOf(l, &nav.Services{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := &orbit.Engine{Name: "real", Ledger: l, Navigator: &nav.Services{}, OnRound: shadow.Round}
		done := make(chan error, 2)
		go func() { done <- e.Run(ctx) }()
		for i := range 20 {
			commit(t, l, submit(i, i+1, wants(1, 0)))
			synctest.Wait()
		}
		require.Equal(t, 4, shadow.Report().Dropped)
		go func() { done <- shadow.Run(ctx) }()
		synctest.Wait()
		require.ErrorContains(t, shadow.Run(ctx), "runs already")
		require.Equal(t, 16, shadow.Report().Passes)
		require.Equal(t, 16, shadow.Report().Same, shadow.Report())
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}
