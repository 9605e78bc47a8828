package race_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim/race"
)

// Where the seeds of the liveness worlds begin, and how many the ordinary test plays; behind the tag stress
// there are 20,000.
var (
	liveSeed  = flag.Uint64("live.seed", 1, "the first seed of the liveness worlds")
	liveSeeds = flag.Int("live.seeds", 100, "how many liveness worlds are played")
)

const liveCommand = "go test ./sim/race -run '^TestLiveness$' -live.seed %d -live.seeds 1"

// playWorld plays a world in a bubble.
func playWorld(t *testing.T, l *race.Liveness, seed uint64) (res *race.Result) {
	synctest.Test(t, func(*testing.T) { res = l.Race(seed).Run(seed) })
	return res
}

// playWorlds plays worlds until one fails, and tells of that.
func playWorlds(t *testing.T, first uint64, seeds int) {
	synctest.Test(t, func(*testing.T) {
		if failed := race.Scenario((&race.Liveness{Command: liveCommand}).Race).Hunt(first, seeds); failed != nil {
			t.Error(failed.Story())
		}
	})
}

// Whatever happens and goes wrong, when all is quiet nothing that fits is left pending.
func TestLiveness(t *testing.T) {
	seeds := scale.WithRace(min(60, *liveSeeds), *liveSeeds)
	if testing.Short() {
		seeds = max(1, seeds/4)
	}
	playWorlds(t, *liveSeed, seeds)
}

// spoilt is a navigator with a fault of its own.
type spoilt struct {
	orbit.Navigator
	plan spoiling
}

// spoiling says of what is pending which part the navigator gets to see, and what is added to its plan.
type spoiling func(view *orbit.View, pending []*orbit.Capsule) (left []*orbit.Capsule, more orbit.Plan)

// Plan lets the fault have its way with what is pending, and adds to the plan.
func (s *spoilt) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	left, more := s.plan(view, pending)
	plan, err := s.Navigator.Plan(ctx, view, left)
	plan.Proposals = append(plan.Proposals, more.Proposals...)
	plan.Unplaced = append(plan.Unplaced, more.Unplaced...)
	return plan, err
}

// faultyNavigators are faults that navigators may have, and the rule by which the worlds find each.
var faultyNavigators = map[string]struct {
	rule string
	plan func() spoiling
}{
	"forgets what takes two cores": {"left", func() spoiling {
		return func(_ *orbit.View, pending []*orbit.Capsule) (left []*orbit.Capsule, more orbit.Plan) {
			for _, c := range pending {
				if c.Spec.Envelope.Reservation[orbit.CPU] != 2 {
					left = append(left, c)
				}
			}
			return left, more
		}
	}},
	"says once that a class fits nowhere": {"left", func() spoiling {
		said := map[*orbit.Spec]int{}
		return func(_ *orbit.View, pending []*orbit.Capsule) (left []*orbit.Capsule, more orbit.Plan) {
			for _, c := range pending {
				if said[c.Spec]++; said[c.Spec] == 2 {
					more.Unplaced = append(more.Unplaced, orbit.Unplaced{Capsule: c, Why: &orbit.NoFit{}})
				} else {
					left = append(left, c)
				}
			}
			return left, more
		}
	}},
	"panics": {"panic", func() spoiling {
		return func(_ *orbit.View, pending []*orbit.Capsule) ([]*orbit.Capsule, orbit.Plan) {
			return pending[:3], orbit.Plan{}
		}
	}},
	"holds room for ever": {"restless", func() spoiling {
		return func(view *orbit.View, pending []*orbit.Capsule) (_ []*orbit.Capsule, more orbit.Plan) {
			for n := range view.State().Nodes() {
				id := orbit.HoldID(fmt.Sprintf("plan/spoilt/%d", view.Revision()))
				h := orbit.Hold{ID: id, Node: n.Node.ID, Ends: view.Now().Add(time.Minute), Room: orbit.Resources{orbit.CPU: 1}}
				more.Proposals = append(more.Proposals, orbit.Proposal{Do: []orbit.Commitment{h}})
				break
			}
			return pending, more
		}
	}},
	"changes a lease": {"invalid", func() spoiling {
		return func(_ *orbit.View, pending []*orbit.Capsule) (_ []*orbit.Capsule, more orbit.Plan) {
			more.Proposals = append(more.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "lease/n1"}}})
			return pending, more
		}
	}},
	"overcommits": {"infeasible", func() spoiling {
		return func(view *orbit.View, pending []*orbit.Capsule) (_ []*orbit.Capsule, more orbit.Plan) {
			for n := range view.State().Nodes() {
				p := orbit.Proposal{View: view.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: pending[0].ID, Node: n.Node.ID}}}
				more.Proposals = append(more.Proposals, p)
			}
			return pending, more
		}
	}},
}

