package nav_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// still is a ledger that shows one state until it is told to look again, so that all who pass meanwhile plan at a time.
type still struct {
	*orbit.MemoryLedger
	state *orbit.State
}

func (s *still) Snapshot(context.Context) (*orbit.State, error) { return s.state, nil }

// herd is engines on a thousand nodes of 16 to 64 cores that are 99% full of capsules of 1 to 4 cores, of which some end and as
// many come between two rounds.
type herd struct {
	*orbit.MemoryLedger
	engines []*orbit.Engine
	rng     *rand.Rand
	// Capsules that are placed or pending.
	alive []orbit.CapsuleID
	class orbit.AppClass

	placed, conflicts, infeasible int
	// The engines pass one after another, each on what the one before has left, and so do not collide.
	inTurn bool
}

// crowded returns a state like that, and its capsules. It is made once, because that takes long.
var crowded = sync.OnceValues(func() (*orbit.State, []orbit.CapsuleID) {
	l, rng, ctx := &orbit.MemoryLedger{}, rand.New(rand.NewPCG(1, 7)), context.Background()
	propose := func(do ...orbit.Commitment) {
		if _, err := l.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			panic(err)
		}
	}
	total := int64(0)
	for i := range 1000 {
		cores := int64(16 + rng.IntN(49))
		total += cores
		propose(node(fmt.Sprintf("n%03d", i), cores))
	}
	var ids []orbit.CapsuleID
	for used := int64(0); used < total*99/100; {
		s := spec(1+int64(rng.IntN(4)), 0)
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("first-", len(ids))))
		propose(orbit.Submit{IDs: ids[len(ids)-1:], Spec: s, Owner: "filler"})
		used += s.Envelope.Reservation[orbit.CPU]
	}
	filler := &orbit.Engine{Name: "filler", Ledger: l, MaxPlan: len(ids), Navigator: &nav.Services{Placement: &place.Indexed{Score: score.Random{Seed: 1}}}}
	for range 2 {
		filler.Pass(ctx)
	}
	state, err := l.Snapshot(ctx)
	if err != nil || state.PendingCount() > 0 {
		panic(fmt.Sprint("not all is placed: ", err))
	}
	return state, ids
})

func newHerd(engines int, class orbit.AppClass, navigator func() orbit.Navigator) (*herd, *still) {
	state, ids := crowded()
	h := &herd{MemoryLedger: &orbit.MemoryLedger{Start: state}, rng: rand.New(rand.NewPCG(2, 7)), class: class}
	h.alive = append(h.alive, ids...)
	shown := &still{MemoryLedger: h.MemoryLedger}
	for i := range engines {
		h.engines = append(h.engines, &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: shown, MaxPlan: 100, Navigator: navigator()})
	}
	return h, shown
}

// churn ends so many capsules, and submits as many.
func (h *herd) churn(t testing.TB, n int) {
	var ends []orbit.Commitment
	for range n {
		i, last := h.rng.IntN(len(h.alive)), len(h.alive)-1
		ends = append(ends, orbit.Release{Capsule: h.alive[i], Final: true})
		h.alive[i] = h.alive[last]
		h.alive = h.alive[:last]
	}
	commit(t, h.MemoryLedger, ends...)
	var comes []orbit.Commitment
	for i := range n {
		s := spec(1+int64(h.rng.IntN(4)), 0)
		s.Class = h.class
		id := orbit.CapsuleID(fmt.Sprint("c", h.rng.Uint64()))
		h.alive = append(h.alive, id)
		comes = append(comes, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s, Owner: h.engines[i%len(h.engines)].Name})
	}
	commit(t, h.MemoryLedger, comes...)
}

// run does rounds: the engines plan on what there was at the beginning of the round, and propose one after another.
func (h *herd) run(t testing.TB, shown *still, rounds, each int) {
	for range rounds {
		h.churn(t, each*len(h.engines))
		shown.state = snapshot(t, h.MemoryLedger)
		waiting := shown.state.PendingCount()
		for _, i := range h.rng.Perm(len(h.engines)) {
			if h.inTurn {
				shown.state = snapshot(t, h.MemoryLedger)
			}
			r := h.engines[i].Pass(t.Context())
			require.Empty(t, r.Errors)
			h.conflicts, h.infeasible = h.conflicts+r.Conflicts, h.infeasible+r.Infeasible
		}
		h.placed += waiting - snapshot(t, h.MemoryLedger).PendingCount()
	}
	require.Zero(t, h.infeasible)
	require.NoError(t, snapshot(t, h.MemoryLedger).Verify())
}

// usable is which part of the room that is free four cores could still use.
func (h *herd) usable(t testing.TB) float64 {
	whole, free := int64(0), int64(0)
	for n := range snapshot(t, h.MemoryLedger).Nodes() {
		free += n.Free()[orbit.CPU]
		whole += n.Free()[orbit.CPU] / 4 * 4
	}
	return float64(whole) / float64(free)
}

// judged is a placement engine that counts how many nodes would have been better than those that another one chooses.
type judged struct {
	orbit.PlacementEngine
	score orbit.Score
	// Sums of parts of the nodes that fit.
	passedOver, choices float64
}

func (j *judged) Best(d *orbit.Draft, s *orbit.Spec) (orbit.Choice, error) {
	c, err := j.PlacementEngine.Best(d, s)
	if err != nil || int(j.choices)%8 > 0 {
		j.choices++
		return c, err
	}
	better, fit := 0, 0
	for n := range d.Nodes() {
		if !n.Fits(s) {
			continue
		}
		fit++
		if value, tie := j.score.Score(n, d.View().Report(n), s); value < c.Value || value == c.Value && tie < c.Tie {
			better++
		}
	}
	j.passedOver += 8 * float64(better) / float64(fit)
	j.choices++
	return c, err
}

// ownEngine is an importer's: it rates all nodes, and goes by parts first.
type ownEngine struct{ parts bool }

func (o *ownEngine) Best(d *orbit.Draft, s *orbit.Spec) (best orbit.Choice, err error) {
	part := 0
	for n := range d.Nodes() {
		p := 0
		if o.parts {
			p = d.View().Part(n)
		}
		if value, _ := (score.BestFit{}).Score(n, d.View().Report(n), s); n.Fits(s) && (best.Node == nil || p < part || p == part && value < best.Value) {
			best, part = orbit.Choice{Node: n, Value: value}, p
		}
	}
	if best.Node == nil {
		return best, d.Diagnose(s, nil, orbit.Misfit{})
	}
	return best, nil
}

// herdKinds are navigators that collide, with what keeps them apart and without.
var herdKinds = []struct {
	name  string
	class orbit.AppClass
	score orbit.Score
	make  func(most int, by orbit.Score) (orbit.PlacementEngine, func(orbit.PlacementEngine) orbit.Navigator)
}{
	{"Services", orbit.LatencySensitive, score.Spread{}, indexedServices},
	{"Services that pack", orbit.LatencySensitive, score.BestFit{}, indexedServices},
	{"Batch", orbit.Batch, nil, func(most int, _ orbit.Score) (orbit.PlacementEngine, func(orbit.PlacementEngine) orbit.Navigator) {
		return &place.Indexed{MostParts: most}, func(e orbit.PlacementEngine) orbit.Navigator { return &nav.Batch{Placement: e} }
	}},
	{"an importer's engine", orbit.LatencySensitive, score.BestFit{}, func(most int, _ orbit.Score) (orbit.PlacementEngine, func(orbit.PlacementEngine) orbit.Navigator) {
		return &ownEngine{most != 1}, func(e orbit.PlacementEngine) orbit.Navigator { return &nav.Services{Placement: e} }
	}},
	{"Patient, Anchor and Services", orbit.LatencySensitive, score.Spread{}, func(most int, by orbit.Score) (orbit.PlacementEngine, func(orbit.PlacementEngine) orbit.Navigator) {
		return &place.Indexed{Score: by, MostParts: most}, func(e orbit.PlacementEngine) orbit.Navigator {
			return &nav.Patient{Navigator: &nav.Anchor{Navigator: &nav.Services{Placement: e}}}
		}
	}},
}

func indexedServices(most int, by orbit.Score) (orbit.PlacementEngine, func(orbit.PlacementEngine) orbit.Navigator) {
	return &place.Indexed{Score: by, MostParts: most}, func(e orbit.PlacementEngine) orbit.Navigator { return &nav.Services{Placement: e} }
}

// herdRun is how a run of eight engines went.
type herdRun struct {
	*herd
	conflicts  float64 // for each placement
	passedOver float64 // part of the nodes that fit which would have been better, mean of the choices
	usable     float64
}

// herdRunOf runs engines of a kind with at most so many parts (0: the default), or in turn.
func herdRunOf(t testing.TB, kind, most int, inTurn bool, rounds, each int) (r herdRun) {
	k, engines := &herdKinds[kind], []*judged(nil)
	h, shown := newHerd(8, k.class, func() orbit.Navigator {
		placement, wrap := k.make(most, k.score)
		if k.score == nil {
			return wrap(placement)
		}
		engines = append(engines, &judged{PlacementEngine: placement, score: k.score})
		return wrap(engines[len(engines)-1])
	})
	h.inTurn = inTurn
	h.run(t, shown, rounds, each)
	r = herdRun{herd: h, conflicts: float64(h.conflicts) / float64(h.placed), usable: h.usable(t)}
	choices := 0.0
	for _, e := range engines {
		r.passedOver += e.passedOver
		choices += e.choices
	}
	r.passedOver /= choices // not a number where the score is the navigator's own
	return r
}

// Eight engines that want the same nodes lose several proposals for each that they place. When those that lose begin with
// other parts of the nodes, they lose less than a sixth of that.
func TestEnginesThatCollideSpreadOut(t *testing.T) {
	scale.Long(t)
	scale.Sequential(t)
	for kind, k := range scale.Some(2, herdKinds...) {
		for _, each := range scale.Some(1, 5, 1, 20) {
			inTurn, without, with := herdRunOf(t, kind, 1, true, 40, each), herdRunOf(t, kind, 1, false, 40, each), herdRunOf(t, kind, 0, false, 40, each)
			figures := fmt.Sprintf("%s, %d each: conflicts per placement %.2f, with parts %.2f; placed %d, %d, in turn %d; better nodes passed over %.1f%%, %.1f%%, %.1f%%; free room that four cores can use %.1f%%, %.1f%%, %.1f%%",
				k.name, each, without.conflicts, with.conflicts, without.placed, with.placed, inTurn.placed, 100*without.passedOver, 100*with.passedOver, 100*inTurn.passedOver, 100*without.usable, 100*with.usable, 100*inTurn.usable)
			t.Log(figures)
			require.Zero(t, inTurn.conflicts)
			require.Less(t, 6*with.conflicts, without.conflicts, figures)
			require.Greater(t, with.placed, without.placed, figures)
		}
	}
}