// A navigator with a fault is found, by the rule that the fault breaks.
func TestLivenessFindsFaults(t *testing.T) {
	for name, fault := range faultyNavigators {
		t.Run(name, func(t *testing.T) {
			l := &race.Liveness{Wrap: func(_ string, n orbit.Navigator) orbit.Navigator { return &spoilt{n, fault.plan()} }}
			found := map[string]int{}
			for seed := uint64(1); seed <= 100 && found[fault.rule] == 0; seed++ {
				found[playWorld(t, l, seed).Rule()]++
			}
			assert.NotZero(t, found[fault.rule], "found by %v", found)
		})
	}
}

// What a hunt returns is small, names its seed, and says what is left, where it would fit, and what was last
// said of it.
func TestLivenessStory(t *testing.T) {
	scale.Long(t)
	plan := faultyNavigators["forgets what takes two cores"].plan
	l := &race.Liveness{
		Wrap:    func(_ string, n orbit.Navigator) orbit.Navigator { return &spoilt{n, plan()} },
		Command: "go test ./mine -seed %d",
	}
	var s *race.Result
	synctest.Test(t, func(*testing.T) { s = race.Scenario(l.Race).Hunt(5, 100) })
	require.NotNil(t, s)
	assert.Len(t, s.Config.Schedulers, 1)
	assert.LessOrEqual(t, len(s.Config.Events), 4, "a node joins, work is submitted, the world rests")
	require.Error(t, playWorld(t, l, s.Seed).Err, "the seed fails by itself")
	for _, what := range []string{fmt.Sprintf("seed %d: left: ", s.Seed), "is pending and fits on", "the engine last said:", "run it again with: go test ./mine -seed ", "submit ", "broken"} {
		assert.Contains(t, s.Story(), what)
	}
}

// The same seed plays the same history, in another bubble too.
func TestLivenessSameSeed(t *testing.T) {
	scale.Sweep(t)
	plan := faultyNavigators["forgets what takes two cores"].plan
	l := &race.Liveness{Wrap: func(_ string, n orbit.Navigator) orbit.Navigator { return &spoilt{n, plan()} }}
	stories := 0
	for seed := uint64(1); seed <= 60; seed++ {
		first, again := playWorld(t, l, seed), playWorld(t, l, seed)
		require.Equal(t, first.Story(), again.Story(), "seed %d", seed)
		if first.Err != nil {
			stories++
		}
	}
	assert.Greater(t, stories, 10)
}

// Within is kept to: what is put aside for half a minute is no fault if the engines have two minutes.
func TestLivenessWithin(t *testing.T) {
	scale.Long(t)
	plan := faultyNavigators["says once that a class fits nowhere"].plan
	wrap := func(_ string, n orbit.Navigator) orbit.Navigator { return &spoilt{n, plan()} }
	short, long := &race.Liveness{Wrap: wrap}, &race.Liveness{Wrap: wrap, Within: 2 * time.Minute}
	found := 0
	for seed := uint64(1); seed <= 36; seed++ {
		if playWorld(t, short, seed).Rule() == "left" {
			found++
			assert.NoError(t, playWorld(t, long, seed).Err, "seed %d", seed)
		}
	}
	assert.NotZero(t, found)
}

// The worlds have in them what they are for: every navigator places work in them, and everything happens that
// may.
func TestLivenessHappens(t *testing.T) {
	scale.Long(t)
	seen := map[string]int{}
	wanted := []string{
		"orbit.PutNode", "orbit.RemoveNode", "orbit.Submit", "orbit.Place", "orbit.Release", "orbit.Hold", "orbit.Assign", "orbit.Mark",
		"orbit.Confirm", "orbit.PutBudget", "orbit.Adopt", "evicted for a capsule", "node that has gone", "placed, with another spec", "pending, with another spec",
		"larger by a fact", "given back", "ended by an eviction", "ended by a failure", "near orbit/node",
		"pending", "class LatencySensitive", "class BestEffort", "class Batch", "class Gang", "anchor", "warm", "cold", "follower", "fork", "crossing fork",
		"with devices", "that requires labels", "near rack", "near row", "near zone", "gang that runs short",
		"gang that runs and has finished members", "broken gang", "failed twice in a row", "gang with extras", "gang with Apart", "gang with Even", "joined gang", "gang with a minimum of its own",
	}
	for seed := uint64(1); seed <= 600 && !reached(seen, wanted); seed++ {
		ledger := &orbit.MemoryLedger{}
		looks := func(view *orbit.View, pending []*orbit.Capsule) ([]*orbit.Capsule, orbit.Plan) {
			for g := range view.State().Gangs() {
				lookAtGang(g, seen)
			}
			return pending, orbit.Plan{}
		}
		l := &race.Liveness{Ledger: func() orbit.Ledger { return ledger }, Wrap: func(_ string, n orbit.Navigator) orbit.Navigator { return &spoilt{n, looks} }}
		playWorld(t, l, seed)
		state, err := ledger.Snapshot(t.Context())
		require.NoError(t, err)
		changes, err := ledger.Changes(t.Context(), 0)
		require.NoError(t, err)
		evicted := map[orbit.CapsuleID]bool{} // whose last change is an eviction
		for _, c := range changes {
			seen[fmt.Sprintf("%T", c.Do)]++
			evicted[subject(c.Do)] = false
			if e, ok := c.Do.(orbit.Evict); ok {
				evicted[e.Capsule] = e.For != "" || e.ForGang != ""
			}
			lookAtChange(&c, seen)
		}
		for c := range state.Capsules() {
			look(c, seen)
			if state.Failures(c.ID).InARow > 1 {
				seen["failed twice in a row"]++
			}
			if c.Released() && evicted[c.ID] {
				seen["ended by an eviction"]++
			}
		}
	}
	for _, what := range wanted {
		assert.NotZero(t, seen[what], what)
	}
}

// reached reports whether all that is wanted has been seen.
func reached(seen map[string]int, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(what string) bool { return seen[what] == 0 })
}

// subject returns the capsule that a commitment places or releases.
func subject(do orbit.Commitment) orbit.CapsuleID {
	switch do := do.(type) {
	case orbit.Place:
		return do.Capsule
	case orbit.Release:
		return do.Capsule
	}
	return ""
}

// lookAtChange notes what a change is an example of.
func lookAtChange(c *orbit.Change, seen map[string]int) {
	is := func(what string, yes bool) {
		if yes {
			seen[what]++
		}
	}
	switch do := c.Do.(type) {
	case orbit.Submit:
		is("joined gang", do.Join)
	case orbit.Evict:
		is("evicted for a capsule", do.For != "")
	case orbit.RemoveNode:
		is("node that has gone", do.Gone)
	case orbit.Respec:
		is("placed, with another spec", do.Since != 0)
		is("pending, with another spec", do.Since == 0)
		is("larger by a fact", do.Applied)
	case orbit.Release:
		is("ended by a failure", do.Stopped && do.Final)
		is("given back", !do.Stopped && !do.Final && do.From != "" && do.At != 0)
	}
}

// lookAtGang notes what a gang is an example of.
func lookAtGang(g *orbit.GangState, seen map[string]int) {
	if g.Short() {
		seen["gang that runs short"]++
	}
	if g.Broken() {
		seen["broken gang"]++
	}
	if g.Total() == 0 {
		return
	}
	seen["gang with a minimum of its own"] += g.Gang.Min
	for i := range g.Gang.Roles {
		spec := g.Gang.Roles[i].Spec
		seen["gang that runs and has finished members"] += g.Done[i]
		seen["gang with extras"] += len(spec.Extras)
		seen["gang with Apart"] += len(spec.Apart)
		seen["gang with Even"] += len(spec.Even)
	}
}

// look notes what a capsule is an example of.
func look(c *orbit.Capsule, seen map[string]int) {
	if c.Pending() {
		seen["pending"]++
	}
	if !c.Placed() {
		return
	}
	seen["class "+c.Spec.Class.String()]++
	seen[c.Note()]++
	for near := range c.Spec.AllNear {
		seen["near "+near.Level]++
	}
	if c.Spec.Near.Group != "" {
		if c.Note() != nav.AnchorNote {
			seen["follower"]++
		}
	}
	switch {
	case c.Spec.Start.CrossHost:
		seen["crossing fork"]++
	case c.Spec.Start.Parent != "":
		seen["fork"]++
	}
	if c.Devices != 0 {
		seen["with devices"]++
	}
	if len(c.Spec.Require) > 0 {
		seen["that requires labels"]++
	}
}
